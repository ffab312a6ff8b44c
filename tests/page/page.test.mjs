// Tests the page of `bloomgate web` in Chromium: its figures against the server's, narrow and wide screens, light and dark mode,
// use by keyboard alone, and keys that contain markup. Run by scripts/test --only page.

import assert from "node:assert/strict";
import { createServer } from "node:http";
import { join } from "node:path";
import { test } from "node:test";

import { HOSTILE, eventually, openPage, redis, row, startSite } from "./site.mjs";

const grouped = (number) => new Intl.NumberFormat("en").format(number);
const size = (bytes) => (bytes < 1024 ? `${bytes} B` : `${grouped(Number((bytes / 1024).toPrecision(3)))} KiB`);

test("the page shows the server's figures", async (t) => {
  const site = await startSite(t);
  const page = await openPage(t, site);
  await page.locator("#state.is-up").waitFor();
  for (const name of ["orders", "seen:links", "coupons", "shown:recent", "online", "members"]) {
    const stats = redis(site.port, "BF.STATS", name);
    const shown = await eventually(`the row of ${name}`, async () => {
      const cells = await row(page, name);
      return cells.Items ? cells : null;
    });
    assert.equal(shown.Items, grouped(stats["Number of items inserted"]), name);
    assert.equal(shown.Memory, size(stats.Size), name);
    assert.equal(shown.Layers, String(stats.Layers.length), name);
    const full = (stats["Number of items inserted"] / stats.Capacity) * 100;
    assert(Math.abs(Number.parseFloat(shown.Full) - full) < 1, `${name}: ${shown.Full}, ${full}`);
    const wrong = stats["Error rate now"] * 100;
    if (wrong > 0.0001) assert(Math.abs(Number.parseFloat(shown["False positives"]) / wrong - 1) < 0.06, `${name}: ${shown["False positives"]}, ${wrong}`);
  }
  assert.equal(await page.locator("#tiles dd span").first().textContent(), "7");
  assert.match(await page.locator("#guard-tiles").textContent(), /BF\.FETCH2/);
  redis(site.port, "BF.MADD", "orders", "brand", "new", "items");
  const items = grouped(redis(site.port, "BF.CARD", "orders"));
  await eventually("new items", async () => (await row(page, "orders")).Items === items);
});

test("the guard's replies are shown per second", async (t) => {
  const site = await startSite(t);
  redis(site.port, "SET", "cache:3", "a row");
  const page = await openPage(t, site);
  const tile = async (name) => page.locator("#guard-tiles > div").filter({ has: page.locator("dt", { hasText: new RegExp(`^${name}$`) }) }).locator("dd").textContent();
  // The lease of cache:2 exists: its readers wait. "missing" is not a filter.
  for (const [name, words] of [["Absent", ["members", "nobody", "cache:1"]], ["Hit", ["members", "item3", "cache:3"]], ["Wait", ["members", "item3", "cache:2"]], ["Unguarded", ["missing", "item3", "cache:3"]]]) {
    await eventually(`a rate of ${name}`, async () => {
      redis(site.port, "BF.FETCH", ...words);
      return /^[1-9][\d.,]*\/s/.test(await tile(name));
    });
  }
  let number = 10;
  await eventually("a rate of Load", async () => {
    redis(site.port, "BF.FETCH", "members", "item3", `cache:${number++}`);
    return /^[1-9][\d.,]*\/s\d+ since the start, \d/.test(await tile("Load"));
  });
  await eventually("no rate after the last fetch", async () => /^0\/s/.test(await tile("Load")) && /^0\/s/.test(await tile("Hit")));
});

