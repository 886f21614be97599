// All queues: chosen, sorted and cut into pages by the server.

import { get, name } from "./api.js";
import { button, h, replace, table } from "./dom.js";
import { count, plain, rate } from "./words.js";

const COLUMNS = [
  { text: "queue", sort: "name", kind: "name" },
  { text: "ready", sort: "ready", right: true },
  { text: "unacked", sort: "unacked", right: true },
  { text: "delayed", sort: "delayed", right: true },
  { text: "consumers", sort: "consumers", right: true },
  { text: "published", sort: "published_rate", right: true },
  { text: "delivered", sort: "delivered_rate", right: true },
  { text: "acked", sort: "acked_rate", right: true },
  { text: "state" },
];
const OF_STORE = [...COLUMNS.slice(0, 4), { text: "dead", sort: "dead", right: true }, ...COLUMNS.slice(5)];
const SOME = { "": "all", waiting: "with messages", idle: "without a consumer", held: "paused" };

export function queueLink(vhost, text) {
  return h("a", { href: `#/queue/${name(vhost)}/${name(text)}`, "data-key": `queue ${vhost} ${text}` }, plain(text));
}

export function queues({ who, query, go }) {
  const isStore = who.kind === "store";
  const wanted = new URLSearchParams(query);
  const search = h("input", { type: "search", placeholder: "a part of the name", "aria-label": "a part of the name", spellcheck: "false", autocomplete: "off" });
  search.value = wanted.get("name") || "";
  let pause = 0;
  search.addEventListener("input", () => {
    clearTimeout(pause);
    pause = setTimeout(() => change({ name: search.value, page: "" }), 250);
  });
  const some = isStore ? null : h("select", { "aria-label": "which queues", change: () => change({ some: some.value, page: "" }) },
    Object.entries(SOME).map(([value, text]) => h("option", { value, selected: value === (wanted.get("some") || "") }, text)));
  const rows = h("div", {});
  const foot = h("div", { class: "pages" });
  const element = h("div", {}, h("div", { class: "line" }, h("h1", {}, "Queues"), h("div", { class: "tools" }, search, some)), rows, foot);

  function change(changes) {
    for (const [key, value] of Object.entries(changes)) {
      if (value) wanted.set(key, value);
      else wanted.delete(key);
    }
    history.replaceState(null, "", `#/queues${wanted.size ? `?${wanted}` : ""}`);
    refresh();
  }

  async function refresh() {
    const asked = String(wanted);
    const found = await get(`queues?${asked}`);
    if (asked !== String(wanted)) return;
    const severalVhosts = new Set(found.items.map((row) => row.vhost)).size > 1;
    const sort = wanted.get("sort") || "name";
    replace(rows, table(isStore ? OF_STORE : COLUMNS, found.items.map((row) => [
      [severalVhosts ? h("span", { class: "soft" }, `${plain(row.vhost)} `) : null, queueLink(row.vhost, row.name),
        row.durable ? null : h("small", { class: "tag" }, "in memory"), row.exclusive ? h("small", { class: "tag" }, "exclusive") : null],
      figure(row.ready), figure(row.unacked), figure(row.delayed),
      isStore ? figure(row.dead) : figure(row.consumers),
      speed(row.published_rate), speed(row.delivered_rate), speed(row.acked_rate),
      h("span", { class: row.state === "running" ? "soft" : "warn" }, row.state === "held" ? "paused" : plain(row.state)),
    ]), {
      caption: "Queues", sort, reverse: wanted.get("reverse") === "true", empty: "No such queue.",
      onsort: (by, reverse) => change({ sort: by, reverse: reverse ? "true" : "", page: "" }),
    }));
    const step = (text, page) => button(text, () => change({ page: page > 1 ? String(page) : "" }),
      { disabled: page < 1 || page > found.pages, "data-key": text });
    replace(foot,
      h("span", { class: "soft" }, found.found === found.total ? `${count(found.total)} queues` : `${count(found.found)} of ${count(found.total)} queues`),
      found.pages > 1 ? [step("← before", found.page - 1), h("span", {}, `page ${found.page} of ${found.pages}`), step("after →", found.page + 1)] : null);
  }
  return { element, refresh };
}

function figure(value) {
  return value ? count(value) : h("span", { class: "zero" }, "0");
}

function speed(value) {
  if (value === null || value === undefined) return h("span", { class: "zero" }, "–");
  return value ? rate(value) : h("span", { class: "zero" }, "0");
}
