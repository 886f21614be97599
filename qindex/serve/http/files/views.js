// Which views there are. `kinds` says where: at a broker, or at a store that is only read.

import { clients } from "./clients.js";
import { dead } from "./dead.js";
import { delayed } from "./delayed.js";
import { disk } from "./disk.js";
import { gmq } from "./gmq.js";
import { health } from "./health.js";
import { overview } from "./overview.js";
import { queue } from "./queue.js";
import { queues } from "./queues.js";
import { plain } from "./words.js";

const BROKER = ["broker"];
const BOTH = ["broker", "store"];

export const VIEWS = [
  { path: "overview", text: "Overview", kinds: BOTH, make: overview },
  { path: "queues", also: "queue", text: "Queues", kinds: BOTH, make: queues },
  { path: "dead", text: "Dead letters", kinds: BROKER, make: dead },
  { path: "delayed", text: "Delayed", kinds: BOTH, make: delayed },
  { path: "clients", text: "Clients", kinds: BROKER, make: clients },
  { path: "gmq", text: "gmq", kinds: BROKER, make: gmq, needs: "gmq" },
  { path: "disk", text: "Disk", kinds: BOTH, make: disk, needs: "sees_all" },
  { path: "health", text: "Health", kinds: BOTH, make: health },
];

const PAGES = [
  { path: "queue", kinds: BOTH, make: queue, title: (parts) => plain(parts[2] || "Queue") },
];

/** The views that this user has here. */
export function viewsFor(who) {
  return VIEWS.filter((view) => view.kinds.includes(who.kind) && (!view.needs || who[view.needs]));
}

export function viewOf(parts, who) {
  const found = [...viewsFor(who), ...PAGES].find((view) => view.path === parts[0]) || VIEWS[0];
  return { ...found, title: found.title || (() => found.text) };
}
