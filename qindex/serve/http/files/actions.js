// What changes something: each asks first, and says what was done.

import { ask, get, name, own, post } from "./api.js";
import { confirm } from "./dialog.js";
import { count, plain } from "./words.js";

const COUNT_MAX = 100000; // messages that one action changes
const some = (number) => (number === 1 ? "1 message" : `${count(number)} messages`);

function said(verb) {
  return ({ done, left, more }) => `${some(done)} ${verb}${left ? `; ${count(left)} had left or are with a consumer` : ""}.${more ? " There are more: do it again." : ""}`;
}

/** move, delay, delete, or "ready now": the chosen messages, or all in a state. */
export function onMessages(verb, queue, numbers, state, found) {
  const which = numbers.length ? { numbers } : { state };
  const what = numbers.length ? some(numbers.length) : `all messages that are ${state} (${count(found[state])}${found[state] > COUNT_MAX ? `, ${count(COUNT_MAX)} at once` : ""})`;
  const send = (path, more) => post(`${queue.path}/messages/${path}`, { ...which, ...more });
  switch (verb) {
    case "move":
      return confirm({
        title: "Move messages", text: `Move ${what} of ${plain(queue.name)} to another queue of its virtual host. They are ready there, behind what waits.`,
        verb: "Move", fields: [{ name: "to", label: "to the queue", required: true }],
        act: ({ to }) => send("move", { to }).then(said(`moved to ${plain(to)}`)),
      });
    case "delay":
      return confirm({
        title: "Delay messages", text: `${what} of ${plain(queue.name)}: not ready before so many seconds from now.`,
        verb: "Delay", fields: [{ name: "seconds", label: "seconds", type: "number", value: "60", min: "1", step: "1", required: true }],
        act: ({ seconds }) => send("delay", { seconds: Number(seconds) }).then(said("delayed")),
      });
    case "ready now":
      return confirm({
        title: "Ready now", text: `End the delay of ${what} in ${plain(queue.name)}: they are delivered next.`, verb: "Make ready",
        act: () => send("delay", { seconds: 0 }).then(said("made ready")),
      });
    default:
      return confirm({
        title: "Delete messages", text: `Delete ${what} of ${plain(queue.name)} for good. Nobody gets them any more.`,
        verb: "Delete", isDangerous: true, act: () => send("delete", {}).then(said("deleted")),
      });
  }
}

export function purgeQueue(queue, ready) {
  return confirm({
    title: "Purge the queue", text: `Delete all that is ready in ${plain(queue.name)} (${count(ready)}) for good. What is delayed or with a consumer stays.`,
    verb: "Purge", isDangerous: true,
    act: () => ask("DELETE", `/api/${queue.path}/contents`).then(() => `${plain(queue.name)} was purged.`),
  });
}

export function deleteQueue(queue, found) {
  const waiting = found.ready + found.unacked + found.delayed;
  return confirm({
    title: "Delete the queue", text: `Delete ${plain(queue.name)} with its ${some(waiting)} and bindings for good. ${found.consumers ? `Its ${found.consumers} consumers are cancelled.` : ""}`,
    verb: "Delete", isDangerous: true, typed: plain(queue.name),
    act: () => ask("DELETE", `/api/${queue.path}`).then(() => `${plain(queue.name)} was deleted.`),
  });
}

export function holdQueue(queue, isHeld) {
  return confirm(isHeld
    ? { title: "Resume the queue", text: `${plain(queue.name)} delivers again.`, verb: "Resume",
        act: () => post(`${queue.path}/resume`).then(() => `${plain(queue.name)} goes on.`) }
    : { title: "Pause the queue", text: `${plain(queue.name)} takes messages, but delivers none, and none expires, until it is resumed; also after a restart.`, verb: "Pause",
        act: () => post(`${queue.path}/pause`).then(() => `${plain(queue.name)} is paused.`) });
}

export function publishTo(queue) {
  return confirm({
    title: "Publish a message", text: `A persistent message to ${plain(queue.name)}. It is there when the server has confirmed it.`, verb: "Publish",
    fields: [
      { name: "payload", label: "body", type: "area" },
      { name: "headers", label: "headers", value: "", hint: "JSON, as {\"n\": 1}; or nothing" },
      { name: "content", label: "content type", value: "" },
    ],
    act: async ({ payload, headers, content }) => {
      const properties = { delivery_mode: 2 };
      if (headers.trim()) properties.headers = JSON.parse(headers);
      if (content.trim()) properties.content_type = content.trim();
      const found = await ask("POST", `/api/exchanges/${name(queue.vhost)}/amq.default/publish`, { routing_key: queue.name, payload, properties });
      if (!found.routed) throw new Error("no queue took it");
      return "It is published and confirmed.";
    },
  });
}
