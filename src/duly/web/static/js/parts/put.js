// A form that is made of a task's signature, to put an item.
import { html, useState } from "../lib/ui.js";
import { post } from "../lib/api.js";
import { useLive, forget } from "../lib/live.js";
import { Exact, parse, stringify } from "../lib/json.js";
import { fromInput } from "../lib/time.js";
import { Dialog, Field, say } from "./dialogs.js";
import { Empty, Command, Loaded } from "./marks.js";

/** A number as it was written, with all of its digits. */
function number(text, isWhole) {
  if (!(isWhole ? /^-?\d+$/ : /^-?\d+(\.\d+)?([eE][+-]?\d+)?$/).test(text)) throw new Error(isWhole ? "must be a whole number" : "must be a number");
  return parse(text) instanceof Exact ? new Exact(text) : Number(text);
}

const READ = {
  string: (text) => text,
  integer: (text) => number(text.trim(), true),
  number: (text) => number(text.trim(), false),
  boolean: (text) => text === "true",
  datetime: (text) => fromInput(text),
  json: (text) => { try { return parse(text); } catch (error) { throw new Error(`is no JSON: ${error.message}`); } },
};

function Param({ of }) {
  const name = `arg:${of.name}`;
  const said = of.default === null || of.default === "" ? "" : `Default: ${stringify(of.default)}.`;
  const label = html`${of.name} <small>${of.type}${of.required ? ", required" : ""}</small>`;
  const given = { name, label, hint: said || undefined };
  if (of.type === "boolean") return html`<${Field} ...${given} type="select" options=${[["", of.required ? "choose" : "default"], ["true", "yes"], ["false", "no"]]} required=${of.required} />`;
  if (of.type === "datetime") return html`<${Field} ...${given} type="datetime-local" required=${of.required} />`;
  if (of.type === "json") return html`<${Field} ...${given} type="json" rows=${3} required=${of.required} />`;
  return html`<${Field} ...${given} inputmode=${of.type === "string" ? null : "decimal"} autocomplete="off" required=${of.required && of.type !== "string"} />`;
}

/** The arguments that a form says: what was left empty is left out, unless it is needed. */
function readArgs(task, form) {
  const args = {};
  for (const param of task.params) {
    const text = form.get(`arg:${param.name}`) ?? "";
    if (text === "" && !(param.required && param.type === "string")) continue;
    try { args[param.name] = READ[param.type](text); } catch (error) { throw new Error(`${param.name} ${error.message}`); }
  }
  const more = form.get("more") ?? "";
  return more.trim() ? { ...args, ...READ.json(more) } : args;
}

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
        task: task.name, args: readArgs(task, form), key: form.get("key") || null, at: fromInput(form.get("at")), delay: whole("delay"), rank: whole("rank"), tries: whole("tries"),
      });
      forget();
      say(made.fresh ? `Item ${made.id} is put.` : `Item ${made.id} has this key already; nothing new was put.`);
      onDone(made);
    } catch (error) {
      setWrong(error);
      setBusy(false);
    }
  };
  return html`<${Dialog} title="Put a new item" wide onClose=${onClose}><${Loaded} of=${tasks}>${({ items }) => (items.length ? html`
    <${Field} name="task" label="Task" type="select" value=${name} options=${[["", "choose a task"], ...items.map((each) => each.name)]} onChange=${(event) => { setName(event.target.value); setWrong(null); }} />
    ${task && html`<form key=${task.name} onSubmit=${send}>
      <p class="note">${task.doc} <span>Queue <code>${task.queue}</code>; ${task.retry}.</span></p>
      ${task.params.map((param) => html`<${Param} key=${param.name} of=${param} />`)}
      ${task.takesMore && html`<${Field} name="more" label="More arguments" type="json" rows=${3} hint="A JSON object." />`}
      <details><summary>When, key, rank and tries</summary><div class="form">
        <${Field} name="at" label="At" type="datetime-local" hint="Empty: now." />
        <${Field} name="delay" label="Or after seconds" type="number" min="0" step="any" />
        <${Field} name="key" label="Key" hint="One live item per task and key." autocomplete="off" />
        <${Field} name="rank" label="Rank" type="number" hint="Smaller goes first." />
        <${Field} name="tries" label="Tries" type="number" min="1" />
      </div></details>
      ${wrong && html`<p class="wrong" role="alert">${wrong.field ? `${wrong.field}: ` : ""}${wrong.message}</p>`}
      <footer><button type="button" onClick=${onClose}>Not now</button><button type="submit" class="main" disabled=${isBusy}>Put</button></footer>
    </form>`}` : html`<${Empty} title="No task is known here."><p>Start the service with your app:</p><${Command}>duly serve --app MODULE:APP</${Command}></${Empty}>`)}</${Loaded}></${Dialog}>`;
}
