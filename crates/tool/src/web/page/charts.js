// Small line charts as SVG: an axis of time or of powers of ten, up to four lines that differ in colour and in stroke.

import { drawn, element } from "./dom.js";

const HEIGHT = 130;
const LEFT = 62;
const RIGHT = 6;
const TOP = 8;
const BOTTOM = 20;

// Draws a chart into `place` and replaces the previous one.
//   name      the title
//   xs        increasing numbers; `xFormat` formats one
//   lines     [{ name, ys }]; a null breaks a line
//   yFormat   formats a value
//   logarithmic: { x, y }
//   mark      { x, text }: a point of the first line
//   least     the minimum for the top of the axis
//   base      the base of round numbers: 1024 for bytes
export function lineChart(place, { name, xs, xFormat, lines, yFormat, logarithmic = {}, mark = null, least = 0, base = 10 }) {
  const width = Math.max(240, place.clientWidth || 320);
  const values = lines.flatMap(({ ys }) => ys).filter((y) => y !== null && (!logarithmic.y || y > 0));
  const last = lines.map(({ ys }) => ys.findLast((y) => y !== null));
  const figure = element("figcaption", {}, element("span", { class: "name" }, name));
  if (lines.length > 1) {
    lines.forEach((line, index) => figure.append(element("span", { class: `key key-${index}` }, line.name)));
  } else if (mark) {
    figure.append(element("span", { class: "muted" }, mark.text));
  } else if (last[0] !== undefined) {
    figure.append(element("span", { class: "muted" }, yFormat(last[0])));
  }
  const svg = drawn("svg", { viewBox: `0 0 ${width} ${HEIGHT}`, role: "img", "aria-label": description() });
  place.replaceChildren(figure, svg);
  if (xs.length === 0 || values.length === 0) {
    svg.append(drawn("text", { x: LEFT, y: HEIGHT / 2 }, "nothing yet"));
    return;
  }
  const y = axis(values, logarithmic.y, least, base, HEIGHT - BOTTOM, TOP);
  const xEnds = [xs[0], xs.at(-1)];
  const x = scale(xEnds, logarithmic.x, LEFT, width - RIGHT);
  for (const tick of y.ticks) {
    svg.append(drawn("line", { class: "grid", x1: LEFT, x2: width - RIGHT, y1: y.at(tick), y2: y.at(tick) }));
    svg.append(drawn("text", { x: LEFT - 8, y: y.at(tick) + 4, "text-anchor": "end" }, yFormat(tick)));
  }
  svg.append(drawn("text", { x: LEFT, y: HEIGHT - 4 }, xFormat(xEnds[0])));
  if (xEnds[1] > xEnds[0]) svg.append(drawn("text", { x: width - RIGHT, y: HEIGHT - 4, "text-anchor": "end" }, xFormat(xEnds[1])));
  if (mark && mark.x >= xEnds[0] && mark.x <= xEnds[1]) {
    svg.append(drawn("line", { class: "mark", x1: x(mark.x), x2: x(mark.x), y1: TOP, y2: HEIGHT - BOTTOM }));
  }
  lines.forEach(({ ys }, index) => {
    svg.append(drawn("path", { class: `line line-${index}`, d: path(xs, ys, x, y.at, logarithmic.y) }));
  });
  if (xs.length === 1 && last[0] !== undefined) svg.append(drawn("circle", { class: "dot", cx: x(xs[0]), cy: y.at(last[0]), r: 2.5 }));

  function description() {
    if (values.length === 0) return `${name}: nothing yet`;
    const of = lines.map((line, index) => `${line.name ?? ""} ${last[index] === undefined ? "nothing" : yFormat(last[index])}`.trim());
    const least = values.reduce((a, b) => Math.min(a, b));
    const most = values.reduce((a, b) => Math.max(a, b));
    return `${name}, from ${xFormat(xs[0])} to ${xFormat(xs.at(-1))}: between ${yFormat(least)} and ${yFormat(most)}, at the end ${of.join(", ")}`;
  }
}

function scale([from, to], isLogarithmic, begin, end) {
  const place = isLogarithmic ? Math.log10 : (value) => value;
  const span = place(to) - place(from);
  return (value) => (span === 0 ? begin : begin + ((place(value) - place(from)) / span) * (end - begin));
}

// Returns the axis of values, with round ticks.
function axis(values, isLogarithmic, least, base, bottom, top) {
  const most = values.reduce((a, b) => Math.max(a, b), least);
  if (isLogarithmic) {
    const root = base === 1024 ? 32 : 10;
    const power = (value) => Math.log2(value) / Math.log2(root);
    const low = Math.floor(power(values.reduce((a, b) => Math.min(a, b))));
    const high = Math.max(low + 1, Math.ceil(power(most)));
    const ticks = [];
    for (let at = low; at <= high; at += Math.ceil((high - low) / 3)) ticks.push(root ** at);
    return { ticks, at: scale([root ** low, root ** high], true, bottom, top) };
  }
  const unit = most > 0 ? base ** Math.floor(Math.log(most) / Math.log(base)) : 1;
  const high = most > 0 ? round(most / unit) * unit : 1;
  return { ticks: [0, high / 2, high], at: scale([0, high], false, bottom, top) };
}

// Rounds up to a number that consists of one of the digits 1, 2, 4, 5, 6 or 8 and zeros.
function round(value) {
  const power = 10 ** Math.floor(Math.log10(value));
  const digit = [1, 2, 4, 5, 6, 8, 10].find((candidate) => candidate * power >= value * 0.999999);
  return digit * power;
}

function path(xs, ys, x, y, isLogarithmic) {
  let words = "";
  let isDown = false;
  ys.forEach((value, index) => {
    if (value === null || (isLogarithmic && value <= 0)) {
      isDown = false;
      return;
    }
    words += `${isDown ? "L" : "M"}${x(xs[index]).toFixed(1)} ${y(value).toFixed(1)}`;
    isDown = true;
  });
  return words;
}

// Returns the element for the chart `id` in `container`, and creates it if necessary.
export function chartPlace(container, id) {
  for (const child of container.children) if (child.dataset.chart === id) return child;
  const place = element("figure", { "data-chart": id });
  container.append(place);
  return place;
}
