// The markup of a grid: what is above its rows, their head, a row, and the links of a paged list.
import { html, classes } from "../lib/ui.js";
import { changed, setQuery, Link } from "../lib/router.js";
import { count, counted } from "../lib/time.js";

/** @typedef {import("../lib/pages.js").Pages} Pages */

/**
 * @param {Pages} pages
 * @param {number | null} total
 */
const countText = (pages, total) => {
  if (total !== null) return `${count(total)} rows`;
  if (pages.isEnd) return counted(pages.length, "row");
  return pages.pages.length ? `${count(pages.length)} rows read, more below` : "Reading…";
};

/** @param {{ pages: Pages, more: () => unknown }} props */
const SearchNote = ({ pages, more }) => html`
  <span class="note">
    No index answers this search: ${count(pages.search.scanned)} rows were looked through
    ${pages.search.isDone ? "" : " so far"}.
    ${pages.isHeld && html` <button type="button" class="mini" onClick=${more}>Look further</button>`}
  </span>
`;

/**
 * @param {{
 *   pages: Pages, total: number | null, fresh: string, isPaged: boolean,
 *   isSelectable: boolean, selection: Children,
 *   more: () => unknown, again: () => unknown,
 * }} props
 */
export const GridBar = ({ pages, total, fresh, isPaged, isSelectable, selection, more, again }) => html`
  <div class="grid-bar">
    <span class="number" role="status">${countText(pages, total)}</span>
    ${pages.search && !pages.search.isIndexed && html`<${SearchNote} pages=${pages} more=${more} />`}
    ${fresh && html`<button type="button" class="fresh" onClick=${again}>${fresh} new</button>`}
    <span class="push"></span>
    ${isSelectable && html`<div class="selection">${selection}</div>`}
    <${Link} class="mini" to=${changed({ view: isPaged ? null : "paged", after: null })}>
      ${isPaged ? "Scroll" : "Pages"}
    </${Link}>
  </div>
`;

/** @param {{ columns: Column<any>[], isSelectable: boolean, style: object }} props */
export const GridHead = ({ columns, isSelectable, style }) => html`
  <div class="grid-head" role="row" aria-rowindex="1" style=${style}>
    ${isSelectable && html`
      <div role="columnheader" aria-colindex="1"><span class="sr">Selected</span></div>
    `}
    ${columns.map((column, at) => html`
      <div
        role="columnheader"
        aria-colindex=${at + (isSelectable ? 2 : 1)}
        class=${column.isNumber && "number"}
      >
        ${column.title}
      </div>
    `)}
  </div>
`;

/**
 * @param {{
 *   row: any, index: number, columns: Column<any>[], style: object, name: string,
 *   isHere: boolean, isChosen: boolean, isSelectable: boolean, cellId: (index: number, column: number) => string,
 *   onHere: (index: number) => void, onFocus: () => void, onOpen: (row: any) => void,
 *   onToggle: (index: number, isRange: boolean) => boolean,
 * }} props
 */
export function GridRow({
  row,
  index,
  columns,
  style,
  name,
  isHere,
  isChosen,
  isSelectable,
  cellId,
  onHere,
  onFocus,
  onOpen,
  onToggle,
}) {
  /** @param {MouseEvent & { target: HTMLElement }} event */
  const click = (event) => {
    if (event.target.closest("a,button,input,label")) return;
    onHere(index);
    onFocus();
    if (isSelectable && event.shiftKey) onToggle(index, true);
  };
  /** @param {MouseEvent & { target: HTMLInputElement }} event */
  const check = (event) => {
    onHere(index);
    event.target.checked = onToggle(index, event.shiftKey);
  };
  const cells = row && columns.map((column, at) => html`
    <div
      role="gridcell"
      id=${cellId(index, at + 1)}
      aria-colindex=${at + (isSelectable ? 2 : 1)}
      class=${classes(column.isNumber && "number")}
    >
      ${column.cell(row)}
    </div>
  `);
  return html`
    <div
      role="row"
      aria-rowindex=${index + 2}
      aria-selected=${isSelectable ? String(isChosen) : null}
      class=${classes("grid-row", isHere && "is-here", isChosen && "is-chosen", row?.isGone && "is-gone")}
      style=${style}
      onClick=${click}
      onDblClick=${() => row && onOpen(row)}
    >
      ${isSelectable && html`
        <div role="gridcell" aria-colindex="1">
          <input
            type="checkbox"
            tabindex="-1"
            aria-label=${`Select ${name}`.trimEnd()}
            checked=${isChosen}
            onClick=${check}
          />
        </div>
      `}
      ${cells ?? html`<div role="gridcell" class="none">…</div>`}
    </div>
  `;
}

/** @param {{ isFirst: boolean, next: string | null, size: number }} props */
export const Pager = ({ isFirst, next, size }) => html`
  <nav class="pager" aria-label="Pages">
    ${!isFirst && html`<${Link} to=${changed({ after: null })}>First page</${Link}>`}
    ${next && html`<${Link} to=${changed({ after: next })}>Next page</${Link}>`}
    <label>
      Rows${" "}
      <select value=${size} onChange=${(event) => setQuery({ size: event.target.value, after: null })}>
        ${[25, 50, 100, 250, 500].map((each) => html`<option value=${each}>${each}</option>`)}
      </select>
    </label>
  </nav>
`;
