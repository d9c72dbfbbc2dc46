// Filters as chips, which are in the address; and tabs with counts.
import { html, useState, classes } from "../lib/ui.js";
import { query, setQuery, changed, Link, path } from "../lib/router.js";
import { count } from "../lib/time.js";

/**
 * `fields`: [{name, label, options?, type?, many?}]. Each filter in force is a chip that can be taken away; `name:value` or `name=value`
 * typed into the box adds one, and a select adds those with known values.
 */
export function Filters({
  fields,
  free = null,
  hasSearch = true,
  placeholder = "state:failed task:http order.id=17",
}) {
  const [text, setText] = useState("");
  const [wrong, setWrong] = useState("");
  const inForce = fields.flatMap((field) =>
    query.value
      .getAll(field.name)
      .filter(Boolean)
      .map((value) => ({ field, value })),
  );
  const drop = (field, value) =>
    setQuery(
      {
        [field.name]: query.value.getAll(field.name).filter((each) => each !== value),
        after: null,
        sel: null,
      },
      {},
    );
  const add = (field, value) =>
    setQuery(
      {
        [field.name]: field.many ? [...new Set([...query.value.getAll(field.name), value])] : value,
        after: null,
        sel: null,
      },
      {},
    );
  const take = (event) => {
    event.preventDefault();
    const said = text.trim();
    if (!said) return;
    const found = /^([\w-]+):\s*(.+)$/.exec(said);
    const field =
      found &&
      fields.find(
        (each) =>
          each.name.toLowerCase() === found[1].toLowerCase() ||
          each.label.toLowerCase() === found[1].toLowerCase(),
      );
    if (
      field &&
      field.options &&
      !field.options.some((each) => String(Array.isArray(each) ? each[0] : each) === found[2])
    ) {
      setWrong(
        `${field.label} is one of ${field.options.map((each) => (Array.isArray(each) ? each[0] : each)).join(", ")}.`,
      );
      return;
    }
    if (field) add(field, found[2]);
    else if (free) {
      const problem = free(said, (name, value) =>
        add(
          fields.find((each) => each.name === name),
          value,
        ),
      );
      if (problem) {
        setWrong(problem);
        return;
      }
    } else {
      setWrong(`Say name:value; known names: ${fields.map((each) => each.name).join(", ")}.`);
      return;
    }
    setText("");
    setWrong("");
  };
  return html`
    <div class="filters">
      ${hasSearch && html`
        <form role="search" onSubmit=${take}>
          <input
            type="search"
            aria-label="Search and filter"
            data-search
            value=${text}
            placeholder=${placeholder}
            aria-invalid=${Boolean(wrong)}
            onInput=${(event) => {
              setText(event.target.value);
              setWrong("");
            }}
          />
        </form>
      `}
      ${fields
        .filter((field) => field.options && !field.isHidden)
        .map((field) => html`
          <select
            aria-label=${field.label}
            value=""
            onChange=${(event) => {
              if (event.target.value) add(field, event.target.value);
              event.target.value = "";
            }}
          >
            <option value="">${field.label}</option>
            ${field.options.map((each) => {
              const [key, word] = Array.isArray(each) ? each : [each, each];
              return html`<option value=${key}>${word}</option>`;
            })}
          </select>
        `)}
      ${fields
        .filter((field) => field.type === "time")
        .map((field) => html`
          <label class="inline">
            <span>${field.label}</span>
            <input
              type="datetime-local"
              step="1"
              value=${query.value.get(field.name) ?? ""}
              onChange=${(event) =>
                setQuery({ [field.name]: event.target.value || null, after: null, sel: null }, {})
              }
            />
          </label>
        `)}
      ${wrong && html`<p class="wrong" role="alert">${wrong}</p>`}
      <ul class="chips" aria-label="Filters in force">
        ${inForce
          .filter(({ field }) => field.type !== "time")
          .map(({ field, value }) => html`
            <li>
              <span class="chip">
                ${field.label}: <b>${value}</b>
                <button
                  type="button"
                  class="mini"
                  aria-label=${`Remove ${field.label} ${value}`}
                  onClick=${() => drop(field, value)}
                >
                  ✕
                </button>
              </span>
            </li>
          `)}
        ${inForce.length > 1 && html`<li><${Link} to=${path.value} class="chip plain">clear all</${Link}></li>`}
      </ul>
    </div>
  `;
}

/** Tabs that set one parameter; `counts` beside their words, `10,000+` where counting stopped. */
export function Tabs({ name, label, options, counts = {}, capped = {} }) {
  const current = query.value.get(name) ?? "";
  return html`
    <nav class="tabs" aria-label=${label}>
      ${options.map(([key, word]) => html`
        <${Link}
          to=${changed({ [name]: key || null, after: null, sel: null })}
          class=${classes("tab", current === key && "is-here")}
          aria-current=${current === key ? "page" : null}
        >
          ${word}
          ${counts[key] !== undefined && html`
            <span class="number">
              ${count(counts[key])}
              ${capped === true || capped[key] ? "+" : ""}
            </span>
          `}
        </${Link}>
      `)}
    </nav>
  `;
}
