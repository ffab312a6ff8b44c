// One filter: its figures and their history, its buckets and layers, and a form to look up an item.

import { ask } from "./asking.js";
import { chartPlace, lineChart } from "./charts.js";
import { byId, element, fillCell, say, terms } from "./dom.js";
import { focusRow, isFull, isOver, kind, markOpened } from "./filters.js";
import { bytes, clock, count, duration, hexadecimal, moment, perSecond, percent } from "./words.js";

const LAYERS_SHOWN = 50;

// In the page's URL: `#filter=ID` while a filter is open.
const FRAGMENT = "#filter=";

let opened = null;

export function startDetail() {
  byId("detail-close").addEventListener("click", leave);
  byId("detail").addEventListener("keydown", (event) => {
    if (event.key === "Escape") leave();
  });
  addEventListener("hashchange", follow);
  follow();
  byId("try").addEventListener("submit", (event) => {
    event.preventDefault();
    tryItem();
  });
}

// The URL of a filter, for a link.
export const linkTo = (id) => FRAGMENT + id;

// Opens the filter that the URL names, or closes the one that is open.
export function follow() {
  const { hash } = location;
  // The empty key has the empty ID.
  if (hash.startsWith(FRAGMENT)) return open(hash.slice(FRAGMENT.length));
  if (opened !== null) close();
  // Closing moved the section that the browser has scrolled to.
  if (hash.length > 1) byId(hash.slice(1))?.scrollIntoView();
}

async function open(id) {
  opened = id;
  markOpened(id);
  say(byId("try-answer"), "");
  byId("detail-charts").replaceChildren();
  byId("detail").hidden = false;
  await refreshDetail();
  byId("detail-title").focus();
  byId("detail").scrollIntoView();
}

// Closing adds an entry to the browser's history, as opening does.
function leave() {
  history.pushState(null, "", location.pathname);
  close();
}

function close() {
  const id = opened;
  opened = null;
  byId("detail").hidden = true;
  markOpened(null);
  focusRow(id);
}

// Updates the details of the open filter, if there is one.
export async function refreshDetail() {
  const id = opened;
  if (id === null) return;
  const { error, ...filter } = await ask("filter", { key: id });
  if (opened !== id) return;
  const problem = error ?? filter.problem;
  byId("detail-problem").hidden = !problem;
  say(byId("detail-problem"), problem ?? "");
  if (!error) show(filter);
}

function show(filter) {
  say(byId("detail-title"), filter.name === "" ? "(the empty name)" : filter.name);
  if (!filter.kind) return;
  const { window, is_sliding, ttl, deleted } = filter;
  const rate = itemsPerSecond(filter.history);
  const left = filter.is_fixed && rate > 0 && !isFull(filter) ? (filter.capacity - filter.items) / rate : null;
  terms(byId("detail-facts"), [
    ["Kind", kind(filter)],
    ["Items", count(filter.items), `about ${count(filter.items_estimated)}, estimated from the bits`],
    ["New items", perSecond(rate), left === null ? "" : `full in ${duration(left)}`],
    ["Capacity", `${count(filter.capacity)} items`, isFull(filter) ? "full: refuses new items" : `${percent(filter.fill)} full`],
    ["False positives now", percent(filter.rate_now), isOver(filter) ? `above the requested ${percent(filter.rate)}` : `requested: ${percent(filter.rate)}`],
    ["Memory", bytes(filter.size), filter.pending ? `and ${bytes(filter.pending)} of pending adds` : ""],
    ["Layers", count(filter.layers), filter.expansion ? `each ${filter.expansion} times the previous one` : ""],
    ["Hash", filter.hash],
    ["Forgets after", window === null ? null : duration(window), is_sliding ? "since the last add" : ""],
    ["Deleted", deleted === null ? null : count(deleted), `room for ${count(filter.deleted_room)} more`],
    ["Expires", ttl === null ? "never" : `in ${duration(ttl / 1000)}`],
  ]);
  charts(filter);
  buckets(filter);
  layers(filter);
}

// The mean over the last points of the history, or null.
function itemsPerSecond({ time, items }) {
  const [first, last] = [Math.max(0, time.length - 13), time.length - 1];
  const added = items[last] - items[first];
  return last > first && added >= 0 ? (added * 1000) / (time[last] - time[first]) : null;
}

function charts({ history }) {
  const container = byId("detail-charts");
  const draw = (name, values, yFormat, more = {}) => {
    const place = chartPlace(container, name);
    lineChart(place, { name, xs: history.time, xFormat: clock, lines: [{ ys: values }], yFormat, ...more });
  };
  draw("Items", history.items, count, { least: 2 });
  draw("Full", history.fill, percent, { least: 1 });
  draw("False positives", history.rate_now, percent);
  draw("Memory", history.size, bytes, { base: 1024 });
}

function buckets({ all_buckets: all }) {
  byId("detail-buckets").hidden = all.length === 0;
  const most = all.reduce((number, bucket) => Math.max(number, bucket.items), 1);
  const cells = all.map(() => element("td", { class: "share" }));
  const line = (bucket, index) =>
    element(
      "tr",
      {},
      element("th", { scope: "row" }, count(bucket.slot)),
      element("td", { class: "from-tablet" }, bucket.begin === null ? "" : moment(bucket.begin)),
      element("td", {}, bucket.end === null ? (index === all.length - 1 ? "newest" : "") : moment(bucket.end)),
      element("td", { class: "number" }, count(bucket.items)),
      cells[index],
    );
  byId("buckets-body").replaceChildren(...all.map(line));
  const sum = all.reduce((number, bucket) => number + bucket.items, 0) || 1;
  cells.forEach((cell, index) => fillCell(cell, all[index].items / most, percent(all[index].items / sum)));
}

function layers({ all_layers: all }) {
  const shown = all.slice(-LAYERS_SHOWN);
  const note = byId("layers-note");
  note.hidden = shown.length === all.length;
  say(note, `The newest ${LAYERS_SHOWN} of ${count(all.length)}.`);
  const cells = shown.map(() => element("td", { class: "share" }));
  const line = (layer, index) =>
    element(
      "tr",
      {},
      element("th", { scope: "row" }, count(all.length - shown.length + index + 1)),
      element("td", { class: "number" }, count(layer.items)),
      element("td", { class: "number" }, count(layer.capacity)),
      cells[index],
      element("td", { class: "number from-tablet" }, percent(layer.cells)),
      element("td", { class: "number from-tablet" }, count(layer.hashes)),
      element("td", { class: "number" }, bytes(layer.size)),
    );
  byId("layers-body").replaceChildren(...shown.map(line));
  cells.forEach((cell, index) => fillCell(cell, shown[index].items / shown[index].capacity, percent(shown[index].items / shown[index].capacity)));
}

async function tryItem() {
  const written = byId("try-item").value;
  const item = byId("try-form").value === "hex" ? written.replace(/\s/g, "") : hexadecimal(written);
  const place = byId("try-answer");
  const { error, is_in: isIn } = await ask("exists", { key: opened, item });
  const named = written === "" ? "The empty item" : `"${written}"`;
  place.textContent = error ?? (isIn ? `${named}: maybe present (1).` : `${named}: not present (0).`);
}
