// gmq's views: ready queues, buckets, TTR buckets, and one job by its id.

import { get, name } from "./api.js";
import { body } from "./bodies.js";
import { bars } from "./chart.js";
import { facts, h, replace, table } from "./dom.js";
import { spanRows } from "./delayed.js";
import { queueLink } from "./queues.js";
import { count, moment, plain, seconds, several } from "./words.js";

export function gmq({ parts, go }) {
  return parts[1] === "job" ? job(parts[2] || "") : views(go);
}

function views(go) {
  const search = h("input", { type: "search", placeholder: "id of a job", "aria-label": "id of a job", spellcheck: "false", autocomplete: "off" });
  const form = h("form", { class: "tools", submit: (event) => {
    event.preventDefault();
    if (search.value) go(`gmq/job/${name(search.value)}`);
  } }, search, h("button", { type: "submit" }, "Show"));
  const place = h("div", {});
  const element = h("div", {}, h("div", { class: "line" }, h("h1", {}, "gmq"), form), place);

  async function refresh() {
    const found = await get("gmq");
    replace(place,
      h("p", { class: "soft" }, `${several(found.topics, "topic")} in the virtual host ${plain(found.vhost)}; ${several(found.connections, "connection")}; ${several(found.reserved_total, "job")} reserved.`),
      h("div", { class: "pair" },
        bars({ title: "Buckets: jobs that wait for their time", rows: spanRows(found.spans, found.buckets), show: count }),
        bars({ title: "TTR buckets: reserved jobs, by the time they have left", rows: spanRows(found.spans, found.ttr_buckets), show: count })),
      h("section", {}, h("h2", {}, "Ready queues"), table([
        { text: "topic", kind: "name" }, { text: "ready", right: true }, { text: "delayed", right: true }, { text: "reserved", right: true },
      ], found.items.map((row) => [queueLink(found.vhost, row.name), count(row.ready), count(row.delayed), count(row.reserved)]), { caption: "Ready queues", empty: "gmq's clients have pushed nothing yet." })),
      found.reserved.length ? h("section", {}, h("h2", {}, "Reserved"), table([
        { text: "job", kind: "name" }, { text: "topic", kind: "name" }, { text: "tried", right: true }, { text: "ready again in", right: true },
      ], found.reserved.map((row) => [h("a", { href: `#/gmq/job/${name(row.id)}`, "data-key": `job ${row.id}` }, plain(row.id)), plain(row.topic), `${row.deliveries} ×`, seconds(row.seconds)]), { caption: "Reserved jobs" })) : null);
  }
  return { element, refresh };
}

function job(id) {
  const place = h("div", {});
  const element = h("div", {}, h("p", {}, h("a", { href: "#/gmq" }, "← gmq")), h("h1", {}, `Job ${plain(id)}`), place);

  async function refresh() {
    const found = await get(`gmq/jobs/${name(id)}`);
    replace(place, facts([
      ["topic", plain(found.topic)], ["state", found.state],
      found.ttr === null || found.ttr === undefined ? null : ["TTR", `${found.ttr} s`],
      found.delay ? ["delay", `${found.delay} s`] : null,
      found.due_at ? ["runs at", moment(found.due_at)] : null,
      found.seconds === undefined ? null : ["ready again in", seconds(found.seconds)],
      found.deliveries === undefined ? null : ["tried", found.deliveries ? `${found.deliveries} ×` : "never"],
    ]), found.body === undefined ? h("p", { class: "soft" }, "Its body is with its worker.") : body(found));
  }
  return { element, refresh, isStill: true };
}
