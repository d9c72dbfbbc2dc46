// The form to put an item, made of the signature of its task.
import { html, useState } from "../lib/ui.js";
import { post } from "../lib/api.js";
import { forget } from "../lib/live.js";
import { fromInput } from "../lib/time.js";
import { Dialog, say } from "./dialogs.js";
import { Field, FormError } from "./fields.js";
import { Empty, Command, Loaded } from "./marks.js";
import { TaskFields, argsOf, useTasks } from "./task_form.js";

/** @param {{ onClose: () => void, onDone: (answer?: any) => void, first?: string }} props */
export function Put({ onClose, onDone, first = "" }) {
  const tasks = useTasks();
  const [name, setName] = useState(first);
  const [wrong, setWrong] = useState(/** @type {any} */ (null));
  const [isBusy, setBusy] = useState(false);
  const task = tasks.data?.items.find((each) => each.name === name);
  /** @param {FormEvent} event */
  const send = async (event) => {
    event.preventDefault();
    if (!task) return;
    const form = new FormData(event.target);
    setBusy(true);
    try {
      /** @param {string} field */
      const whole = (field) => (form.get(field) ? Number(form.get(field)) : null);
      const made = await post("/api/items", {
        task: task.name,
        args: argsOf(task, form),
        key: form.get("key") || null,
        at: fromInput(form.get("at")),
        delay: whole("delay"),
        rank: whole("rank"),
        tries: whole("tries"),
      });
      forget();
      say(
        made.fresh
          ? `Item ${made.id} is put.`
          : `Item ${made.id} has this key already; nothing new was put.`,
      );
      onDone(made);
    } catch (error) {
      setWrong(error);
      setBusy(false);
    }
  };
  return html`
    <${Dialog} title="Put a new item" wide onClose=${onClose}>
      <${Loaded} of=${tasks}>
        ${(/** @type {{ items: Wire.Task[] }} */ { items }) =>
          items.length ? html`
            <${Field}
              name="task"
              label="Task"
              type="select"
              value=${name}
              options=${[["", "choose a task"], ...items.map((each) => each.name)]}
              onChange=${(event) => {
                setName(event.target.value);
                setWrong(null);
              }}
            />
            ${task && html`
              <form key=${task.name} onSubmit=${send}>
                <p class="note">
                  ${task.doc}${" "}
                  <span>Queue <code>${task.queue}</code>; ${task.retry}.</span>
                </p>
                <${TaskFields} task=${task} />
                <details>
                  <summary>When, key, rank and tries</summary>
                  <div class="form">
                    <${Field} name="at" label="At" type="datetime-local" hint="Empty: now." />
                    <${Field} name="delay" label="Or after seconds" type="number" min="0" step="any" />
                    <${Field}
                      name="key"
                      label="Key"
                      hint="One live item per task and key."
                      autocomplete="off"
                    />
                    <${Field} name="rank" label="Rank" type="number" hint="Smaller goes first." />
                    <${Field} name="tries" label="Tries" type="number" min="1" />
                  </div>
                </details>
                <${FormError} error=${wrong} />
                <footer>
                  <button type="button" onClick=${onClose}>Not now</button>
                  <button type="submit" class="main" disabled=${isBusy}>Put</button>
                </footer>
              </form>
            `}
          ` : html`
            <${Empty} title="No task is known here.">
              <p>Start the service with your app:</p>
              <${Command}>duly serve --app MODULE:APP</${Command}>
            </${Empty}>
          `
        }
      </${Loaded}>
    </${Dialog}>
  `;
}
