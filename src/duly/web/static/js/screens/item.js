// One item: what happened to it, what it was given and gave, and all that can be done about it.
import { html, useState } from "../lib/ui.js";
import { get, may, post } from "../lib/api.js";
import { go, Link } from "../lib/router.js";
import { useLive, forget } from "../lib/live.js";
import { stringify } from "../lib/json.js";
import { fromInput, toInput, duration, secondsBetween } from "../lib/time.js";
import { Title } from "../parts/shell.js";
import { service } from "../lib/service.js";
import { AuditLines } from "../parts/audit_lines.js";
import { Facts, Section } from "../parts/table.js";
import { Copy, Loaded, ItemState, Time } from "../parts/marks.js";
import { act, ask, askReason, say } from "../parts/dialogs.js";
import { Json } from "../parts/json_view.js";
import { EditItem } from "../parts/item_edit.js";

const MASK = /"[*•]{3,}"/;
// How what happened is coloured; what a person did has the colour that nothing else has.
/** @type {Record<string, string>} */
const TONES = {
  put: "waiting",
  due: "waiting",
  claimed: "running",
  failed: "failed",
  gave_up: "failed",
  crashed: "failed",
  lost: "failed",
  given_up: "failed",
  done: "done",
  skipped: "cancelled",
  expired: "cancelled",
  not_found: "retrying",
  cancelled: "cancelled",
  discarded: "cancelled",
};

/** @param {Wire.Item} item */
const isEnded = (item) => ["done", "failed", "cancelled"].includes(item.state);

/** @param {{ of: Wire.ItemStory["timeline"] }} props */
function Timeline({ of }) {
  return html`
    <ol class="timeline">
      ${of.map((each, at) => html`
        <li key=${at} class=${`is-${TONES[each.kind] ?? "paused"}`}>
          <${Time} at=${each.at} long /> <strong>${each.text}</strong>
          ${each.error && html`<div class="wrong wrap">${each.error}</div>`}
          ${each.traceback && html`
            <details>
              <summary>Traceback</summary>
              <pre tabindex="0">${each.traceback}</pre>
            </details>
          `}
        </li>
      `)}
    </ol>
  `;
}

/** @param {{ item: Wire.Item, reload: () => unknown, onEdit: () => void }} props */
function Acts({ item, reload, onEdit }) {
  const { id, state } = item;
  const done = { after: reload };
  /** @param {string | null} at */
  const retry = (at) =>
    act(
      () => post(`/api/items/${id}/retry`, at ? { at } : undefined),
      at ? `Item ${id} is tried then.` : `Item ${id} is tried now.`,
      done,
    );
  const later = async () => {
    const answer = await ask({
      title: "Try it at a time",
      fields: [
        { name: "at", label: "At", type: "datetime-local", required: true, value: toInput(item.dueAt) },
      ],
      yes: "Try it then",
    });
    if (answer) retry(fromInput(answer.at));
  };
  const cancel = () =>
    act(
      () => post(`/api/items/${id}/cancel`, { reason: "" }),
      { text: `Item ${id} is cancelled.`, undo: () => retry(null), seconds: 12 },
      done,
    );
  const discard = async () => {
    const reason = await askReason(`Discard item ${id}?`, "It leaves review for good. This cannot be undone.");
    if (reason === null) return;
    act(() => post(`/api/items/${id}/discard`, { reason }), `Item ${id} is discarded.`, done);
  };
  const again = () =>
    ask({
      title: "Put it again as a new item",
      text: "Same task, arguments, queue, rank and tries. This item stays as it is.",
      yes: "Put again",
      fields: [
        { name: "at", label: "At", type: "datetime-local", hint: "Empty: now." },
        { name: "key", label: "Key", hint: "One live item per task and key; empty: none." },
      ],
      check: async (answer) => {
        const made = await post(`/api/items/${id}/again`, {
          at: fromInput(answer.at),
          key: answer.key || null,
        });
        forget();
        say(`Item ${made.id} is put.`);
        go(`/items/${made.id}`);
      },
    });
  if (!may("write")) return null;
  const canRetry = ["waiting", "failed", "cancelled"].includes(state);
  return html`
    ${canRetry && html`
      <button type="button" class="main" onClick=${() => retry(null)}>
        ${state === "waiting" ? "Run now" : "Retry now"}
      </button>
      <button type="button" onClick=${later}>${state === "waiting" ? "Run at…" : "Retry at…"}</button>
    `}
    ${["waiting", "failed"].includes(state) && html`<button type="button" onClick=${onEdit}>Edit</button>`}
    ${isEnded(item) && html`<button type="button" onClick=${again}>Again as new</button>`}
    ${["waiting", "running"].includes(state) && html`<button type="button" onClick=${cancel}>Cancel</button>`}
    ${state === "failed" && html`<button type="button" onClick=${discard}>Discard</button>`}
  `;
}

/**
 * The arguments, progress and result of an item. Masked values are shown on demand, which is logged.
 * @param {{ item: Wire.Item }} props
 */
