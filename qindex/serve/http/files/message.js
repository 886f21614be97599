// One message: what it has, its body, what can be done with it, and its history.

import { get, name } from "./api.js";
import { onMessages } from "./actions.js";
import { body } from "./bodies.js";
import { button, facts, h, replace, table } from "./dom.js";
import { count, moment, plain } from "./words.js";

/** Numbers of delayed messages and of priorities are long: their lane, and their count in it. */
export function shortId(number) {
  const big = BigInt(number);
  const lane = big >> 52n;
  return lane ? `${lane}:${big & ((1n << 52n) - 1n)}` : number;
}

export function message({ who, parts, go }) {
  const [, vhost, queueName, number] = parts;
  const path = `queues/${name(vhost)}/${name(queueName)}`;
  const back = `queue/${name(vhost)}/${name(queueName)}`;
  const place = h("div", {});
  const element = h("div", {}, h("p", {}, h("a", { href: `#/${back}` }, "← ", plain(queueName))), place);

  async function refresh() {
    const [found, its] = await Promise.all([get(`${path}/messages/${number}?preview=262144`), get(path)]);
    const properties = { ...found.properties };
    const headers = properties.headers || found.headers || {};
    delete properties.headers;
    const target = { vhost, name: queueName, path };
    const canChange = who.kind === "broker" && its.may.includes("read") && found.state !== "unacked";
    const act = (verb) => button(verb, () => onMessages(verb, target, [number], found.state, its).then((done) => done && go(back)),
      { class: verb === "delete" ? "danger" : undefined, "data-key": verb });
    replace(place,
      h("div", { class: "line" }, h("h1", {}, `Message ${shortId(number)}`),
        canChange ? h("div", { class: "tools" }, ["move", "delay", ...(found.state === "delayed" ? ["ready now"] : []), "delete"].map(act)) : null),
      facts([
        ["state", found.state], ["delivered", found.deliveries ? `${found.deliveries} ×` : "never"],
        ["due", found.due_at ? moment(found.due_at) : null], ["expires", found.expires_at ? moment(found.expires_at) : null],
        ["exchange", found.exchange === undefined ? null : plain(found.exchange) || "(default)"],
        ["routing key", found.routing_keys ? found.routing_keys.map(plain).join(", ") : null],
        ["priority", String(found.priority)], ["persistent", found.persistent ? "yes" : "no"],
        ["dead by", found.dead ? plain(found.dead) : null],
        ...Object.entries(properties).map(([key, value]) => [plain(key).replaceAll("_", " "), plain(value)]),
      ].filter((row) => row[1] !== null)),
      Object.keys(headers).length ? h("section", {}, h("h2", {}, "Headers"), facts(Object.entries(headers).map(([key, value]) =>
        [plain(key), h("code", {}, plain(typeof value === "object" ? JSON.stringify(value, null, 1) : value))]))) : null,
      body(found),
      who.kind === "broker" && its.durable ? history(`${path}/messages/${number}`) : null);
  }
  return { element, refresh, isStill: true };
}

/** What the files tell of it: read when somebody asks, since that reads whole files. */
function history(path) {
  const place = h("div", {}, button("Show what the files tell of it", show, { "data-key": "history" }));

  async function show() {
    const found = await get(`${path}/history`).catch((error) => error);
    if (found instanceof Error) {
      replace(place, h("p", { class: "bad" }, plain(found.message)));
      return;
    }
    replace(place, facts([["now", plain(found.state)]]),
      table([{ text: "record" }, { text: "file", kind: "name" }, { text: "offset", right: true }, { text: "what it says", kind: "long" }],
        found.records.map((each) => [plain(each.record), plain(each.file), count(each.offset), plain(each.text) || "–"]), { caption: "Records about the message" }),
      h("p", { class: "soft" }, "What was flushed to a segment keeps what a message is, and not each event."));
  }
  return h("section", {}, h("h2", {}, "History"), place);
}
