// One queue: its figures, what can be done with it, and its messages by state.

import { get, name } from "./api.js";
import { deleteQueue, holdQueue, onMessages, publishTo, purgeQueue } from "./actions.js";
import { preview } from "./bodies.js";
import { button, facts, h, replace, table } from "./dom.js";
import { message, shortId } from "./message.js";
import { searchOf } from "./search.js";
import { bytes, count, moment, plain, rate, seconds } from "./words.js";

const LIMIT = 50;
const STATES = { broker: ["ready", "unacked", "delayed", ""], store: ["ready", "unacked", "delayed", "dead", ""] };

export function queue(view) {
  return view.parts[3] ? message(view) : whole(view);
}

function whole({ who, parts, query, go }) {
  const [, vhost, queueName] = parts;
  const path = `queues/${name(vhost)}/${name(queueName)}`;
  const here = `queue/${name(vhost)}/${name(queueName)}`;
  const isStore = who.kind === "store";
  const about = h("div", {});
  const tabs = h("div", { class: "tabs", role: "group", "aria-label": "messages in the state" });
  const list = h("div", {});
  const searchPlace = h("div", {}); // empty for those who may not read
  const search = isStore ? null : searchOf({ query, here, go });
  const element = h("div", {}, about, h("section", {}, h("h2", { class: "hidden" }, "Messages"), searchPlace, tabs, list));
  const kept = search ? search.kept : ""; // of the address: what is searched for
  const chosen = new Set();
  const states = STATES[who.kind];
  const state = states.includes(query.get("state")) ? query.get("state") : "ready";
  const after = query.get("after") || "";
  let last = "";

  async function refresh() {
    const [found, page] = await Promise.all([
      get(path),
      get(`${path}/messages?state=${state}&after=${after}&limit=${LIMIT}&preview=256${search ? search.asked : ""}`).catch((error) => error),
    ]);
    drawAbout(found);
    const news = page instanceof Error ? page.message : JSON.stringify(page);
    drawTabs(found);
    if (news === last) return;
    last = news;
    drawList(found, page);
  }

  function drawAbout(found) {
    const may = (verb) => !isStore && found.may.includes(verb);
    const target = { vhost, name: queueName, path };
    if (may("read") && !search.form.isConnected) searchPlace.append(search.form);
    replace(about,
      h("div", { class: "line" },
        h("h1", {}, plain(queueName), found.state === "running" ? null : h("small", { class: "tag warn" }, found.state === "held" ? "paused" : plain(found.state))),
        h("div", { class: "tools" },
          may("write") ? button("Publish", () => publishTo(target).then(refresh), { "data-key": "publish" }) : null,
          may("configure") ? button(found.state === "held" ? "Resume" : "Pause", () => holdQueue(target, found.state === "held").then(refresh), { "data-key": "hold" }) : null,
          may("read") ? button("Purge", () => purgeQueue(target, found.ready).then(refresh), { "data-key": "purge", class: "danger" }) : null,
          may("configure") ? button("Delete", () => deleteQueue(target, found).then((done) => done && go("queues")), { "data-key": "delete", class: "danger" }) : null)),
      facts([
        ["virtual host", isStore ? null : plain(vhost)],
        ["ready", count(found.ready)], ["unacked", count(found.unacked)], ["delayed", count(found.delayed)],
        ["dead", found.dead === undefined ? null : count(found.dead)],
        ["consumers", found.consumers === undefined ? null : count(found.consumers)],
        ["published", found.published_rate === null ? null : rate(found.published_rate)],
        ["delivered", found.delivered_rate === null ? null : rate(found.delivered_rate)],
        ["acked", found.acked_rate === null ? null : rate(found.acked_rate)],
        ["oldest", found.oldest_seconds === null ? null : `${seconds(found.oldest_seconds)} at least`],
        ["next due", found.next_due_at ? moment(found.next_due_at) : null],
        ["on disk", found.disk_bytes === undefined ? null : bytes(found.disk_bytes)],
        ["kept", found.durable ? "on disk" : "in memory"],
        ...Object.entries(found.arguments || {}).map(([key, value]) => [plain(key), plain(typeof value === "object" ? JSON.stringify(value) : value)]),
        ["bound to", found.bindings === undefined ? null : boundTo(found.bindings)],
        ["damage", found.damage ? h("span", { class: "bad" }, plain(found.damage)) : null],
      ].filter((row) => row[1] !== null)));
  }

  function drawTabs(found) {
    replace(tabs, states.map((each) => h("a", { class: "tab", href: `#/${here}?state=${each}${kept}`, "data-key": `tab ${each}`,
      "aria-current": each === state ? "true" : undefined },
      each || "all", found[each] === undefined ? null : h("span", { class: "soft" }, ` ${count(found[each])}`))));
  }

  function drawList(found, page) {
    if (page instanceof Error) {
      replace(list, h("p", { class: "soft" }, plain(page.message)));
      return;
    }
    const isWhole = state && !kept; // what is found is chosen one by one
    const canChange = !isStore && found.may.includes("read") && state !== "unacked";
    for (const number of [...chosen]) if (!page.items.some((each) => each.number === number)) chosen.delete(number);
    const buttons = h("div", { class: "tools" });
    const target = { vhost, name: queueName, path };
    const act = (verb) => () => onMessages(verb, target, [...chosen], state, found).then((done) => {
      if (done) {
        chosen.clear();
        last = "";
        refresh();
      }
    });
    const drawButtons = () => replace(buttons,
      h("span", { class: "soft" }, chosen.size ? `${count(chosen.size)} chosen:` : isWhole ? `all that are ${state}:` : "choose messages:"),
      ["move", "delay", ...(state === "delayed" || state === "" ? ["ready now"] : []), "delete"].map((verb) => button(verb, act(verb), {
        disabled: !chosen.size && (!isWhole || !page.items.length), "data-key": `act ${verb}`, class: verb === "delete" ? "danger" : undefined })));
    const mark = (each) => h("input", { type: "checkbox", "aria-label": `choose message ${each.number}`, "data-key": `mark ${each.number}`,
      checked: chosen.has(each.number), change: (event) => {
        if (event.target.checked) chosen.add(each.number);
        else chosen.delete(each.number);
        drawButtons();
      } });
    const columns = [
      ...(canChange ? [{ text: h("span", { class: "hidden" }, "chosen") }] : []),
      { text: "message" }, { text: "body", kind: "body" }, { text: "size", right: true }, { text: "delivered", right: true },
      ...(state ? [] : [{ text: "state" }]), ...(state === "ready" || state === "dead" ? [] : [{ text: "due" }]), { text: state === "dead" ? "dead by" : "from" },
    ];
    const rows = page.items.map((each) => [
      ...(canChange ? [mark(each)] : []),
      h("a", { href: `#/${here}/${each.number}`, "data-key": `message ${each.number}` }, shortId(each.number)),
      preview(each), bytes(each.body_bytes), each.deliveries ? `${each.deliveries} ×` : "–",
      ...(state ? [] : [each.state]), ...(state === "ready" || state === "dead" ? [] : [each.due_at ? moment(each.due_at) : "–"]),
      state === "dead" ? plain(each.dead) : plain(each.exchange || each.routing_keys.join(", ")),
    ]);
    drawButtons();
    replace(list, canChange ? buttons : null,
      table(columns, rows, { caption: "Messages", empty: kept ? (page.next === null ? "No message has it." : "None so far.") : found.durable || state !== "unacked" ? "No message in this state." : "What is delivered from a queue in memory is with its consumers, and cannot be looked at." }),
      h("div", { class: "pages" },
        after ? h("a", { href: `#/${here}?state=${state}${kept}` }, "← first") : null,
        page.next === null ? null : h("a", { href: `#/${here}?state=${state}&after=${page.next}${kept}` },
          page.items.length < LIMIT ? "look further →" : "after →")));
  }
  return { element, refresh, isStill: Boolean(kept) };
}

function boundTo(bindings) {
  const found = bindings.filter((each) => each.source);
  if (!found.length) return "its name alone";
  const texts = found.slice(0, 20).map((each) => `${plain(each.source)} (${plain(each.routing_key) || "no key"})`);
  return texts.join(", ") + (found.length > 20 ? `, and ${found.length - 20} more` : "");
}