test("the details of a filter show its layers and buckets and look up items", async (t) => {
  const site = await startSite(t);
  const page = await openPage(t, site);
  await page.getByRole("link", { name: "seen:links", exact: true }).click();
  const stats = redis(site.port, "BF.STATS", "seen:links");
  await page.locator("#layers-body tr").nth(stats.Layers.length - 1).waitFor();
  const capacities = await page.locator("#layers-body td:nth-child(3)").allTextContents();
  assert.deepEqual(capacities, stats.Layers.map((layer) => grouped(layer.Capacity)));
  const added = page.locator("#detail-facts > div").filter({ hasText: "New items" });
  await eventually("the rate of new items", async () => /0\/s/.test(await added.textContent()));
  for (const [item, form, answer] of [
    ["item5", "text", /maybe present/],
    ["never added", "text", /not present/],
    ["6974656d35", "hex", /maybe present/],
    ["6974656d3", "hex", /two digits per byte/],
  ]) {
    if (form === "hex" && item.length % 2) page.faults.length = 0;
    await page.locator("#try-item").fill(item);
    await page.locator("#try-form").selectOption(form);
    await page.getByRole("button", { name: "Look it up" }).click();
    await eventually(`the answer for ${item}`, async () => answer.test(await page.locator("#try-answer").textContent()));
  }
  // The browser's console reports the refused request, which is expected.
  assert(page.faults.splice(0).every((fault) => fault.includes("400")));
  await page.getByRole("link", { name: "requests:minute", exact: true }).click();
  const buckets = redis(site.port, "BF.STATS", "requests:minute").Buckets;
  await eventually("the buckets", async () => (await page.locator("#buckets-body tr").count()) >= buckets.length);
  redis(site.port, "DEL", "requests:minute");
  await eventually("that it is gone", async () => /no longer exists/.test(await page.locator("#detail-problem").textContent()));
  assert(page.faults.splice(0).every((fault) => fault.includes("404")));
  await page.getByRole("button", { name: "Close" }).click();
  assert(await page.locator("#detail").isHidden());
});

test("a key is shown as text even if it contains markup", async (t) => {
  const site = await startSite(t, { names: HOSTILE });
  const page = await openPage(t, site);
  const shown = (name) => name.replace("\u202e", "\\u{202e}").replace("\u200b", "\\u{200b}");
  for (const name of HOSTILE) {
    await page.getByRole("link", { name: shown(name), exact: true }).click();
    await eventually("its details", async () => (await page.locator("#detail-title").textContent()) === shown(name));
  }
  assert.equal(await page.evaluate(() => window.broken), undefined);
  assert.deepEqual(await page.locator("main img, main script").count(), 0);
});

test("no screen width needs horizontal scrolling", async (t) => {
  const site = await startSite(t, { names: [...HOSTILE, "x".repeat(300), "long words ".repeat(20)] });
  // A long name is cut.
  const long = /^x{150,}\.\.\.#[0-9a-f]+$/;
  for (const width of [320, 390, 768, 1280]) {
    const page = await openPage(t, site, { viewport: { width, height: 844 } });
    const fits = async (what) => {
      const [found, wide] = await page.evaluate(() => [
        document.documentElement.scrollWidth,
        [...document.querySelectorAll("body *")].filter((part) => part.getBoundingClientRect().right > innerWidth + 1 && !part.closest("svg")).map((part) => part.outerHTML.slice(0, 80)),
      ]);
      assert(found <= width, `${what} at ${width}: ${found}, ${wide}`);
    };
    await fits("the table");
    for (const name of ["requests:minute", "seen:links", long]) {
      const link = page.getByRole("link", { name, exact: true });
      const text = await link.textContent();
      await link.click();
      await eventually("its details", async () => (await page.locator("#detail-title").textContent()) === text);
      await fits(text.slice(0, 20));
    }
    for (const kind of ["window", "rolling", "counting", "nonscaling", "scaling"]) {
      await page.locator("#plan-kind").selectOption(kind);
      await fits(kind);
    }
    await page.close();
  }
});

test("each filter has a URL, and Back returns to what was open before", async (t) => {
  const site = await startSite(t, { names: [...HOSTILE, "", "x".repeat(300)] });
  const page = await openPage(t, site);
  const title = page.locator("#detail-title");
  const shows = (name) => eventually(`the details of ${name}`, async () => (await title.isVisible()) && (await title.textContent()) === name);
  const isClosed = () => eventually("no details", () => page.locator("#detail").isHidden());
  const open = (name) => page.getByRole("link", { name, exact: true }).click();
  await open("orders");
  await shows("orders");
  const address = page.url();
  await open("coupons");
  await shows("coupons");
  assert.notEqual(page.url(), address);
  await page.goBack();
  await shows("orders");
  assert.equal(page.url(), address);
  await page.goBack();
  await isClosed();
  assert.equal(page.url(), site.address);
  await page.goForward();
  await shows("orders");
  // Close and Escape also add entries to the history.
  await page.getByRole("button", { name: "Close" }).click();
  await isClosed();
  assert.equal(page.url(), site.address);
  await page.goBack();
  await shows("orders");
  await title.press("Escape");
  await isClosed();
  await page.goBack();
  await page.getByRole("link", { name: "Calculator" }).click();
  await isClosed();
  await eventually("the calculator on the screen", () => page.locator("#calculator-title").evaluate((head) => head.getBoundingClientRect().top >= 0 && head.getBoundingClientRect().top < innerHeight));
  await page.goBack();
  await shows("orders");
  // The URL works in another window and after a reload.
  for (const name of ["(the empty name)", HOSTILE[0], /^x{150,}/]) {
    const link = page.getByRole("link", { name, exact: true });
    const text = await link.textContent();
    await link.click();
    await shows(text);
    const other = await openPage(t, { ...site, address: page.url() }, {});
    await eventually("the same filter", async () => (await other.locator("#detail-title").textContent()) === text);
    await other.reload();
    await eventually("the same filter", async () => (await other.locator("#detail-title").textContent()) === text);
    await eventually("its figures", async () => (await other.locator("#layers-body tr").count()) > 0);
    await other.close();
  }
  // Any other fragment opens nothing, and an unknown ID is refused.
  await page.goto(`${site.address}#other`);
  await isClosed();
  await page.goto(`${site.address}#filter=zz%`);
  await eventually("a refusal", async () => (await page.locator("#detail-problem").textContent()) !== "");
  assert(page.faults.splice(0).every((fault) => /40[04]/.test(fault)));
});

