// Which views there are. `kinds` says where: at a broker, or at a store that is only read. A view's
// module is loaded when the view is wanted first: one request less is two milliseconds of a load.

import { plain } from "./words.js";

const BROKER = ["broker"];
const BOTH = ["broker", "store"];

export const VIEWS = [
  { path: "overview", text: "Overview", kinds: BOTH, load: () => import("./overview.js") },
  { path: "queues", also: "queue", text: "Queues", kinds: BOTH, load: () => import("./queues.js") },
  { path: "dead", text: "Dead letters", kinds: BROKER, load: () => import("./dead.js") },
  { path: "delayed", text: "Delayed", kinds: BOTH, load: () => import("./delayed.js") },
  { path: "clients", text: "Clients", kinds: BROKER, load: () => import("./clients.js") },
  { path: "gmq", text: "gmq", kinds: BROKER, load: () => import("./gmq.js"), needs: "gmq" },
  { path: "disk", text: "Disk", kinds: BOTH, load: () => import("./disk.js"), needs: "sees_all" },
  { path: "health", text: "Health", kinds: BOTH, load: () => import("./health.js") },
];

const PAGES = [
  { path: "queue", kinds: BOTH, load: () => import("./queue.js"), title: (parts) => plain(parts[2] || "Queue") },
];

/** The views that this user has here. */
export function viewsFor(who) {
  return VIEWS.filter((view) => view.kinds.includes(who.kind) && (!view.needs || who[view.needs]));
}

export function viewOf(parts, who) {
  const found = [...viewsFor(who), ...PAGES].find((view) => view.path === parts[0]) || VIEWS[0];
  const load = async () => (await found.load())[found.path];
  return { ...found, load, title: found.title || (() => found.text) };
}

/** Begin to load the module of the view that the address names, before it is known who asks. */
export function begin(parts) {
  const found = [...VIEWS, ...PAGES].find((view) => view.path === parts[0]) || VIEWS[0];
  found.load().catch(() => {});
}

/** Load what the other views need, so that they are there at once. */
export function loadAll(who) {
  for (const view of [...viewsFor(who), ...PAGES]) view.load().catch(() => {});
}
