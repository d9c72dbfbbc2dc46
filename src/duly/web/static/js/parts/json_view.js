// A value as a tree that can be folded, with exact numbers, masked values, and differences between two.
import { html, useState } from "../lib/ui.js";
import { Exact, stringify } from "../lib/json.js";
import { Copy } from "./marks.js";

const LONG = 300;
const MANY = 100;

/** @param {{ value: any }} props */
function Leaf({ value }) {
  const [isWhole, setWhole] = useState(false);
  if (value === null || value === undefined) return html`<span class="j-null">null</span>`;
  if (value instanceof Exact) {
    return html`
      <span class="j-number" title="Exact value; it has more digits than a browser number">${value.text}</span>
    `;
  }
  if (typeof value === "number") return html`<span class="j-number">${String(value)}</span>`;
  if (typeof value === "boolean") return html`<span class="j-null">${String(value)}</span>`;
  const text = String(value);
  if (/^[*•]{3,}$/.test(text)) {
    return html`<span class="j-masked" title="Masked">${text}</span>`;
  }
  const shown = isWhole || text.length <= LONG ? text : text.slice(0, LONG);
  return html`
    <span class="j-text">"${shown}"</span>
    ${shown !== text && html`
      ${" "}
      <button type="button" class="mini" onClick=${() => setWhole(true)}>all ${text.length} characters</button>
    `}
  `;
}

/** @param {{ name: string, value: any, depth: number }} props */
function Node({ name, value, depth }) {
  const [most, setMost] = useState(MANY);
  const isTree = value !== null && typeof value === "object" && !(value instanceof Exact);
  const label =
    name === null ? null : html`<span class="j-name">${name}</span>:${" "}`;
  if (!isTree) {
    return html`
      <li>
        ${label}
        <${Leaf} value=${value} />
      </li>
    `;
  }
  const entries = Array.isArray(value) ? value.map((each, at) => [at, each]) : Object.entries(value);
  const words = Array.isArray(value) ? `[${entries.length}]` : `{${entries.length}}`;
  if (!entries.length) {
    return html`
      <li>
        ${label}
        <span class="j-null">${Array.isArray(value) ? "[]" : "{}"}</span>
      </li>
    `;
  }
  return html`
    <li>
      <details open=${depth < 2 && entries.length <= MANY}>
        <summary>
          ${label}
          <span class="j-null">${words}</span>
        </summary>
        <ul>
          ${entries.slice(0, most).map(([key, each]) => html`
            <${Node} key=${key} name=${key} value=${each} depth=${depth + 1} />
          `)}
          ${entries.length > most && html`
            <li>
              <button type="button" class="mini" onClick=${() => setMost(most * 10)}>
                ${entries.length - most} more
              </button>
            </li>
          `}
        </ul>
      </details>
    </li>
  `;
}

/** @param {{ value: any, label?: string }} props */
export function Json({ value, label = "JSON" }) {
  return html`
    <div class="json" role="group" aria-label=${label}>
      <${Copy} text=${stringify(value, 2)} label=${`Copy ${label}`} />
      <ul><${Node} name=${null} value=${value} depth=${0} /></ul>
    </div>
  `;
}

/**
 * The lines that differ between two values: what goes, and what comes.
 * @param {any} before
 * @param {() => unknown} after
 */
export function diff(before, after) {
  const old = (stringify(before, 2) ?? "").split("\n");
  const fresh = (stringify(after, 2) ?? "").split("\n");
  if (old.length * fresh.length > 4_000_000) {
    return [...old.map((line) => ["-", line]), ...fresh.map((line) => ["+", line])];
  }
  // The longest common run of lines, by the usual table.
  const table = Array.from({ length: old.length + 1 }, () => new Uint32Array(fresh.length + 1));
  for (let i = old.length - 1; i >= 0; i -= 1) {
    for (let j = fresh.length - 1; j >= 0; j -= 1) {
      table[i][j] =
        old[i] === fresh[j] ? table[i + 1][j + 1] + 1 : Math.max(table[i + 1][j], table[i][j + 1]);
    }
  }
  const lines = [];
  let i = 0;
  let j = 0;
  while (i < old.length || j < fresh.length) {
    if (i < old.length && j < fresh.length && old[i] === fresh[j]) {
      lines.push([" ", old[i]]);
      i += 1;
      j += 1;
    } else if (j >= fresh.length || (i < old.length && table[i + 1][j] >= table[i][j + 1])) {
      lines.push(["-", old[i]]);
      i += 1;
    } else {
      lines.push(["+", fresh[j]]);
      j += 1;
    }
  }
  return lines;
}

/** @type {Record<string, string>} */
const WORDS = { "-": "removed", "+": "added", " ": "" };

/** @param {{ before: any, after: () => unknown }} props */
export const Diff = ({ before, after }) => html`
  <div class="diff code" role="group" aria-label="Difference">
    ${diff(before, after).map(([sign, line]) => html`
      <div class=${sign === "-" ? "gone" : sign === "+" ? "come" : ""}>
        ${sign} ${line}
        ${WORDS[sign] && html`<span class="sr"> (${WORDS[sign]})</span>`}
      </div>
    `)}
  </div>
`;
