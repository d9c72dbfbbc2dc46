// Talks to the API: exact numbers, errors that say what to do, and acts that are done once even when sent twice.
import { parse, stringify } from "./json.js";
import { signal } from "./ui.js";

export const root = document.querySelector('meta[name="duly-root"]').content;
/** Whether the last request reached the service; null before the first. */
export const reach = signal(null);
export const me = signal(null);

export class ApiError extends Error {
  constructor(status, detail, field, title) {
    super(detail || title || `the service answered ${status}`);
    this.status = status;
    this.field = field ?? null;
  }
}

/** An address of the API, with its query; a list says its parameter several times, nothing is left out. */
export function address(path, query = {}) {
  const said = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) {
    for (const each of Array.isArray(value) ? value : [value]) {
      if (each !== null && each !== undefined && each !== "") said.append(name, String(each));
    }
  }
  const text = said.toString();
  return root + path + (text ? `?${text}` : "");
}

// When something was last changed from here. What is read soon after has to show it, so nothing older will do.
let changedAt = 0;

/** Take no answer from now on that is older than this moment. */
export const takeNoOlder = () => {
  changedAt = Date.now();
};

async function ask(method, url, { body, headers = {}, signal: stop } = {}) {
  let answer;
  if (method !== "GET") changedAt = Date.now();
  try {
    answer = await fetch(url, { method, body, headers, signal: stop, credentials: "same-origin" });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    reach.value = false;
    throw new ApiError(0, "The service does not answer. It may be restarting; this page tries again.");
  }
  reach.value = true;
  if (method !== "GET") changedAt = Date.now();
  const text = await answer.text();
  if (!answer.ok) {
    let told = {};
    try {
      told = parse(text);
    } catch {
      told = { detail: text.slice(0, 300) };
    }
    if (answer.status === 401 && !url.endsWith("/api/session")) me.value = false;
    throw new ApiError(answer.status, told.detail, told.field, told.title);
  }
  if (!text) return null;
  return (answer.headers.get("content-type") || "").includes("json") ? parse(text) : text;
}

/** Read something. `age`: an answer so many seconds old will do, so that many who look cost what one does. */
export const get = (path, query, { age = 0, signal: stop } = {}) => {
  // What was read before the last act of this page does not know of it.
  const taken = Math.min(age, Math.floor((Date.now() - changedAt) / 1000));
  return ask("GET", address(path, query), {
    headers: taken > 0 ? { "Cache-Control": `max-age=${taken}` } : {},
    signal: stop,
  });
};

const once = () =>
  Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) =>
    byte.toString(16).padStart(2, "0"),
  ).join("");

const send =
  (method) =>
  (path, body, { query, key } = {}) =>
    ask(method, address(path, query), {
      body: body === undefined ? undefined : stringify(body),
      headers: {
        ...(body === undefined ? {} : { "Content-Type": "application/json" }),
        ...(method === "POST" ? { "Idempotency-Key": key || once() } : {}),
      },
    });

export const post = send("POST");
export const put = send("PUT");
export const patch = send("PATCH");
export const remove = send("DELETE");

/** Send a file, telling how much of it is gone. `fields` are said beside it. */
export function upload(path, file, fields, onProgress) {
  const request = new XMLHttpRequest();
  const done = new Promise((resolve, reject) => {
    request.open("POST", root + path);
    request.setRequestHeader("Idempotency-Key", once());
    request.upload.onprogress = (event) =>
      event.lengthComputable && onProgress?.(event.loaded / event.total);
    request.onload = () => {
      changedAt = Date.now();
      let told = null;
      try {
        told = parse(request.responseText);
      } catch {
        told = { detail: request.responseText.slice(0, 300) };
      }
      if (request.status < 300) resolve(told);
      else reject(new ApiError(request.status, told.detail, told.field, told.title));
    };
    request.onerror = () =>
      reject(new ApiError(0, "The file could not be sent: the service does not answer."));
    request.onabort = () => reject(new ApiError(0, "Stopped."));
    const form = new FormData();
    for (const [name, value] of Object.entries(fields || {})) {
      if (value !== null && value !== undefined && value !== "") form.append(name, value);
    }
    form.append("file", file);
    request.send(form);
  });
  return { done, stop: () => request.abort() };
}

export const may = (scope) => Boolean(me.value && me.value.scopes.includes(scope));