function Values({ item }) {
  const [shown, setShown] = useState(/** @type {any} */ (null));
  const isMasked = MASK.test(stringify([item.args, item.result, item.progress]));
  const reveal = () =>
    act(
      async () => setShown(await get(`/api/items/${item.id}`, { reveal: true })),
      "The values are shown. This was recorded in the audit log.",
    );
  const { args, result, progress } = shown ?? item;
  return html`
    <${Section}
      title="Values"
      actions=${
        isMasked &&
        may("write") &&
        (shown ? html`
          <button type="button" class="mini" onClick=${() => setShown(null)}>Mask again</button>
        ` : html`<button type="button" class="mini" onClick=${reveal}>Reveal masked values</button>`)
      }
    >
      <div class="cards">
        <div>
          <h3>Arguments</h3>
          <${Json} value=${args} label="Arguments" />
        </div>
        ${result !== null && html`
          <div>
            <h3>Result</h3>
            <${Json} value=${result} label="Result" />
          </div>
        `}
        ${progress !== null && html`
          <div>
            <h3>Progress</h3>
            <${Json} value=${progress} label="Progress" />
          </div>
        `}
      </div>
    </${Section}>
  `;
}

/** @param {string} id */
const traced = (id) => service.value?.traceUrl?.replace("{trace_id}", id);

/**
 * @param {Wire.ItemStory} one
 * @returns {import("../parts/table.js").Fact[]}
 */
const factsOf = (one) => [
  [
    "State",
    html`
      <${ItemState} item=${one} />
      ${one.outcome && one.outcome !== one.state ? html` <small>${one.outcome}</small>` : ""}
    `,
  ],
  ["Task", html`<${Link} to=${`/items?task=${encodeURIComponent(one.task)}`}>${one.task}</${Link}>`],
  [
    "Queue",
    html`
      <${Link} to=${`/items?queue=${encodeURIComponent(one.queue)}`}>${one.queue}</${Link}>
      ${one.lane === "retry" ? ", retry lane" : ""}
      ${one.rank ? `, rank ${one.rank}` : ""}
    `,
  ],
  ["Due", html`<${Time} at=${one.dueAt} long />`],
  one.plannedAt !== one.dueAt && ["Planned", html`<${Time} at=${one.plannedAt} long />`],
  [
    "Tries",
    html`
      <span class="number">
        ${one.attempt}
        ${one.maxAttempts ? ` of ${one.maxAttempts}` : ""}
      </span>
      ${one.crashes ? `, ${one.crashes} crashed` : ""}
      ${one.losses ? `, ${one.losses} lost` : ""}
      ${one.excuses ? `, ${one.excuses} not counted` : ""}
    `,
  ],
  one.state === "waiting" && one.cause && ["Given back", one.cause],
  ["Created", html`<${Time} at=${one.createdAt} long />`],
  ["Started", html`<${Time} at=${one.startedAt} long />`],
  [
    "Ended",
    html`
      <${Time} at=${one.finishedAt} long />
      ${one.startedAt && one.finishedAt && html`
        ${" "}
        <small>${duration(secondsBetween(one.startedAt, one.finishedAt))}</small>
      `}
    `,
  ],
  one.claimedBy && ["Worker", one.claimedBy],
  one.leaseUntil && ["Lease until", html`<${Time} at=${one.leaseUntil} long />`],
  ["Owner", one.owner],
  one.key && [
    "Key",
    html`<code>${one.key}</code> <${Copy} text=${one.key} label="Copy the key" />`,
  ],
  [
    "Execution key",
    html`
      <code>${one.executionKey}</code>${" "}
      <${Copy} text=${one.executionKey} label="Copy the execution key" />
    `,
  ],
  one.traceId && [
    "Trace",
    html`
      ${traced(one.traceId) ? html`
        <a href=${traced(one.traceId)} target="_blank" rel="noreferrer">${one.traceId}</a>
      ` : html`<code>${one.traceId}</code>`}${" "}
      <${Copy} text=${one.traceId} label="Copy the trace id" />
    `,
  ],
  one.jobId && ["Job", html`<${Link} to=${`/jobs/${one.jobId}`}>job ${one.jobId}</${Link}>`],
  one.schedule && [
    "Schedule",
    html`<${Link} to=${`/schedules/${one.schedule.id}`}>
      ${one.schedule.key || `schedule ${one.schedule.id}`}
    </${Link}>`,
  ],
  one.errorGroup && [
    "Group",
    html`<${Link} to=${`/review/${one.errorGroup}`}>failures like this</${Link}>`,
  ],
];

/** @param {{ id: string }} props */
export default function Item({ id }) {
  const story = useLive(`/api/items/${id}`, {}, { every: 8 });
  const [isEditing, setEditing] = useState(false);
  const item = story.data;
  return html`
    <${Title}
      text=${`Item ${id}`}
      actions=${item && html`<${Acts} item=${item} reload=${story.reload} onEdit=${() => setEditing(true)} />`}
    >
      Item ${id} ${item && html`<small>${item.task}</small>`}
    </${Title}>
    <${Loaded} of=${story}>
      ${(/** @type {Wire.ItemStory} */ one) => html`
        <div class="card">
          <${Facts} of=${factsOf(one)} />
        </div>
        ${one.lastError && one.state !== "done" && html`
          <${Section} title="Last error" actions=${html`<${Copy} text=${one.lastError} label="Copy the error" />`}>
            <pre tabindex="0">${one.lastError}</pre>
          </${Section}>
        `}
        <${Section} title="Timeline"><${Timeline} of=${one.timeline} /></${Section}>
        <${Values} key=${one.id} item=${one} />
        <${AuditLines} title="Acts of people" lines=${one.audit} />
        ${isEditing && html`<${EditItem} item=${one} onClose=${() => setEditing(false)} onDone=${story.reload} />`}
      `}
    </${Loaded}>
  `;
}
