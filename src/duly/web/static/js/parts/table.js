// Tables of a page or less. Lists that may be long are grids; see grid.js.
import { html, classes } from "../lib/ui.js";
import { Link } from "../lib/router.js";
import { Actions } from "./dialogs.js";

/**
 * @template Row
 * @param {Column<Row>} column
 * @param {Row} row
 * @param {boolean} isTight
 */
const cellOf = (column, row, isTight) => html`
  <td
    class=${classes(column.isNumber && "number", column.isWide ? "widest" : isTight && "tight")}
    data-label=${column.title}
  >
    ${column.cell(row)}
  </td>
`;

/**
 * @param {{
 *   label: string, columns: Column<any>[], rows: any[], keyOf?: (row: any) => string | number, empty?: Children,
 * }} props
 */
export function Table({ label, columns, rows, keyOf = (row) => String(row.id), empty = "Nothing here." }) {
  // Where one column takes the room that is left, the others keep to one line.
  const isTight = columns.some((column) => column.isWide);
  const titles = columns.map((column) => html`
    <th scope="col" class=${classes(column.isNumber && "number", column.isWide && "widest")}>${column.title}</th>
  `);
  const lines = rows.map((row) => html`
    <tr key=${keyOf(row)}>${columns.map((column) => cellOf(column, row, isTight))}</tr>
  `);
  const nothing = html`<tr><td colspan=${columns.length} class="none">${empty}</td></tr>`;
  return html`
    <div class="scroll" role="region" tabindex="0" aria-label=${label}>
      <table>
        <thead><tr>${titles}</tr></thead>
        <tbody>${rows.length ? lines : nothing}</tbody>
      </table>
    </div>
  `;
}

/** @typedef {[name: string, value: Children] | false | null | undefined | "" | 0} Fact what is false is left out */

/**
 * Names and values of one thing.
 * @param {{ of: Fact[] }} props
 */
export const Facts = ({ of }) => html`
  <dl class="facts">
    ${of.filter((each) => Array.isArray(each)).map(([name, value]) => html`
      <div>
        <dt>${name}</dt>
        <dd>${value ?? "–"}</dd>
      </div>
    `)}
  </dl>
`;

/** @param {{ title: string, actions?: Children, children: Children, id?: string }} props */
export const Section = ({ title, actions, children, id }) => html`
  <section aria-label=${title} id=${id}>
    <header class="section">
      <h2>${title}</h2>
      ${actions && html`<${Actions}>${actions}</${Actions}>`}
    </header>
    ${children}
  </section>
`;

/**
 * A large number with its label.
 * @param {{ label: string, value: Children, note?: Children, tone?: string, children?: Children }} props
 */
export const Tile = ({ label, value, note, tone, children }) => html`
  <div class=${classes("tile", tone && `tone-${tone}`)}>
    <span class="tile-label">${label}</span>
    <span class="tile-value">${value}</span>
    ${note && html`<span class="tile-note">${note}</span>`}
    ${children}
  </div>
`;

/**
 * A section that has nothing but a table.
 * @param {{ title: string, label?: string } & Omit<Parameters<typeof Table>[0], "label">} props
 */
export const TableSection = ({ title, label = title, ...table }) => html`
  <${Section} title=${title}><${Table} label=${label} ...${table} /></${Section}>
`;

/**
 * The column of a row's own id, which leads to its page below this path.
 * @param {string} title
 * @param {string} path
 * @returns {Column<any>}
 */
export const idColumn = (title, path, width = "80px") => ({
  title,
  width,
  isNumber: true,
  cell: (row) => html`<${Link} to=${`${path}/${row.id}`} tabindex="-1">${row.id}</${Link}>`,
});
