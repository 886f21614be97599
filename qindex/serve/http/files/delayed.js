// What is delayed, over time.

import { get } from "./api.js";
import { bars } from "./chart.js";
import { h, replace, table } from "./dom.js";
import { queueLink } from "./queues.js";
import { count, moment, seconds } from "./words.js";

const NAMES = { 60: "1 minute", 300: "5 minutes", 900: "15 minutes", 3600: "1 hour", 21600: "6 hours", 86400: "1 day", 604800: "7 days", 2592000: "30 days" };

/** Rows of a picture: what is due within each span. */
export function spanRows(spans, counts) {
  return counts.map((value, at) => ({
    label: at === 0 ? `within ${named(spans[0])}` : at < spans.length ? `${named(spans[at - 1])} to ${named(spans[at])}` : `later than ${named(spans[at - 1])}`,
    value,
  }));
}

function named(span) {
  return NAMES[span] || seconds(span);
}

export function delayed() {
  const place = h("div", {});
  const element = h("div", {}, h("h1", {}, "Delayed"), place);

  async function refresh() {
    const found = await get("delayed");
    const sums = [...found.spans, 0].map((_, at) => found.items.reduce((sum, row) => sum + row.counts[at], 0));
    replace(place,
      h("p", {}, h("b", {}, count(found.total)), found.total === 1 ? " message waits" : " messages wait", ` for their time, in ${count(found.queues)} ${found.queues === 1 ? "queue" : "queues"}.`,
        found.looked < found.total ? h("span", { class: "soft" }, ` The picture shows the ${count(found.looked)} that were looked at.`) : null),
      found.total ? bars({ title: "Due", rows: spanRows(found.spans, sums), show: count }) : null,
      h("section", {}, h("h2", {}, "By queue"), table([
        { text: "queue", kind: "name" }, { text: "delayed", right: true }, { text: "next" }, { text: "last" },
      ], found.items.map((row) => [queueLink(row.vhost, row.name), count(row.delayed), moment(row.next_at),
        row.looked < row.delayed ? "–" : moment(row.last_at)]), { caption: "Delayed messages by queue", empty: "Nothing is delayed." })));
  }
  return { element, refresh };
}
