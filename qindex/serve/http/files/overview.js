// Rates and depth as they go, and what there is.

import { get } from "./api.js";
import { chart } from "./chart.js";
import { facts, h, replace } from "./dom.js";
import { count, plain, rate, seconds, short } from "./words.js";

const SPAN_SECONDS = 1800;

export function overview({ who }) {
  const rates = chart({ title: "Messages in a second", lines: ["published", "delivered", "acked"], show: (value) => rate(value) });
  const depth = chart({ title: "Messages that wait", lines: ["ready", "unacked", "delayed"], show: short });
  const figures = h("div", { class: "tiles" });
  const node = h("div", {});
  const element = h("div", {}, h("h1", { class: "hidden" }, "Overview"), figures,
    h("div", { class: "pair" }, rates.element, depth.element), node);
  let samples = [];

  async function refresh() {
    const since = samples.length ? samples[samples.length - 1][0] : 0;
    const found = await get(`overview?since=${since}`);
    samples = [...samples, ...found.samples];
    const from = (samples.length ? samples[samples.length - 1][0] : 0) - SPAN_SECONDS;
    samples = samples.filter((sample) => sample[0] >= from);
    depth.update(samples.map(([at, ready, unacked, delayed]) => [at, ready, unacked, delayed]));
    rates.update(ratesOf(samples));
    const totals = found.queue_totals;
    const objects = found.object_totals;
    const delayed = samples.length ? samples[samples.length - 1][3] : 0;
    replace(figures,
      tile("ready", totals.messages_ready, "#/queues?sort=ready&reverse=true"),
      tile("unacked", totals.messages_unacknowledged, "#/queues?sort=unacked&reverse=true"),
      tile("delayed", delayed, "#/delayed"),
      found.dead === undefined ? null : tile("dead letters", found.dead, "#/queues?sort=dead&reverse=true"),
      tile("queues", objects.queues, "#/queues"),
      objects.connections === undefined ? null : tile("connections", objects.connections, "#/clients"),
      objects.consumers === undefined ? null : tile("consumers", objects.consumers, "#/clients/consumers"));
    replace(node, facts([
      [who.kind === "broker" ? "node" : "store", plain(found.node)],
      ["version", found.product_version],
      found.uptime_seconds === undefined ? null : ["up for", seconds(found.uptime_seconds)],
      found.confirms === undefined ? null : ["a confirm survives", found.confirms === "durable" ? "a power cut" : "kill -9"],
      ["virtual hosts", found.vhosts ? found.vhosts.map(plain).join(", ") : undefined],
      ["writer", found.writer_pid === undefined ? undefined : found.writer_pid ? `process ${found.writer_pid}` : "nobody has it open"],
    ].filter((row) => row && row[1] !== undefined)));
  }
  return { element, refresh };
}

function tile(text, value, href) {
  return h("a", { class: "tile", href, "data-key": `tile ${text}` }, h("b", {}, count(value)), h("span", {}, text));
}

function ratesOf(samples) {
  const found = [];
  for (let at = 1; at < samples.length; at++) {
    const [before, now] = [samples[at - 1], samples[at]];
    const span = now[0] - before[0];
    const per = (place) => Math.max(0, (now[place] - before[place]) / span);
    if (span > 0) found.push([now[0], per(4), per(5), per(6)]);
  }
  return found;
}
