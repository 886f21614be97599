// Is it well: findings, the last start, how long syncs take.

import { get } from "./api.js";
import { facts, h, replace, table } from "./dom.js";
import { bytes, count, plain, seconds } from "./words.js";

/** Queues that are not served, each with the reason. */
function section(heading, rows, why, otherwise) {
  return h("section", {}, h("h2", {}, heading), table([{ text: "queue", kind: "name" }, { text: why, kind: "long" }],
    rows.map((each) => [plain(each.queue), plain(each.why || otherwise)]), { caption: heading }));
}

export function health() {
  const place = h("div", {});
  const element = h("div", {}, h("h1", {}, "Health"), place);

  async function refresh() {
    const found = await get("health");
    const damage = found.stores.reduce((sum, store) => sum + store.findings.filter((each) => each.severity !== "note").length, 0);
    const failed = found.stores.filter((store) => store.failed);
    const refused = found.damaged ?? [];
    const down = found.down ?? [];
    const isWell = !damage && !failed.length && !refused.length && !down.length;
    replace(place,
      h("p", { class: isWell ? "verdict good" : "verdict bad" },
        isWell ? "Nothing is damaged, and no sync has failed." : [
          damage ? `${count(damage)} ${damage === 1 ? "place is" : "places are"} damaged. ` : "",
          refused.length ? `${count(refused.length)} ${refused.length === 1 ? "queue is" : "queues are"} not served. ` : "",
          down.length ? `${count(down.length)} ${down.length === 1 ? "virtual host is" : "virtual hosts are"} down. ` : "",
          failed.length ? `A sync has failed in ${failed.map((store) => plain(store.name)).join(", ")}: restart the server, and look at the disk.` : ""]),
      facts([
        found.memory_bytes === undefined ? null : ["memory", bytes(found.memory_bytes)],
        found.descriptors === undefined ? null : ["open descriptors", count(found.descriptors)],
        found.free_bytes === undefined ? null : ["free on the disk", found.disk_size_bytes ? `${bytes(found.free_bytes)} of ${bytes(found.disk_size_bytes)}` : bytes(found.free_bytes)],
        found.pid === undefined ? null : ["process", String(found.pid)],
        found.late_seconds === undefined ? null : ["event loop late by", seconds(found.late_seconds)],
        found.dead_dropped === undefined ? null : ["dead letters dropped", count(found.dead_dropped)],
      ]),
      found.stores.map((store) => h("section", {},
        h("h2", {}, plain(store.name)),
        facts([
          ["sessions so far", count(store.session)],
          ["last end before this start", store.was_clean ? "clean" : h("span", { class: "warn" }, "without a close; recovered")],
          store.open_seconds === undefined || store.open_seconds === null ? null : ["opened, with recovery, in", seconds(store.open_seconds)],
          store.syncs === undefined ? null : ["syncs", count(store.syncs)],
          store.sync_seconds ? ["a sync takes", `${seconds(store.sync_seconds.median)} (median), ${seconds(store.sync_seconds.p90)} (90 %), ${seconds(store.sync_seconds.p99)} (99 %), ${seconds(store.sync_seconds.max)} at most`] : null,
          store.failed ? ["failed", h("span", { class: "bad" }, plain(store.failed))] : null,
        ]),
        store.findings.length ? table([{ text: "severity" }, { text: "where", kind: "name" }, { text: "what", kind: "long" }, { text: "lost", right: true }],
          store.findings.map((each) => [h("span", { class: each.severity === "note" ? "soft" : "bad" }, plain(each.severity)), plain(each.place), plain(each.text), each.lost ? count(each.lost) : "–"]),
          { caption: `Findings of ${plain(store.name)}` }) : h("p", { class: "soft" }, "No findings."),
        store.finding_count > store.findings.length ? h("p", { class: "soft" }, `The first of ${count(store.finding_count)}.`) : null)),
      down.length ? table([{ text: "virtual host", kind: "name" }, { text: "why", kind: "long" }],
        down.map((each) => [plain(each.vhost), plain(each.why)]), { caption: "Virtual hosts that are down" }) : null,
      refused.length ? section("Queues that are damaged and not served", refused, "what is damaged", "") : null,
      found.arriving && found.arriving.length ? section("Queues that are still coming", found.arriving, "why not", "being copied") : null);
  }
  return { element, refresh };
}
