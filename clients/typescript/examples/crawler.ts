/** A crawler that fetches each page of a site once. All links of a page are looked up by one command. Several crawlers share
 * the filter, so that only one of them fetches each page. A filter forgets a page after a week.
 *
 * `node crawler.js URL` prints the addresses of the pages that this process has fetched. REDIS_URL is the address of the
 * server. */

import { Filter } from "bloomgate";
import { connect } from "bloomgate/redis";

const CONCURRENCY = 8;
const WEEK_S = 7 * 24 * 3600;

const start = new URL(process.argv[2] ?? "");
const client = await connect(process.env["REDIS_URL"] ?? "redis://127.0.0.1:6379");
const seen = new Filter(client, `crawler:${start.host}`, { create: false });
// One new page in a thousand may be reported as seen, and is not fetched.
await seen.reserve(0.001, 1_000_000, { window: WEEK_S, existOk: true });

/** Pages to fetch. If this process dies, they are lost: they are in the filter, so the next crawl will not fetch them
 * either. */
const frontier: string[] = [];

/** Adds the links that no crawler has seen. */
async function enqueue(links: readonly string[]): Promise<void> {
  const answers = await seen.addMany(links);
  frontier.push(...links.filter((_, index) => answers[index]));
}

/** Returns the addresses that a page links to on the same site. */
function linksOf(page: string, base: string): string[] {
  const found = new Set<string>();
  for (const [, href = ""] of page.matchAll(/<a\s[^>]*href="([^"]*)"/gi)) {
    if (!URL.canParse(href, base)) continue;
    const link = new URL(href, base);
    if (link.origin !== start.origin) continue;
    link.hash = "";
    found.add(link.href);
  }
  return [...found];
}

async function visit(address: string): Promise<void> {
  const response = await fetch(address);
  if (!response.ok) return;
  console.log(address);
  await enqueue(linksOf(await response.text(), response.url));
}

await enqueue([start.href]);
const active = new Set<Promise<void>>();
while (frontier.length > 0 || active.size > 0) {
  while (frontier.length > 0 && active.size < CONCURRENCY) {
    const address = frontier.shift() ?? "";
    const visiting = visit(address)
      .catch((error: unknown) => console.error(`${address}: ${error}`))
      .finally(() => active.delete(visiting));
    active.add(visiting);
  }
  await Promise.race(active);
}
client.destroy();
