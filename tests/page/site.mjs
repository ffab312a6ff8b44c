// Starts what each test of the page needs: a server with filters of every kind, the program that serves the page, and a browser.
// scripts/test --only page sets their paths: BLOOMGATE_SERVER, BLOOMGATE_MODULE, BLOOMGATE_TOOL, BLOOMGATE_CHROMIUM, BLOOMGATE_NODE.

import assert from "node:assert/strict";
import { execFileSync, spawn } from "node:child_process";
import { createRequire } from "node:module";
import { connect, createServer } from "node:net";
import { createInterface } from "node:readline";

import { startServer } from "../clients/node/server.mjs";

const required = createRequire(`${process.env.BLOOMGATE_NODE}/`);
const { chromium } = required("playwright-core");

// Names that would have an effect if they were parsed as markup, and one with invisible characters.
export const HOSTILE = ["<script>window.broken = 1</script>", "<img src=x onerror=window.broken=1>\"'&amp;", "\u202ecod.exe\u200b"];

// Runs a command with redis-cli and returns the reply.
export function redis(port, ...words) {
  return JSON.parse(execFileSync("redis-cli", ["-p", String(port), "-3", "--json", ...words.map(String)], { encoding: "utf8" }));
}

export function fill(port) {
  const items = (from, to) => Array.from({ length: to - from }, (_, index) => `item${from + index}`);
  redis(port, "BF.RESERVE", "orders", 0.01, 20000);
  for (let from = 0; from < 15000; from += 1000) redis(port, "BF.MADD", "orders", ...items(from, from + 1000));
  redis(port, "BF.RESERVE", "seen:links", 0.001, 1000);
  for (let from = 0; from < 6000; from += 1000) redis(port, "BF.MADD", "seen:links", ...items(from, from + 1000));
  redis(port, "BF.RESERVE", "coupons", 0.0001, 500, "NONSCALING");
  redis(port, "BF.MADD", "coupons", ...items(0, 500));
  redis(port, "BF.RESERVE", "requests:minute", 0.01, 3000, "WINDOW", 60, "BUCKETS", 6, "SLIDING");
  redis(port, "BF.MADD", "requests:minute", ...items(0, 800));
  redis(port, "BF.RESERVE", "shown:recent", 0.01, 2000, "ROLLING");
  redis(port, "BF.MADD", "shown:recent", ...items(0, 1500));
  redis(port, "BF.RESERVE", "online", 0.01, 1000, "COUNTING");
  redis(port, "BF.MADD", "online", ...items(0, 400));
  redis(port, "BF.RESERVE", "members", 0.01, 8000, "HASH", "siphash");
  redis(port, "BF.MADD", "members", ...items(0, 900));
  redis(port, "BF.MDEL", "members", "item1", "item2");
  redis(port, "BF.FETCH", "members", "nobody", "cache:1");
  redis(port, "BF.FETCH", "members", "item3", "cache:2");
}

// Starts the server, the page and a browser: { port, address, browser, gate, program }. All end with the test.
export async function startSite(test, { interval = 0.3, names = [] } = {}) {
  // The browser is closed before the rest ends, so that no page reports a lost connection.
  const browser = await chromium.launch({ executablePath: process.env.BLOOMGATE_CHROMIUM, args: ["--no-sandbox"] });
  test.after(() => browser.close());
  const port = await startServer(test);
  fill(port);
  for (const name of names) redis(port, "BF.RESERVE", name, 0.01, 100);
  const gate = await startGate(test, port);
  const program = spawn(process.env.BLOOMGATE_TOOL, ["web", "-p", gate.port, "--listen", "0", "--interval", interval], {
    stdio: ["ignore", "pipe", "inherit"],
  });
  test.after(() => program.kill("SIGKILL"));
  let address;
  for await (const line of createInterface({ input: program.stdout })) {
    address = /^(http:\S+)/.exec(line)?.[1];
    break;
  }
  assert(address, "bloomgate web did not print its URL");
  return { port, address, browser, gate, program };
}

// A proxy to the server. Closing and opening it simulates a server that is lost and comes back.
async function startGate(test, port) {
  const sockets = new Set();
  const make = () =>
    createServer((from) => {
      const to = connect(port, "127.0.0.1");
      for (const [one, other] of [[from, to], [to, from]]) {
        sockets.add(one);
        one.on("error", () => other.destroy()).on("close", () => other.destroy());
        one.pipe(other);
      }
    });
  let server = make();
  const listen = (where) => new Promise((resolve) => server.listen(where, "127.0.0.1", resolve));
  await listen(0);
  const gate = {
    port: server.address().port,
    close() {
      server.close();
      for (const socket of sockets) socket.destroy();
      sockets.clear();
    },
    async open() {
      server = make();
      await listen(gate.port);
    },
  };
  test.after(() => gate.close());
  return gate;
}

// Opens the page. Any error in it fails the test.
export async function openPage(test, { address, browser }, options = {}) {
  const page = await browser.newPage({ viewport: { width: 1280, height: 900 }, colorScheme: "light", ...options });
  const faults = [];
  page.on("console", (message) => {
    if (["error", "warning"].includes(message.type())) faults.push(message.text());
  });
  page.on("pageerror", (error) => faults.push(error.message));
  page.on("dialog", (dialog) => faults.push(`a dialog: ${dialog.message()}`));
  page.on("request", (request) => {
    if (new URL(request.url()).origin !== new URL(address).origin) faults.push(`a request for ${request.url()}`);
  });
  // Tests remove the errors that they provoke from this list.
  page.faults = faults;
  test.after(() => assert.deepEqual(faults, []));
  await page.goto(address);
  await page.locator("#filters-body tr").first().waitFor();
  return page;
}

// Returns the cells of a filter's row by the names of their columns.
export async function row(page, name) {
  const heads = await page.locator("#filters-head th").allTextContents();
  const cells = await page.locator("#filters-body tr").filter({ has: page.getByRole("link", { name, exact: true }) }).locator("th, td").allTextContents();
  return Object.fromEntries(heads.map((head, index) => [head, cells[index]]));
}

// Waits until `condition` returns a truthy value, and returns it.
export async function eventually(what, condition) {
  for (const begun = Date.now(); ; await new Promise((resolve) => setTimeout(resolve, 50))) {
    const found = await condition();
    if (found) return found;
    assert(Date.now() - begun < 60_000, `gave up waiting for: ${what}`);
  }
}
