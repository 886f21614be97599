// Lines over time, as SVG: drawn anew at the width that there is. Each line has a colour and a dash.

import { h, svg } from "./dom.js";

const HEIGHT = 132;
const LEFT = 48;
const BOTTOM = 18;
const TOP = 8;

/** A chart that update() draws: points are [seconds since 1970, value of each line]. */
export function chart({ title, lines, show }) {
  const legend = h("p", { class: "legend" });
  const picture = svg("svg", { role: "img", height: HEIGHT, width: "100%" });
  const told = h("p", { class: "told soft", "aria-hidden": "true" });
  const element = h("figure", { class: "chart" }, h("figcaption", {}, h("h2", {}, title), legend), picture, told);
  let points = [];

  function draw() {
    const width = Math.max(240, picture.clientWidth || element.clientWidth || 480);
    const right = width - 6;
    const last = points.length ? points[points.length - 1] : [0, ...lines.map(() => 0)];
    legend.replaceChildren(...lines.map((line, at) => h("span", { class: `line-${at}` },
      key(at), `${line} `, h("b", {}, show(last[at + 1])))));
    picture.setAttribute("viewBox", `0 0 ${width} ${HEIGHT}`);
    picture.setAttribute("aria-label", `${title}: ${lines.map((line, at) => `${line} ${show(last[at + 1])}`).join(", ")}`);
    if (points.length < 2) {
      picture.replaceChildren(svg("text", { x: LEFT, y: HEIGHT / 2, class: "axis" }, "The first figures come in some seconds."));
      return;
    }
    const from = points[0][0];
    const span = last[0] - from || 1;
    const most = niceMax(Math.max(...points.flatMap((point) => point.slice(1)), 0));
    const x = (at) => LEFT + ((at - from) / span) * (right - LEFT);
    const y = (value) => TOP + (1 - value / most) * (HEIGHT - TOP - BOTTOM);
    const grid = [0, 0.5, 1].map((share) => [
      svg("line", { x1: LEFT, x2: right, y1: y(most * share), y2: y(most * share), class: "grid" }),
      svg("text", { x: LEFT - 6, y: y(most * share) + 4, "text-anchor": "end", class: "axis" }, show(most * share)),
    ]);
    const paths = lines.map((_, at) => svg("path", { class: `line line-${at}`,
      d: points.map((point, place) => `${place ? "L" : "M"}${x(point[0]).toFixed(1)} ${y(point[at + 1]).toFixed(1)}`).join("") }));
    const cursor = svg("line", { y1: TOP, y2: HEIGHT - BOTTOM, x1: LEFT, x2: LEFT, class: "cursor", visibility: "hidden" });
    picture.replaceChildren(...grid.flat(), ...paths, cursor,
      svg("text", { x: LEFT, y: HEIGHT - 4, class: "axis" }, clock(from)),
      svg("text", { x: right, y: HEIGHT - 4, "text-anchor": "end", class: "axis" }, clock(last[0])));
    picture.onpointermove = (event) => {
      const at = from + ((event.offsetX - LEFT) / (right - LEFT)) * span;
      const near = points.reduce((best, point) => (Math.abs(point[0] - at) < Math.abs(best[0] - at) ? point : best));
      cursor.setAttribute("visibility", "visible");
      cursor.setAttribute("x1", x(near[0]));
      cursor.setAttribute("x2", x(near[0]));
      told.textContent = `${clock(near[0])}  ${lines.map((line, place) => `${line} ${show(near[place + 1])}`).join("  ")}`;
    };
    picture.onpointerleave = () => {
      cursor.setAttribute("visibility", "hidden");
      told.textContent = "";
    };
  }

  new ResizeObserver(draw).observe(element);
  return { element, update(found) { points = found; draw(); } };
}

function key(at) {
  return svg("svg", { width: 18, height: 8, "aria-hidden": "true" }, svg("path", { d: "M0 4H18", class: `line line-${at}` }));
}

function niceMax(value) {
  if (value <= 4) return 4;
  const size = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 4, 5, 10].map((each) => each * size).find((each) => each >= value);
}

function clock(at) {
  return new Date(at * 1000).toLocaleTimeString("en-GB");
}

/** Bars with names below them: rows are {from, to, label, value}. */
export function bars({ title, rows, show }) {
  const most = Math.max(...rows.map((row) => row.value), 1);
  const lines = rows.map((row) => h("li", {},
    h("span", { class: "label" }, row.label),
    h("span", { class: "track", "aria-hidden": "true" }, bar(row.value / most)),
    h("span", { class: "value" }, show(row.value))));
  return h("section", {}, title ? h("h2", {}, title) : null, h("ul", { class: "bars" }, lines));
}

function bar(share) {
  return svg("svg", { height: 10, width: "100%", preserveAspectRatio: "none", viewBox: "0 0 100 10" },
    svg("rect", { width: share ? Math.max(0.5, share * 100).toFixed(2) : 0, height: 10, class: "bar" }));
}
