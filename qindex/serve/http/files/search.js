// Search among the messages of a queue: by a text in the body, by a header or by a property.

import { h } from "./dom.js";

const WHERE = { text: "in the body", header: "by header", property: "by property" };
const HINTS = { text: "a text in the body", header: "name, or name=value", property: "name, or name=value" };

/** The form; what it asks for, as a part of a query; and that as a part of the page's address. */
export function searchOf({ query, here, go }) {
  const place = WHERE[query.get("in")] ? query.get("in") : "text";
  const what = query.get("find") || "";
  const where = h("select", { "aria-label": "where to search", change: () => field.setAttribute("placeholder", HINTS[where.value]) },
    Object.entries(WHERE).map(([value, text]) => h("option", { value, selected: value === place }, text)));
  const field = h("input", { type: "search", placeholder: HINTS[place], "aria-label": "search messages", spellcheck: "false", autocomplete: "off" });
  field.value = what;
  const form = h("form", { class: "tools", role: "search", submit: (event) => {
    event.preventDefault();
    const asked = new URLSearchParams({ state: query.get("state") ?? "ready" });
    if (field.value) {
      asked.set("in", where.value);
      asked.set("find", field.value);
    }
    go(`${here}?${asked}`);
  } }, field, where, h("button", { type: "submit" }, "Search"));
  const kept = what ? `&in=${place}&find=${encodeURIComponent(what)}` : "";
  return { form, asked: what ? asked(place, what) : "", kept };
}

function asked(place, what) {
  const cut = place === "text" ? -1 : what.indexOf("=");
  const found = new URLSearchParams({ [place]: cut < 0 ? what : what.slice(0, cut) });
  if (cut >= 0) found.set("value", what.slice(cut + 1));
  return `&${found}`;
}
