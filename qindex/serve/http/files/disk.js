// What takes room on the disk, and which queues keep which file. Read on demand: it reads the index.

import { get } from "./api.js";
import { bars } from "./chart.js";
import { button, facts, h, replace, svg, table } from "./dom.js";
import { bytes, count, plain } from "./words.js";

const KINDS = { messages: "message files", segment: "segments", journal: "journals and the rest", history: "history", commits: "commit logs" };

export function disk() {
  const place = h("div", {}, h("p", { class: "soft" }, "Reading the index …"));
  const again = button("Read again", () => refresh(), { "data-key": "again" });
  const element = h("div", {}, h("div", { class: "line" }, h("h1", {}, "Disk"), again), place);

  async function refresh() {
    again.disabled = true;
    try {
      const found = await get("disk");
      replace(place, found.stores.length ? found.stores.map(store) : h("p", { class: "soft" }, "Everything is in memory."));
    } finally {
      again.disabled = false;
    }
  }
  return { element, refresh, isStill: true };
}

function store(found) {
  const kinds = Object.entries(found.kinds);
  const total = kinds.reduce((sum, [, kind]) => sum + kind.size, 0);
  const live = kinds.reduce((sum, [, kind]) => sum + kind.live, 0);
  return h("section", {},
    h("h2", {}, plain(found.name)),
    facts([["files", count(found.file_count)], ["bytes", bytes(total)], [found.unread ? "alive, as far as it could be read" : "alive", bytes(live)]]),
    h("p", { class: "soft" }, plain(found.advice)),
    bars({ rows: kinds.map(([kind, its]) => ({ label: `${KINDS[kind] || kind} (${count(its.files)})`, value: its.size })), show: bytes }),
    h("section", {}, h("h2", {}, "Files"), table([
      { text: "file", kind: "name" }, { text: "kind" }, { text: "size", right: true }, { text: "alive", right: true }, { text: "garbage", right: true }, { text: "room", right: true }, { text: "" }, { text: "kept by", kind: "long" },
    ], found.files.map((file) => [h("span", { title: plain(file.where) }, plain(file.name)), file.kind, bytes(file.size),
      ...(file.kind === "journal" ? ["–", "–", "–", null] : [bytes(file.live), file.garbage === null ? "not known" : bytes(file.garbage), bytes(file.room), share(file)]),
      file.kind === "journal" || !file.holders.length ? plain(file.queue || (found.unread ? "not known" : "the store")) : file.holders.map((each) => `${plain(each.queue)} (${count(each.messages)})`).join(", ") + (file.holder_count > file.holders.length ? ` and ${count(file.holder_count - file.holders.length)} more` : ""),
    ]), { caption: `Files of ${plain(found.name)}` }), found.file_count > found.files.length ? h("p", { class: "soft" }, `The largest ${count(found.files.length)} of ${count(found.file_count)}.`) : null),
    h("section", {}, h("h2", {}, "Queues"), table([
      { text: "queue", kind: "name" }, { text: "messages", right: true }, { text: "index", right: true }, { text: "of it alive", right: true }, { text: "bodies in message files", right: true },
    ], found.queues.map((queue) => [plain(queue.name), count(queue.messages), bytes(queue.index), bytes(queue.index_live), bytes(queue.bodies)]), { caption: `Queues of ${plain(found.name)}` }),
    found.queue_count > found.queues.length ? h("p", { class: "soft" }, `The largest ${count(found.queues.length)} of ${count(found.queue_count)}.`) : null));
}

function share(file) {
  const part = file.size ? (100 * file.live) / file.size : 0;
  return svg("svg", { width: 60, height: 10, role: "img", "aria-label": `${Math.round(part)} percent alive` },
    svg("rect", { width: 60, height: 10, class: "empty" }), svg("rect", { width: ((60 * part) / 100).toFixed(1), height: 10, class: "bar" }));
}
