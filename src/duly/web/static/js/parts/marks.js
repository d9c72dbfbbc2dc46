// Small marks that mean the same everywhere: states, times, numbers, ids, copies.
import { html, useState, classes } from "../lib/ui.js";
import { ago, exact, short, duration, zoneName } from "../lib/time.js";
import { clock, now } from "../lib/prefs.js";

/** @type {Record<string, string>} */
const SIGNS = {
  waiting: "○",
  running: "◐",
  done: "●",
  failed: "✕",
  cancelled: "⊘",
  retrying: "↻",
  paused: "‖",
  late: "◷",
  active: "●",
  broken: "✕",
  ok: "●",
  warn: "▲",
  bad: "✕",
  PENDING: "○",
  PROCESSING: "◐",
  DONE: "●",
  ERROR: "✕",
  NOT_FOUND: "∅",
  SKIPPED: "⊘",
  QUEUED: "○",
  RUNNING: "◐",
  PAUSED: "‖",
  FAILED: "✕",
};
// Words of jobs and of other lists, by the state whose colour they share.
/** @type {Record<string, string>} */
const TONES = {
  PENDING: "waiting",
  PROCESSING: "running",
  DONE: "done",
  ERROR: "failed",
  NOT_FOUND: "retrying",
  SKIPPED: "cancelled",
  QUEUED: "waiting",
  RUNNING: "running",
  PAUSED: "paused",
  FAILED: "failed",
  active: "done",
  broken: "failed",
  ok: "done",
  warn: "retrying",
  bad: "failed",
  late: "retrying",
};

/**
 * A state by colour, sign and word: it can be read without seeing the colour.
 * @param {{ of: string, label?: string | null }} props
 */
export function State({ of, label }) {
  return html`
    <span class=${classes("state", `is-${TONES[of] || of}`)}>
      <span aria-hidden="true">${SIGNS[of] || "·"}</span> ${label || of}
    </span>
  `;
}

/**
 * The state of an item: one that failed and waits is "retrying", one that was given up is "in review".
 * @param {{ item: Pick<Wire.Item, "state" | "attempt"> }} props
 */
export const ItemState = ({ item }) => html`
  <${State}
    of=${item.state === "waiting" && item.attempt > 0 ? "retrying" : item.state}
    label=${item.state === "failed" ? "in review" : null}
  />
`;

/**
 * A time, as the person chose to see times; the title has it in UTC.
 * @param {{ at: string | null | undefined, long?: boolean }} props
 */
export function Time({ at, long = false }) {
  if (!at) return html`<span class="none">–</span>`;
  const shown = long ? exact(at) : short(at);
  const title = `${exact(at, true)} UTC`;
  if (clock.value !== "relative") return html`<time datetime=${at} title=${title}>${shown}</time>`;
  return html`<time datetime=${at} title=${title}>${ago(at, now.value)} <small>${shown}</small></time>`;
}

/**
 * How long ago this was; the title has the exact time.
 * @param {{ at: string | null }} props
 */
export function Age({ at }) {
  if (!at) return html`<span class="none">–</span>`;
  return html`<time datetime=${at} title=${`${exact(at)} ${zoneName()}`}>${ago(at, now.value)}</time>`;
}

/** @param {{ seconds: number | null | undefined }} props */
export const Duration = ({ seconds }) => html`<span class="number">${duration(seconds) || "–"}</span>`;

/**
 * Copies a selection: it also works without HTTPS, or where scripts may not use the clipboard.
 * @param {string} text
 */
function copySelected(text) {
  const area = document.createElement("textarea");
  area.value = text;
  area.className = "offscreen";
  area.setAttribute("aria-hidden", "true");
  (document.querySelector("dialog[open]") || document.body).append(area);
  area.select();
  const isDone = document.execCommand("copy");
  area.remove();
  return isDone;
}

/** @param {string} text */
export async function copy(text) {
  if (!navigator.clipboard || !isSecureContext) return copySelected(text);
  return navigator.clipboard.writeText(text).then(
    () => true,
    () => copySelected(text),
  );
}

/** @param {{ text: unknown, label?: string }} props */
export function Copy({ text, label = "Copy" }) {
  const [result, setResult] = useState("");
  /** @param {any} event */
  const act = async (event) => {
    event.stopPropagation();
    event.preventDefault();
    setResult((await copy(String(text))) ? "Copied" : "Press Ctrl+C");
    setTimeout(() => setResult(""), 1500);
  };
  return html`
    <button type="button" class="mini" onClick=${act} aria-label=${result ? `${result}: ${label}` : label}>
      ${result || "Copy"}
      <span class="sr" role="status">${result}</span>
    </button>
  `;
}

/**
 * A command for a terminal, with a button that copies it.
 * @param {{ children: Children }} props
 */
export const Command = ({ children }) => html`
  <div class="command">
    <code>${children}</code>
    <${Copy} text=${children} label="Copy the command" />
  </div>
`;

/** @param {{ value: number, label: string, tone?: string }} props */
export const Bar = ({ value, label, tone = "running" }) => html`
  <span
    class="bar"
    role="meter"
    aria-label=${label}
    aria-valuemin="0"
    aria-valuemax="100"
    aria-valuenow=${Math.round(value * 100)}
  >
    <span class=${`is-${tone}`} style=${{ width: `${Math.min(Math.max(value, 0), 1) * 100}%` }}></span>
  </span>
`;

/** @param {{ title: string, children?: Children }} props */
export const Empty = ({ title, children }) => html`
  <div class="empty">
    <p><strong>${title}</strong></p>
    ${children}
  </div>
`;

/** @param {number | undefined} status */
function adviceOn(status) {
  if (status === undefined) return "";
  if (status === 403) return "Your account or key may not do this. An admin can change that under Users.";
  if (status === 404) return "It may have been removed, or it belongs to someone else.";
  if (status === 0) return "Is the service running? `duly up` starts it.";
  return status >= 500 ? "See the log of the service; `duly doctor` looks for the cause." : "";
}

/**
 * What went wrong and what to do about it, in place of an empty page.
 * @param {{ error: Error & { status?: number }, retry?: (() => unknown) | null }} props
 */
export function Trouble({ error, retry }) {
  const advice = adviceOn(error.status);
  return html`
    <div class="trouble" role="alert">
      <p><strong>${error.message}</strong></p>
      ${advice && html`<p>${advice}</p>`}
      ${retry && html`<button type="button" onClick=${retry}>Try again</button>`}
    </div>
  `;
}

/**
 * Draws the data of a read when it is there; until then that it is loading, or what went wrong.
 * @param {{ of: Live<any>, children: (data: any) => Children }} props
 */
export function Loaded({ of, children }) {
  const trouble = of.error && html`<${Trouble} error=${of.error} retry=${of.reload} />`;
  if (of.data !== undefined) return html`${trouble}${children(of.data)}`;
  return trouble || html`<p class="loading" role="status">Loading…</p>`;
}

/**
 * A small button in a row, with a label that says which row it is about.
 * @param {{ label: string, onClick: () => unknown, children: Children, tabindex?: string }} props
 */
export const RowButton = ({ label, onClick, children, tabindex }) => html`
  <button type="button" class="mini" tabindex=${tabindex} aria-label=${label} onClick=${onClick}>${children}</button>
`;
