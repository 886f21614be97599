// Connections, channels and consumers, with what they have not acked and for how long.

import { ask, get, name } from "./api.js";
import { confirm } from "./dialog.js";
import { button, h, replace, table } from "./dom.js";
import { queueLink } from "./queues.js";
import { bytes, count, plain, seconds, several } from "./words.js";

const KINDS = {
  connections: {
    columns: [
      { text: "connection", sort: "name", kind: "name" }, { text: "client", sort: "user_provided_name" }, { text: "user", sort: "user" }, { text: "virtual host", sort: "vhost" }, { text: "channels", sort: "channels", right: true },
      { text: "unacked", sort: "unacked", right: true }, { text: "received", sort: "recv_oct", right: true }, { text: "sent", sort: "send_oct", right: true }, { text: "state", sort: "state" }, { text: "" },
    ],
    row: (row, refresh) => [plain(row.name), client(row), plain(row.user), plain(row.vhost), count(row.channels), count(row.unacked),
      bytes(row.recv_oct), bytes(row.send_oct), h("span", { class: row.state === "running" ? "soft" : "warn" }, plain(row.state)),
      button("Close", () => close(row).then((done) => done && refresh()), { "data-key": `close ${row.name}`, "aria-label": `Close ${plain(row.name)}` })],
  },
  channels: {
    columns: [
      { text: "channel", sort: "name", kind: "name" }, { text: "user", sort: "user" }, { text: "virtual host", sort: "vhost" }, { text: "prefetch", sort: "prefetch_count", right: true },
      { text: "unacked", sort: "messages_unacknowledged", right: true }, { text: "oldest unacked", sort: "oldest_seconds", right: true }, { text: "confirms" },
    ],
    row: (row) => [plain(row.name), plain(row.user), plain(row.vhost), row.prefetch_count || row.global_prefetch_count || "no limit",
      count(row.messages_unacknowledged), age(row.oldest_seconds), row.confirm ? "yes" : "no"],
  },
  consumers: {
    columns: [
      { text: "consumer", sort: "consumer_tag", kind: "name" }, { text: "queue", kind: "name" }, { text: "channel of" }, { text: "acks" },
      { text: "prefetch", sort: "prefetch_count", right: true }, { text: "priority", sort: "priority", right: true }, { text: "unacked", sort: "unacked", right: true }, { text: "oldest", sort: "channel_oldest_seconds", right: true },
    ],
    row: (row) => [plain(row.consumer_tag), queueLink(row.queue.vhost, row.queue.name), `${plain(row.channel_details.name)} ${plain(row.channel_details.user)}`,
      row.ack_required ? "client" : "automatic", row.prefetch_count || "no limit", row.priority, count(row.unacked), age(row.channel_oldest_seconds)],
  },
};

function client(row) {
  const its = row.client_properties || {};
  const named = row.user_provided_name;
  return [named ? plain(named) : null, h("span", { class: "soft" }, ` ${plain(its.product || "")} ${plain(its.version || "")}`)];
}

function age(value) {
  return value === null ? "–" : value === 0 ? "new" : `≥ ${seconds(value)}`;
}

function close(row) {
  return confirm({
    title: "Close the connection", text: `Close ${plain(row.name)} of ${plain(row.user)}. What it has not acked is delivered to others; most clients connect again.`,
    verb: "Close", isDangerous: true,
    act: () => ask("DELETE", `/api/connections/${name(row.name)}`).then(() => "It is closed."),
  });
}

export function clients({ parts, query }) {
  const kind = KINDS[parts[1]] ? parts[1] : "connections";
  const wanted = new URLSearchParams(query);
  const search = h("input", { type: "search", placeholder: "a part of anything", "aria-label": "a part of anything", spellcheck: "false", autocomplete: "off" });
  search.value = wanted.get("name") || "";
  let pause = 0;
  search.addEventListener("input", () => {
    clearTimeout(pause);
    pause = setTimeout(() => change({ name: search.value, page: "" }), 250);
  });
  const list = h("div", {});
  const foot = h("div", { class: "pages" });
  const tabs = h("div", { class: "tabs", role: "group", "aria-label": "which" }, Object.keys(KINDS).map((each) =>
    h("a", { class: "tab", href: `#/clients/${each}`, "aria-current": each === kind ? "true" : undefined }, each)));
  const element = h("div", {}, h("div", { class: "line" }, h("h1", {}, "Clients"), h("div", { class: "tools" }, search)), tabs, list, foot);

  function change(changes) {
    for (const [key, value] of Object.entries(changes)) {
      if (value) wanted.set(key, value);
      else wanted.delete(key);
    }
    history.replaceState(null, "", `#/clients/${kind}${wanted.size ? `?${wanted}` : ""}`);
    refresh();
  }

  async function refresh() {
    const found = await get(`${kind}?${wanted}`);
    replace(list, table(KINDS[kind].columns, found.items.map((row) => KINDS[kind].row(row, refresh)), {
      caption: kind, sort: wanted.get("sort") || undefined, reverse: wanted.get("reverse") === "true", empty: `No ${kind}.`,
      onsort: (by, reverse) => change({ sort: by, reverse: reverse ? "true" : "", page: "" }),
    }));
    const step = (text, page) => button(text, () => change({ page: String(page) }), { disabled: page < 1 || page > found.pages, "data-key": text });
    replace(foot, h("span", { class: "soft" }, several(found.found, kind.slice(0, -1))),
      found.pages > 1 ? [step("← before", found.page - 1), h("span", {}, `page ${found.page} of ${found.pages}`), step("after →", found.page + 1)] : null);
  }
  return { element, refresh };
}
