// Log-in, navigation, and the view that the address names (#/queues?page=2). A view is a function
// that returns {element, refresh}; refresh is called every few seconds while the page is seen.

import { Refused, logIn, logOut, session, whenOut } from "./api.js";
import { button, h, replace, say } from "./dom.js";
import { plain } from "./words.js";
import { begin as beginView, loadAll, viewOf, viewsFor } from "./views.js";

const SECONDS = 2;
const LATER_SECONDS = 1;
const main = document.getElementById("main");
const head = document.getElementById("top");
let who = null;
let shown = null;
let isLive = true;
let timer = 0;
let turn = 0;

function decoded(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part; // typed by hand: the server says that there is nothing of this name
  }
}

function address() {
  const [path, query = ""] = location.hash.replace(/^#\/?/, "").split("?");
  return { parts: path.split("/").filter(Boolean).map(decoded), query: new URLSearchParams(query) };
}

export function go(path) {
  location.hash = `#/${path}`;
}

function drawHead() {
  if (!who) {
    replace(head, h("a", { class: "name", href: "#/" }, "qindex"));
    return;
  }
  const here = address().parts[0] || "overview";
  const links = viewsFor(who).map((view) =>
    h("a", { href: `#/${view.path}`, "data-key": `view ${view.path}`, "aria-current": view.path === here || view.also === here ? "page" : undefined }, view.text));
  const live = button(isLive ? "Live" : "Paused", () => {
    isLive = !isLive;
    drawHead();
    schedule(0);
  }, { class: "live", "aria-pressed": String(isLive), "data-key": "live", title: "Stop or go on with updates (key: .)" });
  const user = h("span", { class: "user" }, h("span", { class: "soft" }, plain(who.user)), live,
    button("Log out", async () => {
      await logOut().catch(() => {});
      out();
    }, { "data-key": "out" }));
  replace(head, h("a", { class: "name", href: "#/" }, "qindex"),
    h("nav", { "aria-label": "Views" }, links), user);
  head.querySelector("[aria-current]")?.scrollIntoView({ block: "nearest", inline: "nearest" });
}

function out() {
  who = null;
  shown = null;
  clearTimeout(timer);
  drawHead();
  drawLogIn();
}

function drawLogIn() {
  const wrong = h("p", { class: "bad", role: "alert" });
  const user = h("input", { name: "user", autocomplete: "username", autocapitalize: "off", spellcheck: "false", required: true });
  const password = h("input", { name: "password", type: "password", autocomplete: "current-password", required: true });
  const enter = h("button", { type: "submit", class: "main" }, "Log in");
  const form = h("form", { class: "login", submit: async (event) => {
    event.preventDefault();
    enter.disabled = true;
    try {
      who = await logIn(user.value, password.value);
      await draw();
      loadAll(who);
    } catch (error) {
      wrong.textContent = error.status === 401 && error.message === "Login failed" ? "User or password is wrong." : error.message;
      enter.disabled = false;
      password.value = "";
      password.focus();
    }
  } }, h("h1", {}, "Log in"), h("label", {}, h("span", {}, "User"), user), h("label", {}, h("span", {}, "Password"), password), wrong, enter);
  document.title = "qindex";
  replace(main, form);
  user.focus();
}

async function draw() {
  if (!who) return;
  clearTimeout(timer);
  const found = address();
  const mine = ++turn;
  drawHead();
  const view = viewOf(found.parts, who);
  document.title = `${view.title(found.parts)} · qindex`;
  let make;
  try {
    make = await view.load();
  } catch {
    if (mine === turn) notLoaded();
    return;
  }
  if (mine !== turn || !who) return;
  shown = make({ who, ...found, go });
  replace(main, shown.element);
  window.scrollTo(0, 0);
  await refresh(mine);
}

/** A view's module is not there: the server is away, or a newer one has other files. */
function notLoaded() {
  shown = null;
  replace(main, h("h1", {}, "That cannot be shown"), h("p", { class: "bad" }, "The server does not answer, or is a newer one."),
    button("Load the page again", () => location.reload()));
}

async function refresh(mine) {
  const view = shown;
  try {
    await view.refresh?.();
    if (mine === turn) head.classList.remove("away");
  } catch (error) {
    if (!(error instanceof Refused)) throw error;
    if (mine !== turn || !who) return;
    head.classList.toggle("away", error.status === 0);
    if (error.status && error.status !== 401) replace(main, h("h1", {}, "That cannot be shown"), h("p", { class: "bad" }, plain(error.message)));
    else say(error.message, true);
    if (error.status) return;
  }
  if (mine === turn) schedule(mine);
}

function schedule(mine) {
  clearTimeout(timer);
  const view = shown;
  if (!who || !isLive || !view?.refresh || view.isStill) return;
  const now = mine || turn;
  timer = setTimeout(() => {
    if (document.hidden) schedule(now);
    else refresh(now);
  }, SECONDS * 1000);
}

window.addEventListener("hashchange", () => {
  draw();
  main.focus({ preventScroll: true });
});
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || /^(INPUT|TEXTAREA|SELECT)$/.test(event.target.tagName)) return;
  if (event.key === ".") head.querySelector(".live")?.click();
  if (event.key === "/") {
    const field = main.querySelector("input[type=search]");
    if (field) {
      event.preventDefault();
      field.focus();
    }
  }
});
whenOut(out);

async function begin() {
  const key = /^#key=([\w-]+)$/.exec(location.hash);
  beginView(address().parts);
  try {
    if (key) {
      history.replaceState(null, "", "#/");
      who = await logIn("", key[1]);
    } else {
      who = await session();
    }
    if (!who.user && who.user !== "") throw new Error("nobody has logged in");
  } catch {
    out();
    return;
  }
  await draw();
  setTimeout(() => loadAll(who), LATER_SECONDS * 1000);
}

begin();
