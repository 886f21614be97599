// The server's API. Each request shows the token of the session, which only this page knows.

let token = "";
let onOut = () => {};

export class Refused extends Error {
  constructor(status, reason) {
    super(reason);
    this.status = status;
  }
}

const DOTS = /^~*\.{1,2}$/; // a browser takes these out of a path: the server wants a "~" before them

function guarded(path) {
  const [parts, ...query] = path.split("?");
  return [parts.split("/").map((part) => (DOTS.test(part) ? `~${part}` : part)).join("/"), ...query].join("?");
}

export function whenOut(call) {
  onOut = call;
}

export async function ask(method, path, body) {
  let response;
  try {
    response = await fetch(guarded(path), {
      method,
      headers: { "X-Qindex-Token": token, ...(body === undefined ? {} : { "Content-Type": "application/json" }) },
      body: body === undefined ? undefined : JSON.stringify(body),
      cache: "no-store",
      credentials: "same-origin",
    });
  } catch {
    throw new Refused(0, "The server does not answer.");
  }
  const isJson = (response.headers.get("Content-Type") || "").startsWith("application/json");
  const found = isJson ? await response.json() : null;
  if (response.ok) return found;
  const refused = new Refused(response.status, (found && found.reason) || `The server says ${response.status}.`);
  if (response.status === 401 && refused.message === "Login failed" && !path.endsWith("/session")) onOut();
  throw refused;
}

export const own = (path) => `/api/qindex/${path}`;
export const name = (text) => encodeURIComponent(text);
export const get = (path) => ask("GET", own(path));
export const post = (path, body = {}) => ask("POST", own(path), body);

export async function session() {
  const found = await ask("GET", own("session"));
  token = found.token;
  return found;
}

export async function logIn(user, password) {
  const found = await ask("POST", own("session"), { user, password });
  token = found.token;
  return found;
}

export async function logOut() {
  await ask("DELETE", own("session"));
  token = "";
}
