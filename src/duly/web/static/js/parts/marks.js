// Small marks that mean the same everywhere: states, times, numbers, ids, copies.
import { html, useState, classes } from "../lib/ui.js";
import { ago, exact, short, duration, zoneName } from "../lib/time.js";
import { clock, now } from "../lib/prefs.js";

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

/** A state: its colour, a sign, and its word, so that no one needs to see colours. */
export function State({ of, label }) {
  return html`
    <span class=${classes("state", `is-${TONES[of] || of}`)}>
      <span aria-hidden="true">${SIGNS[of] || "·"}</span> ${label || of}
    </span>
  `;
}

/** The state of an item in the words of people: one that failed and waits is retrying, one that was given up is in review. */
export const ItemState = ({ item }) => html`
  <${State}
    of=${item.state === "waiting" && item.attempt > 0 ? "retrying" : item.state}
    label=${item.state === "failed" ? "in review" : null}
  />
`;

/** A moment, as the switch for times says; the exact time is always to be seen. */
export function Time({ at, long = false }) {
  if (!at) return html`<span class="none">–</span>`;
  const shown = long ? exact(at) : short(at);
  const title = `${exact(at, true)} UTC`;
  if (clock.value !== "relative")
    return html`<time datetime=${at} title=${title}>${shown}</time>`;
  return html`<time datetime=${at} title=${title}>${ago(at, now.value)} <small>${shown}</small></time>`;
}

/** How long ago, which grows; with the exact time beside it. */
export function Age({ at }) {
  if (!at) return html`<span class="none">–</span>`;
  return html`<time datetime=${at} title=${`${exact(at)} ${zoneName()}`}>${ago(at, now.value)}</time>`;
}

export const Duration = ({ seconds }) => html`<span class="number">${duration(seconds) || "–"}</span>`;

/** The old way of a selection, which also works without HTTPS, or where the browser keeps scripts from the clipboard. */
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

export async function copy(text) {
  if (!navigator.clipboard || !isSecureContext) return copySelected(text);
  return navigator.clipboard.writeText(text).then(
    () => true,
    () => copySelected(text),
  );
}

export function Copy({ text, label = "Copy" }) {
  const [said, setSaid] = useState("");
  const act = async (event) => {
    event.stopPropagation();
    event.preventDefault();
    setSaid((await copy(String(text))) ? "Copied" : "Press Ctrl+C");
    setTimeout(() => setSaid(""), 1500);
  };
  return html`
    <button type="button" class="mini" onClick=${act} aria-label=${said ? `${said}: ${label}` : label}>
      ${said || "Copy"}
      <span class="sr" role="status">${said}</span>
    </button>
  `;
}

/** A command for a terminal, with a button that copies it. */
export const Command = ({ children }) => html`
  <div class="command">
    <code>${children}</code>
    <${Copy} text=${children} label="Copy the command" />
  </div>
`;

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

export const Empty = ({ title, children }) => html`
  <div class="empty">
    <p><strong>${title}</strong></p>
    ${children}
  </div>
`;

/** What went wrong and what one can do; never an empty page. */
export function Trouble({ error, retry }) {
  const advice =
    error.status === 403
      ? "Your account or key may not do this. An admin can change that under Users."
      : error.status === 404
        ? "It may have been removed, or belongs to someone else."
        : error.status === 0
          ? "Is the service running? `duly up` starts it."
          : error.status >= 500
            ? "The service's log says more; `duly doctor` looks for the cause."
            : "";
  return html`
    <div class="trouble" role="alert">
      <p><strong>${error.message}</strong></p>
      ${advice && html`<p>${advice}</p>`}
      ${retry && html`<button type="button" onClick=${retry}>Try again</button>`}
    </div>
  `;
}

/** A page's data: waits without jumping, tells an error, or draws. */
export function Loaded({ of, children }) {
  if (of.data !== undefined)
    return html`
      ${of.error && html`<${Trouble} error=${of.error} retry=${of.reload} />`}
      ${children(of.data)}
    `;
  if (of.error) return html`<${Trouble} error=${of.error} retry=${of.reload} />`;
  return html`<p class="loading" role="status">Loading…</p>`;
}
