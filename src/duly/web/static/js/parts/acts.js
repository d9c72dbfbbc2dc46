// Acts on many items: on a selection at once, and on all that fit a filter as durable work whose progress is shown.
import { html, signal, useEffect } from "../lib/ui.js";
import { get, post, may } from "../lib/api.js";
import { forget } from "../lib/live.js";
import { changeAll } from "../lib/many.js";
import { count } from "../lib/time.js";
import { act, ask, say } from "./dialogs.js";
import { Bar } from "./marks.js";

export const WORDS = {
  retry: ["Retry", "tried again"],
  cancel: ["Cancel", "cancelled"],
  discard: ["Discard", "discarded"],
};
const things = (number) => `${count(number)} ${number === 1 ? "item" : "items"}`;

const changeItems = (action, ids, reason) => changeAll("/api/items/act", { action, reason }, ids);

/** Do this to these items now. What is discarded is gone, so that is asked for; what is cancelled can be undone. */
export async function actOn(action, ids, after) {
  let reason = "";
  if (action === "discard") {
    const said = await ask({
      title: `Discard ${things(ids.length)}?`,
      text: "They leave review for good. This cannot be undone.",
      typed: "discard",
      yes: "Discard",
      isGrave: true,
      fields: [{ name: "reason", label: "Reason", hint: "For the audit log." }],
    });
    if (!said) return;
    reason = said.reason;
  }
  const told = (changed) => {
    const left = ids.length - changed.length;
    const text = `${things(changed.length)} ${WORDS[action][1]}.${left ? ` ${things(left)} could not be, in the state that they are in.` : ""}`;
    const undo =
      action === "cancel" && changed.length
        ? () => act(() => changeItems("retry", changed, "undone"), "Undone.", { after })
        : null;
    return { text, undo, seconds: undo ? 12 : 6, tone: changed.length ? "ok" : "bad" };
  };
  await act(() => changeItems(action, ids, reason), told, { after });
}

// -- all that fit a filter

/** The acts that were ordered on this page and are under way, newest first. */
const ordered = signal([]);

/**
 * Do this to all items that fit, after telling how many these are and having that number typed.
 * `filter` is that of POST /api/acts; `fields` ask for more, such as {name: "rate"}.
 */
export async function orderAct(action, filter, { userId = null, fields = [], more = {} } = {}) {
  let found;
  try {
    found = await post("/api/acts/count", { action, filter }, { query: { userId } });
  } catch (error) {
    say(error.message, { tone: "bad", seconds: 12 });
    return;
  }
  if (!found.count) {
    say(`No item that fits can be ${WORDS[action][1]}.`, { tone: "bad" });
    return;
  }
  const number = String(found.count);
  await ask({
    title: `${WORDS[action][0]} all ${count(found.count)}${found.isMore ? " or more" : ""} that fit?`,
    text: "It is done as work of its own, portion by portion; what is done stays done when it is stopped.",
    typed: number,
    yes: `${WORDS[action][0]} ${count(found.count)}`,
    isGrave: action !== "retry",
    fields: [...fields, { name: "reason", label: "Reason", hint: "For the audit log." }],
    check: async (said) => {
      const rate = said.rate ? { rate: Number(said.rate) } : {};
      const made = await post(
        "/api/acts",
        { action, filter, reason: said.reason, ...rate, ...more },
        { query: { userId } },
      );
      ordered.value = [made, ...ordered.value].slice(0, 5);
      forget();
      return made;
    },
  });
}

export const RATE = {
  name: "rate",
  label: "Items per second",
  type: "number",
  min: "0.01",
  max: "10000",
  step: "any",
  hint: "Empty: as fast as it goes.",
};

/** How far the acts are that were ordered here, until they are closed. */
export function Ordered({ onDone }) {
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
          /* The next look tells. */
        }
      }
    };
    const timer = setInterval(look, 1_000);
    return () => {
      isOver = true;
      clearInterval(timer);
    };
  }, [running]);
  const close = (id) => {
    ordered.value = ordered.value.filter((each) => each.id !== id);
  };
  return html`
    ${ordered.value.map((each) => html`
      <div
        key=${each.id}
        class="banner"
        role="group"
        aria-label=${`${WORDS[each.action][0]} all, number ${each.id}`}
      >
        <span role="status">
          ${WORDS[each.action][0]} all: <b class="number">${count(each.changed)}</b>${" "}
          ${WORDS[each.action][1]},${" "}
          <span class="number">
            ${count(each.seen)} of ${count(each.total)}
          </span>${" "}
          looked at, ${each.state}
        </span>
        <span class="narrow">
          <${Bar}
            value=${each.state === "done" ? 1 : each.total ? each.seen / each.total : 0}
            label="Progress"
            tone=${each.state === "cancelled" ? "cancelled" : "done"}
          />
        </span>
        ${each.state === "running" && may("write") && html`
          <button
            type="button"
            class="mini"
            onClick=${() => act(() => post(`/api/acts/${each.id}/cancel`), "Stopped.")}
          >
            Stop
          </button>
        `}
        ${each.state !== "running" && html`
          <button type="button" class="mini" aria-label="Close" onClick=${() => close(each.id)}>✕</button>
        `}
      </div>
    `)}
  `;
}