test("headings do not touch on a phone", async (t) => {
  const site = await startSite(t);
  for (const width of [320, 390]) {
    const page = await openPage(t, site, { viewport: { width, height: 844 } });
    await page.getByRole("link", { name: "requests:minute", exact: true }).click();
    await page.locator("#buckets-body tr").first().waitFor();
    for (const sorted of ["Name", "Full", "False positives", "Memory"]) {
      await page.getByRole("button", { name: sorted, exact: true }).click();
      // The rectangles of each heading: its lines of text, and the arrow of the sorted column.
      const close = await page.evaluate(() => {
        const boxes = [...document.querySelectorAll("h1, h2, h3, th, header a")].flatMap((head) => {
          const range = document.createRange();
          range.selectNodeContents(head);
          const arrow = head.querySelector(".arrow")?.getBoundingClientRect() ?? [];
          return [...range.getClientRects()].concat(arrow).filter((box) => box.width > 0 && box.height > 0).map((box) => ({ head, box }));
        });
        const apart = (a, b) => Math.max(a.left - b.right, b.left - a.right, a.top - b.bottom, b.top - a.bottom);
        return boxes.flatMap((one, index) =>
          boxes
            .slice(index + 1)
            .filter((other) => one.head !== other.head && apart(one.box, other.box) < 6 && Math.min(one.box.bottom, other.box.bottom) > Math.max(one.box.top, other.box.top))
            .map((other) => `${one.head.textContent} and ${other.head.textContent}: ${apart(one.box, other.box)}`),
        );
      });
      assert.deepEqual(close, [], `sorted by ${sorted} at ${width}`);
      const arrow = page.locator("th[aria-sort] .arrow");
      assert((await arrow.boundingBox()).width > 3, "the arrow is shown");
    }
    await page.close();
  }
});

test("light and dark mode differ and have enough contrast", async (t) => {
  const site = await startSite(t);
  const grounds = new Set();
  for (const colorScheme of ["light", "dark"]) {
    const page = await openPage(t, site, { colorScheme });
    const pairs = await page.evaluate(() => {
      const ground = getComputedStyle(document.body).backgroundColor;
      const places = ["body", ".muted", "main a, header a", "#filters-body a", ".tiles dt", ".tiles dd", "thead button", ".key"];
      return places.map((place) => [place, getComputedStyle(document.querySelector(place)).color, ground]);
    });
    grounds.add(pairs[0][2]);
    for (const [place, ink, ground] of pairs) assert(contrast(ink, ground) >= 4.5, `${place} in ${colorScheme}: ${contrast(ink, ground)}`);
    await page.close();
  }
  assert.equal(grounds.size, 2);
});

