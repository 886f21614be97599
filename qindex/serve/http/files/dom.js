// Elements, made without markup: every text becomes a text node, so nothing foreign is ever parsed.

const SVG = "http://www.w3.org/2000/svg";

export function h(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

export function svg(tag, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === undefined || value === null || value === false) continue;
    if (typeof value === "function") element.addEventListener(name, value);
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  element.append(...children.flat(3).filter((each) => each !== null && each !== undefined && each !== false));
  return element;
}

/** Put children in place of those that are there; the one that had the focus has it again. */
export function replace(element, ...children) {
  const focused = document.activeElement;
  const key = element.contains(focused) ? focused.getAttribute("data-key") : null;
  element.replaceChildren(...children.flat(3).filter((each) => each));
  if (key === null) return;
  const again = [...element.querySelectorAll("[data-key]")].find((each) => each.getAttribute("data-key") === key);
  if (again) again.focus({ preventScroll: true });
}

export function button(text, onclick, attributes = {}) {
  return h("button", { type: "button", click: onclick, ...attributes }, text);
}

/** A row of names and values. */
export function facts(rows) {
  return h(
    "dl",
    { class: "facts" },
    rows.filter((row) => row).map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value))),
  );
}

/** A table with headings; `columns` are {name, text, right, sort}, rows are lists of cells. */
export function table(columns, rows, { caption, onsort, sort, reverse, empty, keys } = {}) {
  const heads = columns.map((column) => {
    const is = sort !== undefined && column.sort === sort;
    const order = is ? (reverse ? "descending" : "ascending") : column.sort && onsort ? "none" : undefined;
    const text = column.sort && onsort
      ? button([column.text, h("span", { class: "order", "aria-hidden": "true" }, is ? (reverse ? "▼" : "▲") : "")],
        () => onsort(column.sort, is ? !reverse : Boolean(column.right)), { class: "sort", "data-key": `sort ${column.sort}` })
      : column.text;
    return h("th", { scope: "col", class: column.right ? "n" : undefined, "aria-sort": order }, text);
  });
  const lines = rows.map((row, at) => h("tr", { "data-row": keys ? keys[at] : undefined },
    row.map((cell, place) => h("td", { class: [columns[place].right ? "n" : "", columns[place].kind || ""].join(" ").trim() || undefined,
      "data-name": typeof columns[place].text === "string" ? columns[place].text : undefined }, cell))));
  if (!rows.length) lines.push(h("tr", {}, h("td", { colspan: columns.length, class: "soft" }, empty || "None.")));
  return h("div", { class: "table", tabindex: "0", role: "region", "aria-label": caption, "data-key": `table ${caption}` },
    h("table", {}, caption ? h("caption", { class: "hidden" }, caption) : null, h("thead", {}, h("tr", {}, heads)), h("tbody", {}, lines)));
}

/** Say something at the bottom of the page for some seconds, also to a screen reader. */
export function say(text, isError = false) {
  const place = document.getElementById("said");
  const note = h("p", { class: isError ? "bad" : "" }, text);
  place.replaceChildren(note);
  setTimeout(() => note.remove(), isError ? 12000 : 5000);
}
