// Changes an item that waits or is in review, and shows the difference before it is saved.
import { html, useState } from "../lib/ui.js";
import { patch, post } from "../lib/api.js";
import { forget } from "../lib/live.js";
import { parse, stringify } from "../lib/json.js";
import { fromInput, toInput } from "../lib/time.js";
import { Dialog, Field, say } from "./dialogs.js";
import { Diff } from "./json_view.js";

/** What of the form differs from the item, as PATCH takes it. */
function changes(item, form, args) {
  const said = {};
  if (stringify(args) !== stringify(item.args)) said.args = args;
  if (form.get("queue") && form.get("queue") !== item.queue) said.queue = form.get("queue");
  if (form.get("rank") !== "" && Number(form.get("rank")) !== item.rank) said.rank = Number(form.get("rank"));
  if (form.get("tries") && Number(form.get("tries")) !== item.maxAttempts) said.tries = Number(form.get("tries"));
  if (form.get("at") && form.get("at") !== toInput(item.dueAt)) said.at = fromInput(form.get("at"));
  return said;
}

/** `item`: as /api/items/{id} has it. A failed one can be tried again with what was changed. */
export function EditItem({ item, onClose, onDone }) {
  const [text, setText] = useState(stringify(item.args, 2));
  const [error, setError] = useState(null);
  const [isBusy, setBusy] = useState(false);
  let args;
  let problem = null;
  try { args = parse(text); } catch (wrong) { problem = wrong.message; }
  const isFailed = item.state === "failed";
  const send = async (event) => {
    event.preventDefault();
    const isRetried = event.submitter?.value === "retry";
    const said = changes(item, new FormData(event.target), args);
    setBusy(true);
    try {
      if (Object.keys(said).length) await patch(`/api/items/${item.id}`, said);
      else if (!isRetried) throw new Error("Nothing was changed.");
      if (isRetried) await post(`/api/items/${item.id}/retry`);
      forget();
      say(`Item ${item.id} is ${isRetried ? "changed and tried again" : "changed"}.`);
      await onDone();
    } catch (wrong) {
      setError(wrong);
      setBusy(false);
    }
  };
  return html`<${Dialog} title=${`Edit item ${item.id}`} wide onClose=${onClose}><form onSubmit=${send}>
    <div class="halves"><div>
      <div class="field"><label for="edit-args">Arguments</label><textarea id="edit-args" class="code" rows="12" spellcheck="false" aria-invalid=${Boolean(problem)} aria-describedby="edit-args-hint" value=${text} onInput=${(event) => setText(event.target.value)}></textarea>
        <small id="edit-args-hint">JSON. What is masked stays as it is unless you write over it.</small></div>
    </div><div>
      <div class="field"><span>Difference</span>${problem ? html`<p class="wrong" role="alert">This is no JSON: ${problem}</p>` : html`<${Diff} before=${item.args} after=${args} />`}</div>
      <div class="form">
        <${Field} name="queue" label="Queue" value=${item.queue} autocomplete="off" spellcheck="false" />
        <${Field} name="rank" label="Rank" type="number" min="-100" max="100" value=${item.rank} />
        <${Field} name="tries" label="Tries in all" type="number" min="1" value=${item.maxAttempts ?? ""} />
        ${!isFailed && html`<${Field} name="at" label="Due" type="datetime-local" value=${toInput(item.dueAt)} />`}
      </div>
    </div></div>
    ${error && html`<p class="wrong" role="alert">${error.field ? `${error.field}: ` : ""}${error.message}</p>`}
    <footer><button type="button" onClick=${onClose}>Not now</button><button type="submit" value="save" class=${isFailed ? "" : "main"} disabled=${isBusy || problem}>Save</button>
      ${isFailed && html`<button type="submit" value="retry" class="main" disabled=${isBusy || problem}>Save and try again</button>`}</footer>
  </form></${Dialog}>`;
}
