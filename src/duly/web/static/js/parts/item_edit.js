// Changes an item that waits or is in review, and shows the difference before it is saved.
import { html, useState } from "../lib/ui.js";
import { patch, post } from "../lib/api.js";
import { forget } from "../lib/live.js";
import { parse, stringify } from "../lib/json.js";
import { fromInput, toInput } from "../lib/time.js";
import { Dialog, say } from "./dialogs.js";
import { Field, FormError } from "./fields.js";
import { Diff } from "./json_view.js";

/** @typedef {ReturnType<typeof firstOf>} Texts the texts of the fields */

/** @param {Wire.ItemStory} item */
const firstOf = (item) => ({
  args: stringify(item.args, 2),
  at: toInput(item.dueAt),
  queue: item.queue,
  rank: String(item.rank),
  tries: item.maxAttempts === null ? "" : String(item.maxAttempts),
});

/**
 * What the person changed.
 * @param {Wire.ItemStory} item
 * @param {Texts} first
 * @param {Texts} now
 */
function changesOf(item, first, now) {
  const args = parse(now.args);
  return {
    ...(stringify(args) !== stringify(item.args) && { args }),
    ...(now.at !== first.at && { at: fromInput(now.at) }),
    ...(now.queue !== first.queue && { queue: now.queue }),
    ...(now.rank !== first.rank && { rank: Number(now.rank) }),
    ...(now.tries !== first.tries && { tries: Number(now.tries) }),
  };
}

/**
 * Edits an item. One in review can be tried again at once.
 * @param {{ item: Wire.ItemStory, onClose: () => void, onDone: () => void }} props
 */
export function EditItem({ item: given, onClose, onDone }) {
  // As it was when the dialog was opened: only what the person changes is sent.
  const [{ item, first }] = useState(() => ({ item: given, first: firstOf(given) }));
  const isFailed = item.state === "failed";
  const [now, setNow] = useState(first);
  const [wrong, setWrong] = useState(/** @type {any} */ (null));
  const [isBusy, setBusy] = useState(false);
  /** @param {string} name */
  const set = (name) => (/** @type {{ target: HTMLInputElement }} */ event) =>
    setNow({ ...now, [name]: event.target.value });
  let args = null;
  let unread = "";
  try {
    args = parse(now.args);
  } catch (error) {
    unread = error.message;
  }
  const before = { ...first, args: item.args };
  const after = { ...now, args };
  const isSame = !unread && stringify(before) === stringify(after);
  /** @param {SubmitEvent} event */
  const send = async (event) => {
    event.preventDefault();
    const isRetried = event.submitter instanceof HTMLButtonElement && event.submitter.value === "retry";
    setBusy(true);
    try {
      if (!isSame) await patch(`/api/items/${item.id}`, changesOf(item, first, now));
      if (isRetried) await post(`/api/items/${item.id}/retry`);
      forget();
      say(`Item ${item.id} is ${isRetried ? "changed and tried again" : "changed"}.`);
      onClose();
      onDone();
    } catch (error) {
      setWrong(error);
      setBusy(false);
    }
  };
  return html`
    <${Dialog} title=${`Edit item ${item.id}`} wide onClose=${onClose}>
      <form onSubmit=${send}>
        <${Field}
          name="args"
          label="Arguments"
          type="json"
          rows=${10}
          value=${first.args}
          onInput=${set("args")}
          hint="Values that are masked stay as they are unless you write over them."
        />
        ${unread && html`<p class="wrong" role="alert">The arguments are not JSON: ${unread}</p>`}
        <div class="form">
          <${Field} name="at" label="Due" type="datetime-local" value=${first.at} onInput=${set("at")} />
          <${Field} name="queue" label="Queue" value=${first.queue} onInput=${set("queue")} />
          <${Field} name="rank" label="Rank" type="number" value=${first.rank} onInput=${set("rank")} />
          <${Field}
            name="tries"
            label="Tries in all"
            type="number"
            min="1"
            value=${first.tries}
            onInput=${set("tries")}
          />
        </div>
        <h3>What changes</h3>
        ${isSame || unread ? html`<p class="note">Nothing yet.</p>` : html`<${Diff} before=${before} after=${after} />`}
        <${FormError} error=${wrong} />
        <footer>
          <button type="button" onClick=${onClose}>Not now</button>
          <button
            type="submit"
            value="save"
            class=${isFailed ? "" : "main"}
            disabled=${isBusy || isSame || Boolean(unread)}
          >
            Save
          </button>
          ${isFailed && html`
            <button type="submit" value="retry" class="main" disabled=${isBusy || Boolean(unread)}>
              Save and try again
            </button>
          `}
        </footer>
      </form>
    </${Dialog}>
  `;
}
