// A body as text, JSON or hex: whatever it is, it becomes text nodes.

import { button, h, replace } from "./dom.js";
import { asHex, asText, bytes, fromBase64, plain } from "./words.js";

const LINE_ENDS = /(\r\n|\n|\t)/;

/** The first characters of a body, for a row. */
export function preview(message) {
  const raw = fromBase64(message.body).subarray(0, 160);
  const text = asText(raw, raw.length < message.body_bytes);
  if (text === null) return h("code", {}, [...raw.subarray(0, 24)].map((each) => each.toString(16).padStart(2, "0")).join(" "));
  return h("code", {}, plain(text.replaceAll(/\s+/g, " ")));
}

/** The whole body that was sent, with a choice of how it is shown. */
export function body(message) {
  const raw = fromBase64(message.body);
  const isCut = raw.length < message.body_bytes;
  const text = asText(raw, isCut);
  const json = text === null || isCut ? null : asJson(text);
  const ways = { text: text === null ? null : () => lines(text), JSON: json === null ? null : () => json, hex: () => asHex(raw.subarray(0, 65536)) };
  const place = h("pre", { tabindex: "0", "aria-label": "body" });
  const bar = h("div", { class: "tabs", role: "group", "aria-label": "how the body is shown" });
  const note = isCut ? `the first ${bytes(raw.length)} of ${bytes(message.body_bytes)}` : bytes(raw.length);

  function choose(way) {
    place.textContent = ways[way]();
    replace(bar, Object.keys(ways).map((each) => button(each, () => choose(each),
      { disabled: ways[each] === null, "aria-pressed": String(each === way), "data-key": `way ${each}` })), h("span", { class: "soft" }, note));
  }
  choose(json !== null ? "JSON" : text !== null ? "text" : "hex");
  return h("section", {}, h("h2", {}, "Body"), bar, raw.length ? place : h("p", { class: "soft" }, "It is empty."));
}

function lines(text) {
  return text.split(LINE_ENDS).map((each) => (LINE_ENDS.test(each) ? each.replace("\r", "") : plain(each))).join("");
}

function asJson(text) {
  if (!/^\s*[[{]/.test(text)) return null;
  try {
    JSON.parse(text);
  } catch {
    return null;
  }
  return indented(text);
}

/** With line ends and indents; numbers stay as they are written, however long. */
function indented(text) {
  let out = "";
  let depth = 0;
  const tokens = text.match(/"(?:[^"\\]|\\.)*"|[[\]{},:]|[^\s[\]{},:"]+/g) || [];
  tokens.forEach((token, at) => {
    const isClosing = token === "}" || token === "]";
    if (isClosing) depth -= 1;
    if (isClosing && !/[[{]/.test(tokens[at - 1])) out += `\n${"  ".repeat(depth)}`;
    out += token === ":" ? ": " : plain(token);
    if (token === "{" || token === "[") depth += 1;
    const isEmpty = (token === "{" || token === "[") && /[\]}]/.test(tokens[at + 1] || "");
    if ((token === "," || token === "{" || token === "[") && !isEmpty) out += `\n${"  ".repeat(depth)}`;
  });
  return out;
}
