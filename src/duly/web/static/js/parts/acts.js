// Acts on many items: on a selection at once; on all that match a filter as durable work, whose progress is shown.
import { html, signal, useEffect } from "../lib/ui.js";
import { get, post, may } from "../lib/api.js";
import { forget } from "../lib/live.js";
import { changeAll, changedText, eachOf } from "../lib/many.js";
import { count, counted } from "../lib/time.js";
import { REASON, act, ask, askReason, say, sayError } from "./dialogs.js";
import { Bar } from "./marks.js";

/**
 * The verb of each act, and its participle.
 * @type {Record<string, [string, string]>}
 */
export const WORDS = {
  retry: ["Retry", "tried again"],
  cancel: ["Cancel", "cancelled"],
  discard: ["Discard", "discarded"],
};
/** @param {number} number */
const things = (number) => counted(number, "item");

/**
 * @param {string} action
 * @param {(string | number)[]} ids
 * @param {string} reason
 */
const changeItems = (action, ids, reason) => changeAll("/api/items/act", { action, reason }, ids);

/**
 * Do this to these items now. Discarding asks first, because it cannot be undone; cancelling can be undone.
 * @param {string} action
 * @param {string[]} ids
 * @param {() => unknown} after
 */
export async function actOn(action, ids, after) {
  let reason = "";
  if (action === "discard") {
    const answer = await askReason(
      `Discard ${things(ids.length)}?`,
      "They leave review for good. This cannot be undone.",
    );
    if (answer === null) return;
    reason = answer;
  }
  /**
   * @param {number[]} changed
   * @returns {Message}
   */
  const messageOn = (changed) => {
    const undo =
      action === "cancel" && changed.length
        ? () => act(() => changeItems("retry", changed, "undone"), "Undone.", { after })
        : null;
    return { ...changedText(changed.length, ids.length, "item", WORDS[action][1]), undo, seconds: undo ? 12 : 6 };
  };
  await act(() => changeItems(action, ids, reason), messageOn, { after });
}

/**
 * An act on rows of a selection, in a request for each.
 * @typedef {object} RowAct
 * @property {string} word the text of its button
 * @property {any[]} rows those of the selection that it can be done to
 * @property {(row: any) => Promise<unknown>} one
 * @property {string} done the participle
 * @property {string} [sure] what to ask before, for what cannot simply be undone
 */

/**
 * The buttons of a selection whose rows are acted on one by one.
 * @param {GridSelection & { noun: string, acts: RowAct[] }} props
 */
export function RowActs({ selected, rows, clear, reload, noun, acts }) {
  if (!rows.length) {
    return selected.size ? html`<span>${count(selected.size)} selected, not read yet</span>` : null;
  }
  const after = () => {
    clear();
    reload();
  };
  /** @param {RowAct} chosen */
  const carryOut = async ({ word, rows: fit, one, done, sure }) => {
    const question = {
      title: `${word} ${counted(fit.length, noun)}`,
      text: sure,
      typed: String(fit.length),
      yes: `${word} them`,
      no: "Keep them",
      isGrave: true,
    };
    if (sure && !(await ask(question))) return;
    await act(
      () => eachOf(fit, one),
      (came) => came.text(noun, done),
      { after },
    );
  };
  return html`
    <span>${count(rows.length)} selected</span>
    ${acts.map((each) =>
      each.rows.length > 0 &&
      html`<button type="button" onClick=${() => carryOut(each)}>${each.word}</button>`,
    )}
    <button type="button" class="mini" onClick=${clear}>Clear</button>
  `;
}

// -- all that match a filter

/** The acts that were ordered on this page and are under way, newest first. */
const ordered = signal(/** @type {Wire.BulkAct[]} */ ([]));

/**
 * Do this to all items that match, after the person has typed how many these are.
 * `filter` is that of POST /api/acts; `fields` ask for more, such as {name: "rate"}.
 * @param {string} action
 * @param {Query} filter
 * @param {{ userId?: string | null, fields?: FieldProps[], more?: Query }} [options]
 */
