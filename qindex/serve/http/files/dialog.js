// Questions before anything is changed. Escape and "Cancel" change nothing; "Cancel" has the focus.

import { button, h, say } from "./dom.js";

let number = 0;

/**
 * Ask, then do. `fields` are {name, label, type, value, options, hint}; `typed` is a text that has
 * to be typed in first; `act` gets the values and returns what to say. Resolves to true if it was done.
 */
export function confirm({ title, text, verb, fields = [], typed, isDangerous = false, act }) {
  return new Promise((resolve) => {
    const id = `dialog-${++number}`;
    const wrong = h("p", { class: "bad", role: "alert" });
    const inputs = fields.map((field) => [field.name, input(field)]);
    const check = typed === undefined ? null : h("input", { type: "text", autocomplete: "off", spellcheck: "false", "aria-label": "the name, once more" });
    const go = h("button", { type: "submit", class: isDangerous ? "danger" : "main" }, verb);
    const cancel = button("Cancel", () => dialog.close());
    const form = h("form", { method: "dialog", submit: submit },
      h("h2", { id }, title),
      text ? h("p", {}, text) : null,
      inputs.map(([, made], at) => h("label", {}, h("span", {}, fields[at].label), made,
        fields[at].hint ? h("small", { class: "soft" }, fields[at].hint) : null)),
      check ? h("label", {}, h("span", {}, "Type ", h("code", {}, typed), " to go on"), check) : null,
      wrong,
      h("div", { class: "buttons" }, cancel, go));
    const dialog = h("dialog", { "aria-labelledby": id, close: () => { dialog.remove(); resolve(done); } }, form);
    let done = false;

    async function submit(event) {
      event.preventDefault();
      if (check && check.value !== typed) {
        wrong.textContent = "That is not the name.";
        check.focus();
        return;
      }
      go.disabled = true;
      try {
        const said = await act(Object.fromEntries(inputs.map(([name, made]) => [name, made.value])));
        done = true;
        dialog.close();
        if (said) say(said);
      } catch (error) {
        wrong.textContent = error.message;
        go.disabled = false;
      }
    }

    document.body.append(dialog);
    dialog.showModal();
    (inputs.length ? inputs[0][1] : check || cancel).focus();
  });
}

function input({ name, type = "text", value = "", options, list, ...more }) {
  if (options) {
    return h("select", { name }, options.map((each) => h("option", { value: each, selected: each === value }, each)));
  }
  if (type === "area") {
    const area = h("textarea", { name, rows: 6, spellcheck: "false" });
    area.value = value;
    return area;
  }
  return h("input", { name, type, value, autocomplete: "off", spellcheck: "false", min: more.min, step: more.step, required: more.required });
}
