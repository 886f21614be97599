// Which views there are. `kinds` says where: at a broker, or at a store that is only read.

import { overview } from "./overview.js";
import { queue } from "./queue.js";
import { queues } from "./queues.js";
import { plain } from "./words.js";

const BOTH = ["broker", "store"];

export const VIEWS = [
  { path: "overview", text: "Overview", kinds: BOTH, make: overview },
  { path: "queues", also: "queue", text: "Queues", kinds: BOTH, make: queues },
];

const PAGES = [
  { path: "queue", kinds: BOTH, make: queue, title: (parts) => plain(parts[2] || "Queue") },
];

export function viewOf(parts, kind) {
  const all = [...VIEWS, ...PAGES].filter((view) => view.kinds.includes(kind));
  const found = all.find((view) => view.path === parts[0]) || VIEWS[0];
  return { ...found, title: found.title || (() => found.text) };
}
