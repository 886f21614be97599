// Numbers, times and foreign texts as they are shown.

const STEERING = /[\u0000-\u001f\u007f-\u009f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]/g;

/** A foreign text without characters that steer: they stand there as \u202e and the like. */
export function plain(text) {
  return String(text).replace(STEERING, (each) => `\\u${each.codePointAt(0).toString(16).padStart(4, "0")}`);
}

export function count(number) {
  return Math.round(number).toLocaleString("en-US");
}

/** A number in few characters: 950, 12.3 k, 1.25 M. */
export function short(number) {
  if (number < 1000) return number < 10 && number % 1 ? number.toFixed(1) : String(Math.round(number));
  for (const [size, unit] of [[1e9, "G"], [1e6, "M"], [1e3, "k"]]) {
    if (number >= size) return `${Number((number / size).toPrecision(3))} ${unit}`;
  }
  return "";
}

/** A number of things. */
export function several(number, one, more = `${one}s`) {
  return `${count(number)} ${number === 1 ? one : more}`;
}

export function rate(number) {
  if (!number) return "0/s";
  return `${number < 10 ? Number(number.toFixed(1)) : short(number)}/s`;
}

export function bytes(number) {
  if (number === null || number === undefined) return "–";
  for (const [size, unit] of [[2 ** 40, "TiB"], [2 ** 30, "GiB"], [2 ** 20, "MiB"], [2 ** 10, "KiB"]]) {
    if (number >= size) return `${Number((number / size).toPrecision(3))} ${unit}`;
  }
  return `${number} B`;
}

export function seconds(number) {
  if (number === null || number === undefined) return "–";
  if (number < 0.001) return `${Math.round(number * 1e6)} µs`;
  if (number < 1) return `${Number((number * 1000).toPrecision(3))} ms`;
  const whole = Math.round(number);
  if (whole < 60) return `${whole} s`;
  if (whole < 3600) return `${Math.floor(whole / 60)} min ${whole % 60} s`;
  if (whole < 86400) return `${Math.floor(whole / 3600)} h ${Math.floor((whole % 3600) / 60)} min`;
  return `${Math.floor(whole / 86400)} d ${Math.floor((whole % 86400) / 3600)} h`;
}

/** A moment in seconds since 1970, in the reader's time. */
export function moment(at) {
  if (!at) return "–";
  const found = new Date(at * 1000);
  const two = (number) => String(number).padStart(2, "0");
  return `${found.getFullYear()}-${two(found.getMonth() + 1)}-${two(found.getDate())} ${two(found.getHours())}:${two(found.getMinutes())}:${two(found.getSeconds())}`;
}

export function fromBase64(text) {
  return Uint8Array.from(atob(text), (each) => each.charCodeAt(0));
}

/** The bytes as text, or null if they are no UTF-8. What was cut within a character stays text. */
export function asText(raw, isCut) {
  try {
    return new TextDecoder("utf-8", { fatal: true }).decode(raw, { stream: isCut });
  } catch {
    return null;
  }
}

export function asHex(raw) {
  const lines = [];
  for (let at = 0; at < raw.length; at += 16) {
    const some = [...raw.subarray(at, at + 16)];
    const hex = some.map((each) => each.toString(16).padStart(2, "0")).join(" ").padEnd(47);
    const text = some.map((each) => (each > 31 && each < 127 ? String.fromCharCode(each) : ".")).join("");
    lines.push(`${at.toString(16).padStart(8, "0")}  ${hex}  ${text}`);
  }
  return lines.join("\n");
}
