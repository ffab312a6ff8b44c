// The sizing calculator. It updates while the user types, shortly after the last key press.

import { ask } from "./asking.js";
import { chartPlace, lineChart } from "./charts.js";
import { byId, element, terms } from "./dom.js";
import { bytes, count, percent } from "./words.js";

const DELAY_MS = 300;

let timer = 0;
let requests = 0;
let answered = null;

export function startCalculator() {
  const form = byId("plan");
  form.addEventListener("input", () => {
    fitKind();
    clearTimeout(timer);
    timer = setTimeout(calculate, DELAY_MS);
  });
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    clearTimeout(timer);
    calculate();
  });
  fitKind();
  calculate();
}

// Shows the fields for the selected kind.
function fitKind() {
  const kind = byId("plan-kind").value;
  for (const place of byId("plan").querySelectorAll("[data-for]")) place.hidden = !place.dataset.for.split(" ").includes(kind);
}

const isShown = (field) => !field.closest("[hidden]");

function words() {
  const text = (id) => (isShown(byId(id)) ? byId(id).value.trim() : "");
  const said = {
    rate: text("plan-rate"),
    capacity: text("plan-capacity"),
    items: text("plan-items"),
    kind: byId("plan-kind").value,
    expansion: text("plan-expansion"),
    window: text("plan-window"),
    buckets: text("plan-buckets"),
    sliding: isShown(byId("plan-sliding")) && byId("plan-sliding").checked ? "1" : "",
    hash: text("plan-hash"),
    layout: text("plan-layout"),
  };
  return Object.fromEntries(Object.entries(said).filter(([, word]) => word !== ""));
}

async function calculate() {
  const number = ++requests;
  const answer = await ask("plan", words());
  // The user may have typed more in the meantime.
  if (number !== requests) return;
  answered = answer.error ? null : answer;
  byId("plan-charts").hidden = answered === null;
  const place = byId("plan-answer");
  if (answer.error) {
    place.replaceChildren(element("p", { class: "notice" }, `${answer.error[0].toUpperCase()}${answer.error.slice(1)}.`.replace("..", ".")));
    return;
  }
  const list = element("dl", { class: "tiles" });
  terms(list, [
    ["Memory", bytes(answer.size), `${count(answer.size)} bytes`],
    ["Bits per item", answer.bits_per_item.toFixed(2)],
    ["Room for", count(answer.capacity), "items"],
    ["Layers", count(answer.layers.length), answer.layers.length > 1 ? "each lookup checks all of them" : ""],
    ["False positives", percent(answer.rate), "at most, when full"],
  ]);
  place.replaceChildren(list, element("p", { class: "command" }, element("code", {}, answer.command)));
  drawPlan();
}

// Draws the curves for the current width.
export function drawPlan() {
  if (!answered) return;
  const { by_items: items, by_rate: rates, expected_items: expected } = answered;
  const [byItems, byRate] = ["items", "rates"].map((id) => chartPlace(byId("plan-charts"), id));
  lineChart(byItems, {
    name: "Memory by items",
    xs: items.items,
    xFormat: count,
    lines: [
      { name: "this filter", ys: items.grown },
      { name: "one reserved for them", ys: items.reserved },
    ],
    yFormat: bytes,
    base: 1024,
    logarithmic: { x: true, y: true },
    mark: { x: expected, text: "" },
  });
  // From the highest rate, which takes the least memory, to the lowest.
  lineChart(byRate, {
    name: "Memory by false positive rate",
    xs: rates.rates.map((rate) => 1 / rate),
    xFormat: (number) => percent(1 / number),
    lines: [{ ys: rates.sizes }],
    yFormat: bytes,
    base: 1024,
    logarithmic: { x: true },
    mark: { x: 1 / answered.rate, text: `at ${percent(answered.rate)}: ${bytes(answered.size)}` },
  });
}
