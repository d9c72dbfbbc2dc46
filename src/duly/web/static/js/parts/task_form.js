// A form made of the signature of a task: one field for each argument, of its type, with its default.
import { html } from "../lib/ui.js";
import { useLive } from "../lib/live.js";
import { parse, stringify } from "../lib/json.js";
import { fromInput, toInput } from "../lib/time.js";
import { Field } from "./fields.js";

/** The tasks of this service. */
export const useTasks = () => useLive("/api/tasks", { pageSize: 500 }, { every: 0 });

/** @type {Record<string, string>} */
const NUMERIC = { integer: "-?[0-9]+", number: "-?[0-9]+([.][0-9]+)?([eE][-+]?[0-9]+)?" };
/** @type {Record<string, string>} */
const WORDS = {
  string: "text",
  integer: "whole number",
  number: "number",
  boolean: "yes or no",
  datetime: "time",
  json: "JSON",
};

/** @param {Wire.Param} param */
const hintOf = (param) => {
  const word = WORDS[param.type];
  if (param.required) return word;
  const isEmpty = param.default === null || param.default === "";
  return `${word}; ${isEmpty ? "may be left empty" : `left empty: ${stringify(param.default)}`}`;
};

/** @param {{ param: Wire.Param, value: any }} props */
function Param({ param, value }) {
  const shared = {
    name: `arg.${param.name}`,
    label: param.name,
    hint: hintOf(param),
    required: param.required && param.type !== "string",
  };
  if (param.type === "boolean") {
    const options = [
      ...(param.required ? [] : [["", "default of the task"]]),
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
  if (param.type === "datetime") {
    return html`<${Field} ...${shared} type="datetime-local" value=${toInput(value)} />`;
  }
  if (param.type === "json") {
    const text = value === undefined ? "" : stringify(value, 2);
    return html`<${Field} ...${shared} type="json" rows="3" value=${text} />`;
  }
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

/**
 * The fields of a task, with the arguments to begin with.
 * @param {{ task: Wire.Task, values?: Record<string, any> }} props
 */
export function TaskFields({ task, values = {} }) {
  const known = new Set(task.params.map((param) => param.name));
  const more = Object.fromEntries(Object.entries(values).filter(([name]) => !known.has(name)));
  return html`
    <fieldset class="args">
      <legend>Arguments of ${task.name}</legend>
      ${task.params.length === 0 && !task.takesMore && html`<p class="note">This task takes no arguments.</p>`}
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

/**
 * @param {string} field
 * @param {string} problem
 */
const wrong = (field, problem) => Object.assign(new Error(problem), { field });

/**
 * @param {Pick<Wire.Param, "name" | "type">} param
 * @param {string} text
 */
const valueOf = (param, text) => {
  if (param.type === "string") return text;
  if (param.type === "datetime") return fromInput(text);
  try {
    return parse(text);
  } catch {
    throw wrong(param.name, `is not a valid ${WORDS[param.type]}`);
  }
};

/**
 * The arguments in a form with TaskFields. An empty field leaves its argument to the task. Errors name their field.
 * @param {Wire.Task} task
 * @param {FormData} form
 */
export function argsOf(task, form) {
  /** @type {Record<string, unknown>} */
  const args = {};
  if (task.takesMore) {
    const more = valueOf({ name: "More arguments", type: "json" }, String(form.get("args") || "{}"));
    const isObject = more !== null && typeof more === "object" && !Array.isArray(more);
    if (!isObject) throw wrong("More arguments", "is not a JSON object");
    Object.assign(args, more);
  }
  for (const param of task.params) {
    const text = String(form.get(`arg.${param.name}`) ?? "");
    if (text !== "" || param.required) args[param.name] = valueOf(param, text);
  }
  return args;
}
