// Filters as chips, which are part of the address; and tabs with counts.
import { html, useState, classes } from "../lib/ui.js";
import { may } from "../lib/api.js";
import { query, setQuery, changed, Link, path } from "../lib/router.js";
import { count } from "../lib/time.js";
import { optionOf } from "./fields.js";

/**
 * @typedef {object} FilterField
 * @property {string} name of the parameter
 * @property {string} label
 * @property {Option[]} [options] the values to choose from
 * @property {"time"} [type]
 * @property {boolean} [many] whether several values may apply at once
 * @property {boolean} [isHidden] whether it is set by typing alone
 */

// Another filter is another list: its place and its selection go with the old one.
const ANEW = { after: null, sel: null };

const OWNER = [{ name: "userId", label: "Owner" }];

/** @param {string} name */
const valuesIn = (name) => query.value.getAll(name).filter(Boolean);

/**
 * @param {FilterField} field
 * @param {string | string[] | null} value
 */
const set = (field, value) => setQuery({ [field.name]: value, ...ANEW }, {});

/**
 * @param {FilterField} field
 * @param {string} value
 */
const add = (field, value) => set(field, field.many ? [...new Set([...valuesIn(field.name), value])] : value);

/**
 * @param {FilterField} field
 * @param {string} value
 */
const drop = (field, value) =>
  set(
    field,
    valuesIn(field.name).filter((each) => each !== value),
  );

/**
 * Add the filter that was typed, as `name:value`. Gives what is wrong with it, or nothing.
 * @param {string} typed
 * @param {FilterField[]} fields
 * @param {FreeText | null} free
 * @returns {string | null | undefined | void}
 */
function addTyped(typed, fields, free) {
  const [, name, value] = /^([\w-]+):\s*(.+)$/.exec(typed) ?? [];
  const wanted = name?.toLowerCase();
  const field = fields.find((each) => [each.name, each.label].some((word) => word.toLowerCase() === wanted));
  if (field) {
    const known = field.options?.map((each) => String(optionOf(each)[0]));
    if (known && !known.includes(value)) return `${field.label} is one of ${known.join(", ")}.`;
    return add(field, value);
  }
  if (typeof free === "string") return addTyped(`${free}:${typed}`, fields, null);
  if (!free) return `Type name:value. Known names: ${fields.map((each) => each.name).join(", ")}.`;
  return free(typed, (known, text) => {
    const target = fields.find((each) => each.name === known);
    if (target) add(target, text);
  });
}

/** @param {{ fields: FilterField[], free: FreeText | null, placeholder: string }} props */
function Search({ fields, free, placeholder }) {
  const [text, setText] = useState("");
  const [wrong, setWrong] = useState("");
  /** @param {string} typed */
  const type = (typed) => {
    setText(typed);
    setWrong("");
  };
  /** @param {Event} event */
  const send = (event) => {
    event.preventDefault();
    if (!text.trim()) return;
    const problem = addTyped(text.trim(), fields, free);
    if (problem) setWrong(problem);
    else type("");
  };
  return html`
    <form role="search" onSubmit=${send}>
      <input
        type="search"
        aria-label="Search and filter"
        data-search
        value=${text}
        placeholder=${placeholder}
        aria-invalid=${Boolean(wrong)}
        onInput=${(event) => type(event.target.value)}
      />
    </form>
    ${wrong && html`<p class="wrong" role="alert">${wrong}</p>`}
  `;
}

/** @param {{ field: FilterField }} props */
function Choice({ field }) {
  /** @param {{ target: HTMLSelectElement }} event */
  const choose = ({ target }) => {
    if (target.value) add(field, target.value);
    target.value = "";
  };
  return html`
    <select aria-label=${field.label} value="" onChange=${choose}>
      <option value="">${field.label}</option>
      ${(field.options ?? []).map(optionOf).map(([key, word]) => html`<option value=${key}>${word}</option>`)}
    </select>
  `;
}

/** @param {{ field: FilterField }} props */
const TimeChoice = ({ field }) => html`
  <label class="inline">
    <span>${field.label}</span>
    <input
      type="datetime-local"
      step="1"
      value=${query.value.get(field.name) ?? ""}
      onChange=${(event) => set(field, event.target.value || null)}
    />
  </label>
`;

/** @param {{ field: FilterField, value: string }} props */
const Chip = ({ field, value }) => html`
  <li>
    <span class="chip">
      ${field.label}: <b>${value}</b>
      <button
        type="button"
        class="mini"
        aria-label=${`Remove ${field.label} ${value}`}
        onClick=${() => drop(field, value)}
      >✕</button>
    </span>
  </li>
`;

/**
 * Takes text that names no field, sets filters, and gives what is wrong with it, or nothing.
 * @typedef {(typed: string, add: (name: string, value: string) => void) => string | null | undefined | void} FreeText
 */

/**
 * The filters of a list. Each one that applies is a chip that can be removed. `name:value` typed into the box adds one,
 * and so does a select where the values are known.
 * @param {{ fields: FilterField[], free?: FreeText | null, hasSearch?: boolean, placeholder?: string }} props
 */
export function Filters({
  fields,
  free = null,
  hasSearch = true,
  placeholder = "state:failed task:http order.id=17",
}) {
  const applied = fields.flatMap((field) => valuesIn(field.name).map((value) => ({ field, value })));
  const chips = applied.filter(({ field }) => field.type !== "time");
  return html`
    <div class="filters">
      ${hasSearch && html`<${Search} fields=${fields} free=${free} placeholder=${placeholder} />`}
      ${fields
        .filter((field) => field.options && !field.isHidden)
        .map((field) => html`<${Choice} key=${field.name} field=${field} />`)}
      ${fields
        .filter((field) => field.type === "time")
        .map((field) => html`<${TimeChoice} key=${field.name} field=${field} />`)}
      <ul class="chips" aria-label="Filters in force">
        ${chips.map(({ field, value }) => html`
          <${Chip} key=${`${field.name} ${value}`} field=${field} value=${value} />
        `)}
        ${applied.length > 1 && html`<li><${Link} to=${path.value} class="chip plain">clear all</${Link}></li>`}
      </ul>
    </div>
  `;
}

/** Lists of several owners, for who may see them: `me`, `all`, or a user. */
export const OwnerFilter = () =>
  may("admin") && html`<${Filters} fields=${OWNER} free="userId" placeholder="an owner: me, all, or a user" />`;

/**
 * Tabs that set one parameter, with counts beside their words: `10,000+` where counting stopped.
 * @param {{
 *   name: string, label: string, options: [key: string, word: string][],
 *   counts?: Record<string, number | undefined>, capped?: boolean | Record<string, boolean>,
 * }} props
 */
export function Tabs({ name, label, options, counts = {}, capped = {} }) {
  const current = query.value.get(name) ?? "";
  /** @param {string} key */
  const isCapped = (key) => capped === true || (capped !== false && capped[key]);
  return html`
    <nav class="tabs" aria-label=${label}>
      ${options.map(([key, word]) => html`
        <${Link}
          to=${changed({ [name]: key || null, ...ANEW })}
          class=${classes("tab", current === key && "is-here")}
          aria-current=${current === key ? "page" : null}
        >
          ${word}
          ${counts[key] !== undefined && html`
            <span class="number">${count(counts[key])}${isCapped(key) ? "+" : ""}</span>
          `}
        </${Link}>
      `)}
    </nav>
  `;
}
