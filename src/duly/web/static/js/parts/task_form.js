// A form made of a task's signature: one field for each argument, of its type, with its default.
import { html } from "../lib/ui.js";
import { useLive } from "../lib/live.js";
import { parse, stringify } from "../lib/json.js";
import { fromInput, toInput } from "../lib/time.js";
import { Field } from "./dialogs.js";

/** The tasks that can be put here; undefined until they are known. */
export function useTasks() {
  const tasks = useLive("/api/tasks", { pageSize: 500 }, { every: 0 });
  return { tasks: tasks.data?.items, error: tasks.error };
}

const NUMERIC = { integer: "-?[0-9]+", number: "-?[0-9]+([.][0-9]+)?([eE][-+]?[0-9]+)?" };
const WORDS = {
  string: "text",
  integer: "whole number",
  number: "number",
  boolean: "yes or no",
  datetime: "moment",
  json: "JSON",
};

const hintOf = (param) => {
  const told = [param.doc, WORDS[param.type]];
  if (!param.required)
    told.push(
      param.default === null || param.default === ""
        ? "may be left empty"
        : `left empty: ${stringify(param.default)}`,
    );
  return told.filter(Boolean).join("; ");
};

function Param({ param, value }) {
  const shared = {
    name: `arg.${param.name}`,
    label: param.name,
    hint: hintOf(param),
    required: param.required && param.type !== "string",
  };
  if (param.type === "boolean") {
    const options = [
      ...(param.required ? [] : [["", "as the task says"]]),
      ["true", "yes"],
      ["false", "no"],
    ];
    return html`
      <${Field}
        ...${shared}
        type="select"
        value=${value === undefined || value === null ? "" : String(value)}
        options=${options}
      />
    `;
  }
  if (param.type === "datetime")
    return html`<${Field} ...${shared} type="datetime-local" value=${toInput(value)} />`;
  if (param.type === "json")
    return html`
      <${Field} ...${shared} type="json" rows="3" value=${value === undefined ? "" : stringify(value, 2)} />
    `;
  const typed = NUMERIC[param.type] ? { inputmode: "decimal", pattern: NUMERIC[param.type] } : {};
  return html`
    <${Field}
      ...${shared}
      ...${typed}
      value=${value === undefined || value === null ? "" : String(value)}
      autocomplete="off"
      spellcheck="false"
    />
  `;
}

/** `task`: as /api/tasks has it. `values`: the arguments to begin with. */
export function TaskFields({ task, values = {} }) {
  const known = new Set(task.params.map((param) => param.name));
  const more = Object.fromEntries(Object.entries(values).filter(([name]) => !known.has(name)));
  return html`
    <fieldset class="args">
      <legend>Arguments of ${task.name}</legend>
      ${task.params.length === 0 && !task.takesMore && html`<p class="note">It takes none.</p>`}
      ${task.params.map((param) => html`
        <${Param} key=${`${task.name} ${param.name}`} param=${param} value=${values[param.name]} />
      `)}
      ${task.takesMore && html`
        <${Field}
          name="args"
          label="More arguments"
          type="json"
          rows="3"
          value=${stringify(more, 2)}
          hint="A JSON object, by their names."
        />
      `}
    </fieldset>
  `;
}

const wrong = (field, problem) => Object.assign(new Error(problem), { field });

const valueOf = (param, text) => {
  if (param.type === "string") return text;
  if (param.type === "datetime") return fromInput(text);
  try {
    return parse(text);
  } catch {
    throw wrong(param.name, `is no ${WORDS[param.type]}`);
  }
};

/** The arguments that a form with TaskFields says; what was left empty is left to the task. Throws with the name of a field. */
export function argsOf(task, form) {
  const args = {};
  if (task.takesMore) {
    const more = valueOf({ name: "More arguments", type: "json" }, String(form.get("args") || "{}"));
    if (more === null || typeof more !== "object" || Array.isArray(more))
      throw wrong("More arguments", "is no JSON object");
    Object.assign(args, more);
  }
  for (const param of task.params) {
    const text = String(form.get(`arg.${param.name}`) ?? "");
    if (text !== "" || param.required) args[param.name] = valueOf(param, text);
  }
  return args;
}