export async function orderAct(action, filter, { userId = null, fields = [], more = {} } = {}) {
  let found;
  try {
    found = await post("/api/acts/count", { action, filter }, { query: { userId } });
  } catch (error) {
    sayError(error);
    return;
  }
  if (!found.count) {
    say(`No item that fits can be ${WORDS[action][1]}.`, { tone: "bad" });
    return;
  }
  await ask({
    title: `${WORDS[action][0]} all ${count(found.count)}${found.isMore ? " or more" : ""} that fit?`,
    text: "It runs in the background, in batches. If you stop it, changes already made are kept.",
    typed: String(found.count),
    yes: `${WORDS[action][0]} ${count(found.count)}`,
    isGrave: action !== "retry",
    fields: [...fields, REASON],
    check: async (values) => {
      const rate = values.rate ? { rate: Number(values.rate) } : {};
      const order = { action, filter, reason: values.reason, ...rate, ...more };
      const made = await post("/api/acts", order, { query: { userId } });
      ordered.value = [made, ...ordered.value].slice(0, 5);
      forget();
      return made;
    },
  });
}

/** @type {FieldProps} */
export const RATE = {
  name: "rate",
  label: "Items per second",
  type: "number",
  min: "0.01",
  max: "10000",
  step: "any",
  hint: "Empty: as fast as possible.",
};

/** @param {number} id */
const close = (id) => {
  ordered.value = ordered.value.filter((each) => each.id !== id);
};

/**
 * Keep the acts that run up to date, and call `onDone` when one ends.
 * @param {(() => unknown) | undefined} onDone
 */
function useOrdered(onDone) {
  const running = ordered.value
    .filter((each) => each.state === "running")
    .map((each) => each.id)
    .join(",");
  useEffect(() => {
    if (!running) return undefined;
    let isOver = false;
    const look = async () => {
      for (const id of running.split(",")) {
        try {
          const made = await get(`/api/acts/${id}`);
          if (isOver) return;
          ordered.value = ordered.value.map((each) => (each.id === made.id ? made : each));
          if (made.state !== "running") {
            forget();
            onDone?.();
          }
        } catch {
          // The next look shows the error, if it stays.
        }
      }
    };
    const timer = setInterval(look, 1_000);
    return () => {
      isOver = true;
      clearInterval(timer);
    };
  }, [running]);
}

/** @param {{ order: Wire.BulkAct }} props */
function OrderedAct({ order }) {
  const [verb, participle] = WORDS[order.action];
  const isRunning = order.state === "running";
  const share = order.total ? order.seen / order.total : 0;
  const stop = () => act(() => post(`/api/acts/${order.id}/cancel`), "Stopped.");
  return html`
    <div class="banner" role="group" aria-label=${`${verb} all, number ${order.id}`}>
      <span role="status">
        ${verb} all: <b class="number">${count(order.changed)}</b> ${participle},${" "}
        <span class="number">${count(order.seen)} of ${count(order.total)}</span> looked at, ${order.state}
      </span>
      <span class="narrow">
        <${Bar}
          value=${order.state === "done" ? 1 : share}
          label="Progress"
          tone=${order.state === "cancelled" ? "cancelled" : "done"}
        />
      </span>
      ${isRunning && may("write") && html`<button type="button" class="mini" onClick=${stop}>Stop</button>`}
      ${!isRunning && html`
        <button type="button" class="mini" aria-label="Close" onClick=${() => close(order.id)}>✕</button>
      `}
    </div>
  `;
}

/**
 * The progress of the acts that were ordered here, until they are closed.
 * @param {{ onDone?: () => unknown }} props
 */
export function Ordered({ onDone }) {
  useOrdered(onDone);
  return html`${ordered.value.map((order) => html`<${OrderedAct} key=${order.id} order=${order} />`)}`;
}
