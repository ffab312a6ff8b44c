// The table of filters, with search, sorting and pages. Rows are updated in place, so that the focused element keeps its focus.

import { byId, element, fillCell, say } from "./dom.js";
import { aboutPercent, bytes, count, counted, percent } from "./words.js";

const ROWS_A_PAGE = 25;

const COLUMNS = [
  { name: "Name", of: (filter) => filter.name, is: "text" },
  { name: "Kind", of: kind, is: "text", class: "from-tablet" },
  { name: "Items", of: (filter) => filter.items, class: "number from-tablet" },
  { name: "Full", of: (filter) => filter.fill, class: "share" },
  { name: "False positives", of: (filter) => filter.rate_now, class: "number" },
  { name: "Requested", of: (filter) => filter.rate, class: "number from-tablet" },
  { name: "Layers", of: (filter) => filter.layers, class: "number from-desktop" },
  { name: "Memory", of: (filter) => filter.size, class: "number" },
];

const sorting = { column: 7, isDescending: true };
let filters = [];
let page = 0;
let opened = null;
let urlOf = null;
const rows = new Map();

// The kind of a filter, with its layout unless that is native.
export function kind(filter) {
  if (!filter.kind) return "";
  const names = { nonscaling: "fixed", scaling: "grows" };
  const layout = filter.layout === "native" ? "" : `, ${filter.layout}`;
  return `${names[filter.kind] ?? filter.kind}${layout}`;
}

// Whether the false positive rate is clearly above the requested one.
export const isOver = (filter) => filter.rate_now > filter.rate * 1.1;

// Whether the filter refuses new items, or soon will.
export const isFull = (filter) => filter.is_fixed && filter.fill >= 1;
const isNearlyFull = (filter) => filter.is_fixed && filter.fill >= 0.9;

// `linkTo` returns the URL of a filter; `follow` opens the filter in the current URL.
export function startTable(linkTo, follow) {
  urlOf = linkTo;
  COLUMNS.forEach((column, index) => {
    const button = element("button", { type: "button" }, column.name, element("span", { class: "arrow", "aria-hidden": "true" }));
    button.addEventListener("click", () => sortBy(index));
    byId("filters-head").append(element("th", { scope: "col", class: column.class }, button));
  });
  byId("search").addEventListener("input", () => {
    page = 0;
    draw();
  });
  byId("page-before").addEventListener("click", () => turn(-1));
  byId("page-after").addEventListener("click", () => turn(1));
  byId("filters-body").addEventListener("click", (event) => {
    // The browser does not navigate to a link to the current URL.
    if (event.target.closest("a")?.hash === location.hash) follow();
  });
}

function sortBy(index) {
  if (sorting.column === index) sorting.isDescending = !sorting.isDescending;
  else Object.assign(sorting, { column: index, isDescending: COLUMNS[index].is !== "text" });
  page = 0;
  draw();
}

function turn(by) {
  page += by;
  draw();
  const [before, after] = [byId("page-before"), byId("page-after")];
  if (before.disabled) after.focus();
  if (after.disabled) before.focus();
}

export function showFilters(state) {
  filters = state.filters;
  const keys = `${count(state.walk.looked_at)} of ${count(state.server.keys)} keys`;
  const note = byId("filters-note");
  const notes = [];
  if (state.left_out > 0) notes.push(`Not watched: ${counted(state.left_out, "more filter")}. Restart with a larger --max, or with a --match for those that matter.`);
  const others = state.other_databases;
  if (others.length > 0 && state.totals.bf_bloom_num_objects > filters.length) notes.push(`Not searched: ${others.length > 1 ? "databases" : "database"} ${others.join(", ")}. Restart with -n to watch another database.`);
  note.hidden = notes.length === 0;
  say(note, notes.join(" "));
  const empty = byId("filters-empty");
  empty.hidden = filters.length > 0;
  say(empty, state.walk.is_complete ? "This database has no filters. BF.RESERVE creates one." : `Looking for filters: ${keys} so far.`);
  byId("filters-table").hidden = filters.length === 0;
  say(byId("filters-walk"), state.walk.is_complete ? "" : `, ${keys} scanned`);
  draw();
}

// Marks the row of the filter whose details are open.
export function markOpened(id) {
  opened = id;
  for (const [key, row] of rows) row.classList.toggle("is-open", key === opened);
}

export function focusRow(id) {
  (rows.get(id)?.querySelector("a") ?? byId("filters")).focus();
}

function draw() {
  const wanted = byId("search").value.toLowerCase();
  const found = filters.filter((filter) => `${filter.name} ${kind(filter)}`.toLowerCase().includes(wanted)).sort(order);
  const pages = Math.max(1, Math.ceil(found.length / ROWS_A_PAGE));
  page = Math.min(Math.max(0, page), pages - 1);
  say(byId("filters-count"), `${found.length === filters.length ? "" : `${count(found.length)} of `}${counted(filters.length, "filter")}`);
  byId("pages").hidden = pages === 1;
  say(byId("page-number"), `Page ${page + 1} of ${pages}`);
  byId("page-before").disabled = page === 0;
  byId("page-after").disabled = page === pages - 1;
  [...byId("filters-head").children].forEach((head, index) => {
    if (index === sorting.column) head.setAttribute("aria-sort", sorting.isDescending ? "descending" : "ascending");
    else head.removeAttribute("aria-sort");
  });
  place(found.slice(page * ROWS_A_PAGE, (page + 1) * ROWS_A_PAGE));
}

function order(one, other) {
  const { of } = COLUMNS[sorting.column];
  const [a, b] = [of(one) ?? "", of(other) ?? ""];
  const way = a < b ? -1 : a > b ? 1 : 0;
  return (sorting.isDescending ? -way : way) || (one.id < other.id ? -1 : 1);
}

function place(shown) {
  const body = byId("filters-body");
  const focused = document.activeElement;
  const ids = new Set(shown.map((filter) => filter.id));
  for (const [id, row] of rows) {
    if (!ids.has(id)) {
      row.remove();
      rows.delete(id);
    }
  }
  shown.forEach((filter, index) => {
    let row = rows.get(filter.id);
    if (!row) {
      row = newRow(filter);
      rows.set(filter.id, row);
    }
    if (body.children[index] !== row) body.insertBefore(row, body.children[index] ?? null);
    fill(row, filter);
  });
  // A row that was moved has lost the focus.
  if (focused !== document.activeElement && focused?.isConnected) focused.focus({ preventScroll: true });
}

function newRow(filter) {
  const cells = COLUMNS.slice(1).map((column) => element("td", { class: column.class }));
  const head = element("th", { scope: "row", class: "name" }, element("a", { href: urlOf(filter.id) }));
  return element("tr", { "data-id": filter.id, class: filter.id === opened ? "is-open" : null }, head, ...cells);
}

function fill(row, filter) {
  const [name, kindCell, items, full, wrong, requested, layers, memory] = row.children;
  say(name.firstElementChild, filter.name === "" ? "(the empty name)" : filter.name);
  if (!filter.kind) {
    say(kindCell, filter.problem ?? "not sampled yet");
    return;
  }
  say(kindCell, kind(filter));
  say(items, count(filter.items));
  fillCell(full, filter.fill, percent(filter.fill), isNearlyFull(filter));
  say(wrong, aboutPercent(filter.rate_now));
  wrong.classList.toggle("over", isOver(filter));
  wrong.title = isOver(filter) ? `above the requested ${percent(filter.rate)}` : "";
  say(requested, percent(filter.rate));
  say(layers, count(filter.layers));
  say(memory, bytes(filter.size));
}
