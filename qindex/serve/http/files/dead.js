// Dead letters of all queues by where and why they died, and back to there.

import { get, name, post } from "./api.js";
import { confirm } from "./dialog.js";
import { button, h, replace, table } from "./dom.js";
import { queueLink } from "./queues.js";
import { count, plain } from "./words.js";

const WHY = { rejected: "by a consumer", expired: "time to live was over", maxlen: "the queue was full", delivery_limit: "delivered too often", retries: "gmq: tried too often" };

export function dead() {
  const place = h("div", {});
  const element = h("div", {}, h("h1", {}, "Dead letters"),
    h("p", { class: "soft" }, "By queue and reason, in the queues that dead-letter exchanges lead to. Of each queue the first 2,000 messages are looked at, and the row says so."), place);

  async function refresh() {
    const found = await get("dead");
    replace(place, table([
      { text: "died in", kind: "name" }, { text: "why" }, { text: "messages", right: true }, { text: "now in", kind: "name" }, { text: "" },
    ], found.items.map((row) => [
      row.origin ? (row.origin_is_there ? queueLink(row.vhost, row.origin) : plain(row.origin)) : h("span", { class: "soft" }, "no dead letter"),
      row.reason ? [plain(row.reason), h("span", { class: "soft" }, WHY[row.reason] ? ` – ${WHY[row.reason]}` : "")] : "–",
      [count(row.count), row.looked < row.ready ? h("span", { class: "soft" }, ` of the first ${count(row.looked)} of ${count(row.ready)}`) : null],
      queueLink(row.vhost, row.queue),
      row.origin && row.origin_is_there && row.origin !== row.queue
        ? button("Send back", () => sendBack(row).then((done) => done && refresh()), { "data-key": `back ${row.queue} ${row.origin} ${row.reason}`, "aria-label": `Send back what was ${plain(row.reason)} in ${plain(row.origin)}` })
        : null,
    ]), { caption: "Dead letters", empty: "There are no dead letters that you may see." }));
  }
  return { element, refresh };
}

function sendBack(row) {
  return confirm({
    title: "Send back dead letters",
    text: `Move all messages in ${plain(row.queue)} that died in ${plain(row.origin)} (${plain(row.reason)}) back to it. They are delivered there again, with the headers that they have now. Up to 100,000 go at once.`,
    verb: "Send back",
    act: () => post(`dead/${name(row.vhost)}/return`, { queue: row.queue, origin: row.origin, reason: row.reason })
      .then(({ done, left, more }) => `${count(done)} went back to ${plain(row.origin)}${left ? `; ${count(left)} had left` : ""}.${more ? " There may be more: send back again." : ""}`),
  });
}
