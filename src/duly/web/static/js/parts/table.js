// Tables of a page or less. Lists that may be long are grids; see grid.js.
import { html, classes } from "../lib/ui.js";
import { Actions } from "./dialogs.js";

/** `columns`: [{title, cell: row => …, isNumber, isWide}]. `onRow` makes rows lead somewhere by their first link. */
export function Table({
  label,
  columns,
  rows,
  keyOf = (row) => String(row.id),
  empty = "Nothing here.",
}) {
  // Where one column takes the room that is left, the others keep to one line.
  const isTight = columns.some((column) => column.isWide);
  return html`
    <div class="scroll" role="region" tabindex="0" aria-label=${label}>
      <table>
        <thead>
          <tr>
            ${columns.map((column) => html`
              <th scope="col" class=${classes(column.isNumber && "number", column.isWide && "widest")}>
                ${column.title}
              </th>
            `)}
          </tr>
        </thead>
        <tbody>
          ${rows.length ? (
            rows.map((row) => html`
              <tr key=${keyOf(row)}>
                ${columns.map((column) => html`
                  <td
                    class=${classes(
                      column.isNumber && "number",
                      column.isWide ? "widest" : isTight && "tight",
                    )}
                    data-label=${column.title}
                  >
                    ${column.cell(row)}
                  </td>
                `)}
              </tr>
            `)
          ) : html`<tr><td colspan=${columns.length} class="none">${empty}</td></tr>`}
        </tbody>
      </table>
    </div>
  `;
}

/** What is known of one thing: names and values. */
export const Facts = ({ of }) => html`
  <dl class="facts">
    ${of.filter(Boolean).map(([name, value]) => html`
      <div>
        <dt>${name}</dt>
        <dd>${value ?? "–"}</dd>
      </div>
    `)}
  </dl>
`;

export const Section = ({ title, actions, children, id }) => html`
  <section aria-label=${title} id=${id}>
    <header class="section">
      <h2>${title}</h2>
      ${actions && html`<${Actions}>${actions}</${Actions}>`}
    </header>
    ${children}
  </section>
`;

/** A number with its word, large, which leads to more. */
export const Tile = ({ label, value, note, tone, children }) => html`
  <div class=${classes("tile", tone && `tone-${tone}`)}>
    <span class="tile-label">${label}</span>
    <span class="tile-value">${value}</span>
    ${note && html`<span class="tile-note">${note}</span>`}
    ${children}
  </div>
`;
