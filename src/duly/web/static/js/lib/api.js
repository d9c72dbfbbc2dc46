// Requests to the API. Numbers stay exact, errors say what to do, and a POST that is sent twice takes effect once.
// The types of answers come from the API's OpenAPI document: see tools/javascript/types/dashboard.d.ts.
import { parse, stringify } from "./json.js";
import { signal } from "./ui.js";

const meta = /** @type {HTMLMetaElement} */ (document.querySelector('meta[name="duly-root"]'));
export const root = meta.content;

/**
 * Whether the last request reached the service; null before the first.
 * @type {Signal<boolean | null>}
 */
export const reach = signal(null);

/**
 * The user of this page: null until known, false if the user has to sign in.
 * @type {Signal<Wire.Me | false | null>}
 */
export const me = signal(null);

export class ApiError extends Error {
  /**
   * @param {number} status of the response; 0 where there was none
   * @param {string} [detail]
   * @param {string | null} [field] the field of the request that was rejected
   * @param {string} [title]
   */
  constructor(status, detail, field, title) {
    super(detail || title || `The service answered with status ${status}.`);
    this.status = status;
    this.field = field ?? null;
  }
}

/**
 * The values of a parameter: a list sets it several times, an empty value not at all.
 * @param {unknown} value
 * @returns {string[]}
 */
export const valuesOf = (value) =>
  (Array.isArray(value) ? value : [value])
    .filter((each) => each !== null && each !== undefined && each !== "")
    .map(String);

/**
 * An address of the API with its query.
 * @param {string} path
 * @param {Query} [query]
 */
export function address(path, query = {}) {
  const parameters = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) {
    for (const each of valuesOf(value)) parameters.append(name, each);
  }
  const text = parameters.toString();
  return root + path + (text ? `?${text}` : "");
}

// When this page last changed something. Cached answers from before that moment are not accepted.
let changedAt = 0;

/** Accept no answer that is older than this moment. */
export const takeNoOlder = () => {
  changedAt = Date.now();
};

/**
 * @param {number} status
 * @param {string} text
 */
function errorOf(status, text) {
  let problem;
  try {
    problem = parse(text);
  } catch {
    problem = { detail: text.slice(0, 300) };
  }
  return new ApiError(status, problem.detail, problem.field, problem.title);
}

/**
 * @param {string} method
 * @param {string} url
 * @param {{ body?: string, headers?: Record<string, string>, signal?: AbortSignal }} [options]
 */
async function request(method, url, { body, headers = {}, signal: stop } = {}) {
  let answer;
  if (method !== "GET") takeNoOlder();
  try {
    answer = await fetch(url, { method, body, headers, signal: stop, credentials: "same-origin" });
  } catch (error) {
    if (isAbort(error)) throw error;
    reach.value = false;
    throw new ApiError(0, "The service does not answer. It may be restarting; this page tries again.");
  }
  reach.value = true;
  if (method !== "GET") takeNoOlder();
  const text = await answer.text();
  if (!answer.ok) {
    if (answer.status === 401 && !url.endsWith("/api/session")) me.value = false;
    throw errorOf(answer.status, text);
  }
  if (!text) return null;
  return (answer.headers.get("content-type") || "").includes("json") ? parse(text) : text;
}

/**
 * Whether this is the error of a request that was stopped.
 * @param {unknown} error
 */
export const isAbort = (error) => error instanceof Error && error.name === "AbortError";

/**
 * Read something. With `age`, an answer of at most this many seconds is accepted, so that people who look at the same
 * time share one.
 * @template {string} Path
 * @param {Path} path
 * @param {Query} [query]
 * @param {{ age?: number, signal?: AbortSignal }} [options]
 * @returns {Promise<Answer<Path>>}
 */
export const get = (path, query, { age = 0, signal: stop } = {}) => {
  const oldest = Math.min(age, Math.floor((Date.now() - changedAt) / 1000));
  const headers = oldest > 0 ? { "Cache-Control": `max-age=${oldest}` } : undefined;
  return request("GET", address(path, query), { headers, signal: stop });
};

/**
 * Reads a list page by page, for a grid.
 * @param {string} path
 * @param {Query} [filter]
 * @returns {LoadPage}
 */
export const pagesOf =
  (path, filter = {}) =>
  (after, pageSize, stop, age) =>
    get(path, { ...filter, after, pageSize }, { signal: stop, age });

const idempotencyKey = () =>
  Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, "0")).join("");

/**
 * @template {"POST" | "PUT" | "PATCH" | "DELETE"} Method
 * @param {Method} method
 */
const sender =
  (method) =>
  /**
   * @template {string} Path
   * @param {Path} path
   * @param {unknown} [body]
   * @param {{ query?: Query }} [options]
   * @returns {Promise<Answer<Path, Lowercase<Method>>>}
   */
  (path, body, { query } = {}) =>
    request(method, address(path, query), {
      body: body === undefined ? undefined : stringify(body),
      headers: {
        ...(body === undefined ? {} : { "Content-Type": "application/json" }),
        ...(method === "POST" ? { "Idempotency-Key": idempotencyKey() } : {}),
      },
    });

export const post = sender("POST");
export const put = sender("PUT");
export const patch = sender("PATCH");
export const remove = sender("DELETE");

/**
 * @param {File} file
 * @param {Query} fields
 */
function formOf(file, fields) {
  const form = new FormData();
  for (const [name, value] of Object.entries(fields)) {
    for (const each of valuesOf(value)) form.append(name, each);
  }
  form.append("file", file);
  return form;
}

/**
 * Send a file, with these fields beside it, and report how much of it is sent (0 to 1).
 * @param {string} path
 * @param {File} file
 * @param {Query | null} [fields]
 * @param {(share: number) => void} [onProgress]
 * @returns {{ done: Promise<any>, stop: () => void }}
 */
export function upload(path, file, fields, onProgress) {
  const sending = new XMLHttpRequest();
  const done = new Promise((resolve, reject) => {
    sending.open("POST", root + path);
    sending.setRequestHeader("Idempotency-Key", idempotencyKey());
    sending.upload.onprogress = (event) => {
      if (event.lengthComputable) onProgress?.(event.loaded / event.total);
    };
    sending.onload = () => {
      takeNoOlder();
      if (sending.status < 300) resolve(parse(sending.responseText));
      else reject(errorOf(sending.status, sending.responseText));
    };
    sending.onerror = () => reject(new ApiError(0, "The file could not be sent: the service does not answer."));
    sending.onabort = () => reject(new ApiError(0, "Stopped."));
    sending.send(formOf(file, fields ?? {}));
  });
  return { done, stop: () => sending.abort() };
}

/** @param {Wire.Me["scopes"][number]} scope */
export const may = (scope) => Boolean(me.value && me.value.scopes.includes(scope));
