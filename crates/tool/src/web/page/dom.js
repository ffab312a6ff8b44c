// Creates elements. Text is never parsed as markup, whatever the name of a key is.

export const byId = (id) => document.getElementById(id);

// element("td", { class: "number" }, "12", child): attributes that are null or false are omitted.
export function element(name, attributes = {}, ...children) {
  return furnish(document.createElement(name), attributes, children);
}

export function drawn(name, attributes = {}, ...children) {
  return furnish(document.createElementNS("http://www.w3.org/2000/svg", name), attributes, children);
}

function furnish(made, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== null && value !== undefined && value !== false) made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}

// Sets a text only if it changes, so that a selection is kept and screen readers do not repeat it.
export function say(place, text) {
  if (place.textContent !== text) place.textContent = text;
}

// Fills a list of terms, each a name, a text and optionally a remark. Existing elements are reused.
export function terms(list, pairs) {
  const wanted = pairs.filter((pair) => pair[1] !== null);
  while (list.children.length > wanted.length) list.lastElementChild.remove();
  wanted.forEach(([name, text, remark], index) => {
    let place = list.children[index];
    if (!place) {
      place = element("div", {}, element("dt"), element("dd", {}, element("span"), element("small")));
      list.append(place);
    }
    const [term, value] = place.children;
    say(term, name);
    say(value.firstElementChild, text);
    say(value.lastElementChild, remark ?? "");
  });
}

// Shows a share as a bar and as a figure.
export function fillCell(cell, share, text, isAlarming = false) {
  if (!cell.firstElementChild) {
    cell.append(element("div", { class: "fill" }, element("span", { class: "track", "aria-hidden": "true" }, element("span")), element("span", { class: "figure" })));
  }
  const fill = cell.firstElementChild;
  fill.classList.toggle("is-full", isAlarming);
  fill.firstElementChild.firstElementChild.style.width = `${Math.min(100, Math.max(0, share * 100))}%`;
  say(fill.lastElementChild, text);
}