// The contrast ratio of WCAG.
function contrast(one, other) {
  const light = (colour) => {
    const [r, g, b] = colour.match(/[\d.]+/g).slice(0, 3).map((part) => {
      const share = Number(part) / 255;
      return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
    });
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const [dark, bright] = [light(one), light(other)].sort((a, b) => a - b);
  return (bright + 0.05) / (dark + 0.05);
}

test("everything works by keyboard alone", async (t) => {
  const site = await startSite(t);
  const page = await openPage(t, site);
  const focused = () => page.evaluate(() => ({ id: document.activeElement.id, text: document.activeElement.textContent, outline: getComputedStyle(document.activeElement).outlineStyle }));
  const tabTo = async (what, is) => {
    for (let press = 0; press < 80; press++) {
      await page.keyboard.press("Tab");
      const at = await focused();
      assert.notEqual(at.outline, "none", `the focus is invisible at ${at.id} ${at.text}`);
      if (is(at)) return at;
    }
    return assert.fail(`no Tab leads to ${what}`);
  };
  await tabTo("the skip link", (at) => at.text === "Skip to the filters");
  await page.keyboard.press("Enter");
  await tabTo("the search", (at) => at.id === "search");
  await page.keyboard.type("links");
  await eventually("one row", async () => (await page.locator("#filters-body tr").count()) === 1);
  await page.keyboard.press("ControlOrMeta+a");
  await page.keyboard.press("Delete");
  await tabTo("a head that sorts", (at) => at.text === "Items");
  await page.keyboard.press("Enter");
  assert.equal(await page.locator("#filters-head th").nth(2).getAttribute("aria-sort"), "descending");
  await page.keyboard.press("Space");
  assert.equal(await page.locator("#filters-head th").nth(2).getAttribute("aria-sort"), "ascending");
  await tabTo("a filter", (at) => at.text === "members");
  // New samples do not move the focus.
  await page.waitForTimeout(1500);
  assert.equal((await focused()).text, "members");
  await page.keyboard.press("Enter");
  await eventually("the heading of its details", async () => (await focused()).id === "detail-title");
  await tabTo("the item", (at) => at.id === "try-item");
  await page.keyboard.type("item3");
  await page.keyboard.press("Enter");
  await eventually("the answer", async () => /maybe present/.test(await page.locator("#try-answer").textContent()));
  await page.keyboard.press("Escape");
  assert.equal((await focused()).text, "members");
  await tabTo("the calculator", (at) => at.id === "plan-capacity");
  await page.keyboard.press("ControlOrMeta+a");
  await page.keyboard.type("2.5M");
  await page.keyboard.press("Tab");
  await page.keyboard.press("ControlOrMeta+a");
  await page.keyboard.type("0.1%");
  const plan = redis(site.port, "BF.PLAN", 0.001, 2500000);
  // The answer is in a live region, which screen readers announce.
  await eventually("the answer", async () => (await page.locator("[role=status]#plan-answer").textContent()).includes(`${grouped(plan.Size)} bytes`));
  await page.keyboard.press("ControlOrMeta+a");
  await page.keyboard.type("200%");
  await eventually("the refusal", async () => /error rate must be/i.test(await page.locator("#plan-answer").textContent()));
  assert(page.faults.splice(0).every((fault) => fault.includes("400")));
});

test("every field has a label and every table a header", async (t) => {
  const site = await startSite(t);
  const page = await openPage(t, site);
  await page.getByRole("link", { name: "requests:minute", exact: true }).click();
  await page.locator("#buckets-body tr").first().waitFor();
  const bare = await page.evaluate(() => [...document.querySelectorAll("input, select")].filter((field) => field.labels.length === 0).map((field) => field.id));
  assert.deepEqual(bare, []);
  const charts = await page.evaluate(() => [...document.querySelectorAll("svg")].filter((chart) => !chart.getAttribute("aria-label")).length);
  assert.equal(charts, 0);
  const tables = await page.evaluate(() => [...document.querySelectorAll("table")].map((table) => [Boolean(table.caption), table.querySelectorAll("thead th[scope=col]").length, [...table.tBodies[0].rows].every((line) => line.querySelector("th[scope=row]"))]));
  for (const [caption, heads, rows] of tables) assert(caption && heads > 3 && rows);
  assert.equal(await page.evaluate(() => document.documentElement.lang), "en");
});

test("nothing is animated if reduced motion is preferred", async (t) => {
  const site = await startSite(t);
  const page = await openPage(t, site, { reducedMotion: "reduce" });
  const moving = await page.evaluate(() => [...document.querySelectorAll("*")].filter((part) => {
    const style = getComputedStyle(part);
    return style.transitionDuration !== "0s" || style.animationName !== "none" || style.scrollBehavior === "smooth";
  }).length);
  assert.equal(moving, 0);
});

test("the page reports a lost server and a program that has stopped", async (t) => {
  const site = await startSite(t);
  const page = await openPage(t, site);
  const health = page.locator("[role=status]#state");
  await eventually("a sample", async () => /A sample every/.test(await health.textContent()));
  site.gate.close();
  await eventually("that it is gone", async () => /lost the server|cannot reach/.test(await health.textContent()));
  assert.match(await page.title(), /^offline: \S+:\d+ - bloomgate$/);
  // The last values stay visible.
  assert.equal((await row(page, "coupons")).Items, "500");
  await site.gate.open();
  await eventually("that it is back", async () => /A sample every/.test(await health.textContent()));
  site.program.kill("SIGKILL");
  await eventually("that the program ended", async () => /has stopped/.test(await health.textContent()));
  assert(page.faults.splice(0).every((fault) => fault.includes("ERR_CONNECTION_REFUSED") || fault.includes("ERR_EMPTY_RESPONSE")));
});

test("a page of another site cannot read anything", async (t) => {
  const site = await startSite(t);
  const foreign = createServer((request, response) => response.setHeader("Content-Type", "text/html").end("<title>other</title>"));
  await new Promise((resolve) => foreign.listen(0, "127.0.0.1", resolve));
  t.after(() => foreign.close());
  const page = await site.browser.newPage();
  // By address and by name, which the browser treats as different sites.
  for (const host of ["127.0.0.1", "localhost"]) {
    await page.goto(`http://${host}:${foreign.address().port}/`);
    const results = await page.evaluate(async (address) => {
      const tries = [
        () => fetch(`${address}api/state`, { headers: { "X-Bloomgate": "page" } }),
        () => fetch(`${address}api/state`),
        () => fetch(`${address}metrics`),
        () => fetch(`${address}metrics`, { mode: "no-cors" }),
        () => fetch(`${address}api/exists?key=6f&item=61`, { method: "POST", mode: "no-cors" }),
      ];
      const outcomes = await Promise.all(tries.map((attempt) => attempt().then((answer) => `${answer.type} ${answer.status}`, () => "refused")));
      const load = (name, attribute, path) =>
        new Promise((resolve) => {
          const part = document.createElement(name);
          part.onload = () => resolve(`${name} loaded`);
          part.onerror = () => resolve("refused");
          part[attribute] = `${address}${path}`;
          document.body.append(part);
        });
      outcomes.push(await load("script", "src", "page.js"), await load("img", "src", "icon.svg"));
      const frame = document.createElement("iframe");
      frame.src = address;
      document.body.append(frame);
      await new Promise((resolve) => (frame.onload = resolve));
      return outcomes;
    }, site.address);
    assert(results.every((outcome) => outcome === "refused"), `${results}`);
    const framed = page.frames()[1];
    assert.equal(await framed.locator("#filters-body").count().catch(() => 0), 0);
  }
  // A link to the page works.
  await page.evaluate((address) => { location.href = address; }, site.address);
  await page.locator("#filters-body tr").first().waitFor();
});

// Takes the screenshots of the documentation if BLOOMGATE_PICTURES names a folder.
test("screenshots for the documentation", { skip: process.env.BLOOMGATE_PICTURES ? false : "BLOOMGATE_PICTURES is not set" }, async (t) => {
  const folder = process.env.BLOOMGATE_PICTURES;
  const site = await startSite(t, { interval: 1 });
  const some = (number, of) => Array.from({ length: number }, () => `item${Math.floor(Math.random() * of)}`);
  for (const begun = Date.now(); Date.now() - begun < 20_000; ) {
    redis(site.port, "BF.MADD", "orders", ...some(4 + 8 * Math.random(), 1e6));
    redis(site.port, "BF.MADD", "requests:minute", ...some(3, 1e6));
    redis(site.port, "BF.MEXISTS", "orders", ...some(20 + 20 * Math.random(), 30_000));
    for (const item of some(3, 1300)) {
      const [answer, token] = redis(site.port, "BF.FETCH", "members", item, `cache:${item}`);
      if (answer === "load") redis(site.port, "BF.FILL", "members", item, `cache:${item}`, token, "VALUE", "a row", "EX", 60);
    }
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
  const desk = await openPage(t, site, { viewport: { width: 1040, height: 1130 } });
  await desk.screenshot({ path: join(folder, "web-desktop.png") });
  const phone = await openPage(t, site, { viewport: { width: 390, height: 844 }, colorScheme: "dark", reducedMotion: "reduce" });
  await phone.getByRole("link", { name: "requests:minute", exact: true }).click();
  await eventually("its details", async () => (await phone.locator("#layers-body tr").count()) > 0);
  await phone.screenshot({ path: join(folder, "web-phone.png") });
});
