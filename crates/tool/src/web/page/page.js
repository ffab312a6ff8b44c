// The page: requests the state at each interval and shows it. Screen readers announce only that the server was lost or is back,
// not each sample.

import { ask } from "./asking.js";
import { drawPlan, startCalculator } from "./calculator.js";
import { chartPlace, lineChart } from "./charts.js";
import { follow, linkTo, refreshDetail, startDetail } from "./detail.js";
import { byId, say, terms } from "./dom.js";
import { showFilters, startTable } from "./filters.js";
import { bytes, clock, count, counted, duration, percent, perSecond } from "./words.js";

const INTERVAL_MIN = 1000;
const INTERVAL_MAX = 30_000;
const PREFIX = "bf_bloom_";

let timer = 0;
let state = null;

async function refresh() {
  clearTimeout(timer);
  const answer = await ask("state");
  showHealth(answer);
  if (!answer.error) {
    state = answer;
    if (state.samples > 0) {
      showServer();
      showOverview();
      showGuard();
      showFilters(state);
      await refreshDetail();
    }
  }
  const wanted = Math.min(Math.max(state?.interval ?? 0, INTERVAL_MIN), INTERVAL_MAX);
  if (!document.hidden) timer = setTimeout(refresh, wanted);
}

function showHealth({ error, name = state?.name, problem, silence, samples, sampled, interval, now }) {
  const place = byId("state");
  const isDown = Boolean(error || problem || silence);
  const isWaiting = !isDown && samples === 0;
  place.classList.toggle("is-down", isDown);
  place.classList.toggle("is-up", !isDown && !isWaiting);
  document.title = `${isDown ? "offline: " : ""}${name ? `${name} - ` : ""}bloomgate`;
  if (error) say(place, error);
  else if (problem) say(place, `Since ${clock(problem.since)}: ${problem.text}`);
  else if (silence) say(place, `The server has not answered since ${clock(now - silence)}`);
  else if (isWaiting) say(place, "Waiting for the first sample");
  else say(place, `A sample every ${duration(interval / 1000)}`);
  place.title = samples > 0 ? `the last one at ${clock(sampled)}` : "";
}

function showServer() {
  const { server, nodes } = state;
  const where = nodes.length > 1 ? `${nodes.length} nodes, first ${nodes[0]}` : nodes[0];
  say(byId("server"), `${where}, ${server.name} ${server.version}, module ${server.module}, up ${duration(server.uptime ?? 0)}`);
}

// The increase of a counter of INFO per second, between the last two samples.
const rate = (name) => perSecond(state.rates?.[PREFIX + name] ?? 0);

// The history of a counter as rates per second. If it decreased, the server was restarted.
function rates(name) {
  const { time } = state.history;
  const values = state.history[PREFIX + name];
  return values.map((value, index) => {
    const before = values[index - 1];
    if (index === 0 || value < before) return null;
    return ((value - before) * 1000) / Math.max(1, time[index] - time[index - 1]);
  });
}

function draw(container, name, lines, yFormat, more = {}) {
  const { time } = state.history;
  // The first point has no predecessor to compute a rate from.
  const from = lines.every(({ ys }) => ys[0] === null) ? 1 : 0;
  lineChart(chartPlace(byId(container), name), {
    name,
    xs: time.slice(from),
    xFormat: clock,
    lines: lines.map((line) => ({ name: line.name, ys: line.ys.slice(from) })),
    yFormat,
    ...more,
  });
}

function showOverview() {
  const total = (name) => state.totals[PREFIX + name];
  const history = (name) => state.history[PREFIX + name];
  const { maxmemory, used_memory: used, policy, keys } = state.server;
  const [lookups, positives] = [total("lookups"), total("positives")];
  terms(byId("tiles"), [
    ["Filters", count(total("num_objects")), `${counted(total("num_filters_across_objects"), "layer")}, ${counted(keys, "key")}`],
    ["Items", count(total("num_items_across_objects")), `room for ${count(total("capacity_across_objects"))}`],
    ["Memory of filters", bytes(total("total_memory_bytes")), `of ${bytes(used)} used${maxmemory ? `, ${bytes(maxmemory)} allowed, ${policy}` : ""}`],
    ["Adds", rate("adds"), `${count(total("adds"))} since the start, ${count(total("new_items"))} new`],
    ["Lookups", rate("lookups"), `${count(lookups)} since the start`],
    ["Found", lookups ? percent(positives / lookups) : "no lookups", lookups ? `${count(positives)} of the lookups` : ""],
    ["Pending adds", total("pending_bytes") ? bytes(total("pending_bytes")) : null, "until the save has ended"],
  ]);
  draw("overview-charts", "Items", [{ ys: history("num_items_across_objects") }], count, { least: 2 });
  draw("overview-charts", "Memory of filters", [{ ys: history("total_memory_bytes") }], bytes, { base: 1024 });
  draw("overview-charts", "Adds per second", [{ name: "all", ys: rates("adds") }, { name: "new", ys: rates("new_items") }], perSecond);
  draw("overview-charts", "Lookups per second", [{ name: "all", ys: rates("lookups") }, { name: "found", ys: rates("positives") }], perSecond);
}

function showGuard() {
  const total = (name) => state.totals[PREFIX + name];
  const answers = ["absent", "hit", "load", "wait"];
  const fetches = [...answers, "stale"].reduce((sum, answer) => sum + total(`fetches_${answer}`), 0);
  const isUsed = fetches + total("fills") + total("leases") + total("nones") > 0;
  byId("guard-used").hidden = !isUsed;
  byId("guard-none").hidden = isUsed;
  if (!isUsed) return;
  const reply = (name) => {
    const number = total(`fetches_${name}`);
    return [rate(`fetches_${name}`), `${count(number)} since the start${fetches ? `, ${percent(number / fetches)}` : ""}`];
  };
  terms(byId("guard-tiles"), [
    ["BF.FETCH", count(fetches), "since the start"],
    ["Absent", ...reply("absent")],
    ["Hit", ...reply("hit")],
    ["Stale", ...reply("stale")],
    ["Load", ...reply("load")],
    ["Wait", ...reply("wait")],
    ["Unguarded", ...reply("unguarded")],
    ["BF.FILL", count(total("fills")), `${count(total("fills_refused"))} refused`],
    ["Leases now", count(total("leases")), `${counted(total("waiting"), "client")} waiting`],
    ["Remembered misses", count(total("nones")), "now"],
  ]);
  const history = (name) => state.history[PREFIX + name];
  draw("guard-charts", "Replies per second", answers.map((answer) => ({ name: answer, ys: rates(`fetches_${answer}`) })), perSecond);
  draw("guard-charts", "Now", [{ name: "leases", ys: history("leases") }, { name: "waiting", ys: history("waiting") }, { name: "misses", ys: history("nones") }], count, { least: 2 });
}

startTable(linkTo, follow);
startDetail();
startCalculator();
refresh();
document.addEventListener("visibilitychange", () => {
  if (!document.hidden) refresh();
});
let resized = 0;
window.addEventListener("resize", () => {
  clearTimeout(resized);
  resized = setTimeout(() => {
    drawPlan();
    if (state?.samples > 0) {
      showOverview();
      showGuard();
    }
  }, 150);
});
