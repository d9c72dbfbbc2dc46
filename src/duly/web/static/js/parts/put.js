// A form that is made of a task's signature, to put an item.
import { html, useState } from "../lib/ui.js";
import { post } from "../lib/api.js";
import { useLive, forget } from "../lib/live.js";
import { fromInput } from "../lib/time.js";
import { Dialog, Field, say } from "./dialogs.js";
import { Empty, Command, Loaded } from "./marks.js";
import { TaskFields, argsOf } from "./task_form.js";

export function Put({ onClose, onDone, first = "" }) {
  const tasks = useLive("/api/tasks", { pageSize: 500 }, { every: 0 });
  const [name, setName] = useState(first);
  const [wrong, setWrong] = useState(null);
  const [isBusy, setBusy] = useState(false);
  const task = tasks.data?.items.find((each) => each.name === name);
  const send = async (event) => {
    event.preventDefault();
    const form = new FormData(event.target);
    setBusy(true);
    try {
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
        ${({ items }) =>
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
                ${wrong && html`
                  <p class="wrong" role="alert">
                    ${wrong.field ? `${wrong.field}: ` : ""}
                    ${wrong.message}
                  </p>
                `}
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
