// A list of any length. Rows are read as they are scrolled to, and keep their places while they are read again.
// It is an ARIA grid: the keyboard moves the current row, and rows that are not drawn are still counted.
import { html, useEffect, useLayoutEffect, useRef, useState, classes } from "../lib/ui.js";
import { isAbort } from "../lib/api.js";
import {
  Virtualizer,
  elementScroll,
  observeElementOffset,
  observeElementRect,
} from "../../vendor/virtual/index.js";
import { go, place, query, setQuery } from "../lib/router.js";
import { clock, isLive } from "../lib/prefs.js";
import { useLooker, useWaiting } from "../lib/live.js";
import { Pages } from "../lib/pages.js";
import { useKeys } from "../lib/keys.js";
import { count } from "../lib/time.js";
import { GridBar, GridHead, GridRow, Pager } from "./grid_view.js";
import { Trouble } from "./marks.js";

const ROW = 34; // pixels
const CHECKBOX = 34; // pixels
const SIZE = 100; // rows asked for at once
const CHAPTER = 100_000; // rows in one scroll area, because browsers limit its height
const SELECTED = 50; // ids that fit into the address
const PAGED = 50; // rows of a page in a paged list
const AHEAD = 40; // rows below what is seen that are read early

/**
 * A list as it is shown, or as it was left.
 * @typedef {object} Shown
 * @property {string} [name] which list, and which reading of it
 * @property {string} [which] which list
 * @property {Pages} pages
 * @property {number} offset how far it is scrolled
 * @property {number} base the first row of the scroll area
 */

/**
 * Lists that were left, by their entry in the history: going back finds them as they were.
 * @type {Map<string, Shown>}
 */
const left = new Map();
const LEFT = 8;

/**
 * @param {string} key
 * @param {Shown} kept
 */
const leave = (key, kept) => {
  left.set(key, kept);
  if (left.size > LEFT) left.delete(left.keys().next().value ?? "");
};

/**
 * How wide a column is. Times take more room where they are also shown relative to now.
 * @param {Column<any>} column
 */
const widthOf = (column) => {
  if (!column.isTime) return column.width || "minmax(90px, 1fr)";
  return clock.value === "relative" ? "260px" : "180px";
};

/** @param {Column<any>} column */
const leastOf = (column) => Number(/\d+/.exec(column.width ?? "")?.[0] ?? 90);

const isNarrow = matchMedia("(max-width: 720px)");

/**
 * A list of any length. Another `name` is another list. `to` is where Enter leads; `bar` draws what can be done with a
 * selection; `total` is the number of rows, if it is known. Another number of `changes` reads the list from its start;
 * another one of `looks` reads the rows that are seen, in their places.
 * @param {{
 *   name: string, label: string, columns: Column<any>[], load: LoadPage, keyOf?: (row: any) => string,
 *   to?: ((row: any) => string) | null, bar?: ((selection: GridSelection) => Children) | null,
 *   total?: number | null, every?: number, empty?: Children, changes?: number, looks?: number,
 * }} props
 */
export function Grid({
  name,
  label,
  columns,
  load,
  keyOf = (row) => String(row.id),
  to = null,
  bar = null,
  total = null,
  every = 5,
  empty = null,
  changes = 0,
  looks = 0,
}) {
  const isPaged = query.value.get("view") === "paged";
  const size = isPaged ? Math.min(Math.max(Number(query.value.get("size")) || PAGED, 10), 500) : SIZE;
  const start = isPaged ? query.value.get("after") : null;
  const [turn, setTurn] = useState(0);
  const which = `${name}|${isPaged}|${size}|${start}`;
  const whole = `${which}|${changes}|${turn}`;
  const [, redraw] = useState(0);
  const draw = () => redraw((times) => times + 1);
  const box = useRef(/** @type {any} */ (null)); // the element that is scrolled
  const list = useRef(/** @type {any} */ (null)); // a Shown, from the first drawing on
  const [error, setError] = useState(/** @type {any} */ (null));
  const [fresh, setFresh] = useState(0);
  // The row of the keyboard and the selection are refs: a key may come before the next drawing.
  const spot = useRef(0);
  const here = spot.current;
  /** @param {number} index */
  const setHere = (index) => {
    spot.current = index;
    draw();
  };
  const picked = useRef(/** @type {Set<string> | null} */ (null));
  const anchor = useRef(/** @type {number | null} */ (null));
  const stop = useRef(new AbortController());
  const shown = columns.filter((column) => !(column.isMinor && isNarrow.matches));
  const entry = `${place.value.key}|${which}`;

  if (list.current?.name !== whole) {
    stop.current.abort();
    stop.current = new AbortController();
    const isSame = list.current?.which === which;
    if (!isSame) picked.current = null;
    const kept = isSame ? null : left.get(entry);
    const pages = kept?.pages ?? new Pages(keyOf);
    if (!kept && start) pages.next = start;
    // A list that is read again stays the same object, which `leave` keeps.
    list.current = Object.assign(isSame ? list.current : {}, {
      name: whole,
      which,
      pages,
      offset: kept?.offset ?? 0,
      base: kept?.base ?? 0,
    });
  }
  picked.current ??= new Set((query.value.get("sel") ?? "").split(",").filter(Boolean));
  const selected = picked.current;
  /** @type {Pages} */
  const pages = list.current.pages;
  Object.assign(pages, { load, age: Math.ceil(every) });
  useWaiting(!pages.pages.length && !error);

  const more = async () => {
    if (isPaged && pages.pages.length) return;
    const stopping = stop.current;
    try {
      await pages.more(size, stopping.signal);
      if (!stopping.signal.aborted) {
        setError(null);
        draw();
      }
    } catch (wrong) {
      if (!isAbort(wrong) && !stopping.signal.aborted) setError(wrong);
    }
  };

  useEffect(() => {
    setFresh(0);
    setError(null);
    setHere(0);
    if (!pages.pages.length) more();
    return undefined;
  }, [whole]);

  // Draws only what is seen. It gets the number of rows at each drawing.
  const rows = useRef(/** @type {any} */ (null));
  if (!rows.current) {
    rows.current = new Virtualizer({
      count: 0,
      getScrollElement: () => box.current,
      estimateSize: () => ROW,
      overscan: 6,
      observeElementRect,
      observeElementOffset,
      scrollToFn: elementScroll,
      onChange: () => {
        if (box.current) list.current.offset = box.current.scrollTop;
        draw();
      },
      initialOffset: list.current.offset,
    });
  }
  const length = Math.min(pages.length - list.current.base, CHAPTER);
  const virtual = rows.current;
  virtual.setOptions({ ...virtual.options, count: Math.max(length, 0) });
  // Before the virtualizer reads the position of the box, which would be its top.
  useLayoutEffect(() => {
    box.current.scrollTop = list.current.offset;
    return undefined;
  }, [whole]);
  useLayoutEffect(() => virtual._didMount(), []);
  useLayoutEffect(() => virtual._willUpdate());
  useEffect(() => {
    const own = list.current;
    return () => leave(entry, { pages: own.pages, offset: own.offset, base: own.base });
  }, [entry]);

  const items = virtual.getVirtualItems();
  const seenPage = () => pages.at((virtual.getVirtualItems()[0]?.index ?? 0) + list.current.base);
  const first = (items[0]?.index ?? 0) + list.current.base;
  const last = (items.at(-1)?.index ?? 0) + list.current.base;
  const isChapterEnd = pages.length - list.current.base > CHAPTER;
  useEffect(() => {
    if (!pages.pages.length) return;
    const [from, until] = [pages.at(first), pages.at(last)];
    pages.forgetFar(from);
    for (let number = from; number <= until; number += 1) {
      const page = pages.pages[number];
      if (page.rows || page.isBusy) continue;
      page.isBusy = true;
      pages
        .again(number, stop.current.signal, size)
        .then(draw, () => {})
        .finally(() => {
          page.isBusy = false;
        });
    }
    const isWanted = !isPaged && !pages.isEnd && !pages.isHeld && !isChapterEnd;
    if (isWanted && !error && last >= pages.length - AHEAD) more();
  });

  // Rows that are seen are read again in their places; new ones are only counted.
  const look = async () => {
    if (!pages.pages.length) {
      await more();
      return;
    }
    const stopping = stop.current.signal;
    try {
      await pages.busy;
      const number = seenPage();
      const come = await pages.again(number, stopping, size);
      const isTop = number === 0 && !start;
      const anew = isTop ? come : start ? [] : await pages.again(0, stopping, size);
      if (stopping.aborted) return;
      setFresh(anew.length);
      draw();
    } catch {
      // The next look shows the error, if it stays.
    }
  };
  useLooker(look, [whole]);
  useEffect(() => {
    if (!every) return undefined;
    let timer = 0;
    let isOver = false;
    const tick = async () => {
      if (!document.hidden && isLive.value) await look();
      if (!isOver) timer = setTimeout(tick, every * 1000);
    };
    timer = setTimeout(tick, every * 1000);
    return () => {
      isOver = true;
      clearTimeout(timer);
    };
  }, [whole, every]);

  useEffect(() => {
    if (!looks || !pages.pages.length) return;
    pages.again(seenPage(), stop.current.signal, size).then(draw, () => {});
  }, [looks]);

  /** @param {Set<string>} next */
  const choose = (next) => {
    picked.current = next;
    draw();
    const text = next.size && next.size <= SELECTED ? [...next].join(",") : null;
    if ((query.value.get("sel") ?? null) !== text) setQuery({ sel: text });
  };
  /**
   * @param {number} index
   * @param {boolean} isRange
   */
  const toggle = (index, isRange) => {
    const row = pages.row(index);
    if (!row) return false;
    const next = new Set(picked.current);
    if (isRange && anchor.current !== null) {
      const [from, until] = [Math.min(anchor.current, index), Math.max(anchor.current, index)];
      for (let at = from; at <= until; at += 1) {
        const each = pages.row(at);
        if (each) next.add(keyOf(each));
      }
    } else if (next.has(keyOf(row))) next.delete(keyOf(row));
    else next.add(keyOf(row));
    anchor.current = index;
    choose(next);
    return next.has(keyOf(row));
  };
  /** @param {number} index */
  const move = (index) => {
    const { base } = list.current;
    const target = Math.min(Math.max(index, base), base + Math.max(length - 1, 0));
    setHere(target);
    if (!isPaged) virtual.scrollToIndex(target - list.current.base);
  };
  const open = () => {
    const row = pages.row(spot.current);
    if (row && to) go(to(row));
  };
  const seen = Math.max(Math.floor((box.current?.clientHeight ?? 400) / ROW) - 2, 1);
  /** @type {import("../lib/keys.js").KeyActs} */
  const keys = {
    j: () => move(spot.current + 1),
    k: () => move(spot.current - 1),
    x: (event) => bar && toggle(spot.current, event.shiftKey),
    X: () => bar && toggle(spot.current, true),
    Enter: open,
    ...(bar ? { Escape: () => choose(new Set()) } : {}),
  };
  useKeys(keys, [length, whole, bar === null]);
  /** @param {KeyboardEvent} event */
  const onKeyDown = (event) => {
    /** @type {Record<string, () => unknown>} */
    const moves = {
      ArrowDown: () => move(spot.current + 1),
      ArrowUp: () => move(spot.current - 1),
      PageDown: () => move(spot.current + seen),
      PageUp: () => move(spot.current - seen),
      Home: () => move(0),
      End: () => move(Infinity),
      " ": () => bar && toggle(spot.current, event.shiftKey),
    };
    const act = event.target === box.current && moves[event.key];
    if (!act) return;
    event.preventDefault();
    if (event.shiftKey && bar && (event.key === "ArrowDown" || event.key === "ArrowUp")) {
      if (anchor.current === null) toggle(spot.current, false);
      const next = spot.current + (event.key === "ArrowDown" ? 1 : -1);
      move(next);
      toggle(Math.max(next, 0), true);
    } else act();
  };

  // Rows are as wide as their columns need at least, so that columns line up.
  const across = {
    gridTemplateColumns: `${bar ? `${CHECKBOX}px ` : ""}${shown.map(widthOf).join(" ")}`,
    minWidth: `${shown.reduce((sum, column) => sum + leastOf(column), bar ? CHECKBOX : 0)}px`,
  };
  const again = () => {
    setTurn((times) => times + 1);
    box.current.scrollTop = 0;
  };
  /** @param {number} rowsFurther */
  const turnChapter = (rowsFurther) => {
    list.current.base += rowsFurther;
    box.current.scrollTop = 0;
    draw();
  };
  const visible = isPaged
    ? Array.from({ length: pages.length }, (_, index) => ({ index, start: index * ROW }))
    : items;
  const isLoading = !pages.pages.length && !error;
  const isNothing = pages.pages.length > 0 && pages.length === 0 && pages.isEnd;
  /**
   * @param {number} index
   * @param {number} column
   */
  const cellId = (index, column) => `${label.replace(/\W+/g, "-")}-${index}-${column}`;
  const selection = bar?.({ selected, rows: pages.withKeys(selected), clear: () => choose(new Set()), reload: again });
  /** @param {{ index: number, start: number }} item */
  const rowAt = (item) => {
    const index = item.index + list.current.base;
    const row = pages.row(index);
    return html`
      <${GridRow}
        key=${index}
        row=${row}
        index=${index}
        columns=${shown}
        style=${{ ...across, transform: `translateY(${item.start}px)` }}
        name=${row ? keyOf(row) : ""}
        isHere=${index === here}
        isChosen=${Boolean(row && selected.has(keyOf(row)))}
        isSelectable=${Boolean(bar)}
        cellId=${cellId}
        onHere=${setHere}
        onFocus=${() => box.current.focus({ preventScroll: true })}
        onOpen=${(/** @type {any} */ opened) => to && go(to(opened))}
        onToggle=${toggle}
      />
    `;
  };
  return html`
    <div class="grid-frame">
      <${GridBar}
        pages=${pages}
        total=${total}
        fresh=${fresh ? `${Math.min(fresh, size)}${fresh >= size ? "+" : ""}` : ""}
        isPaged=${isPaged}
        isSelectable=${Boolean(bar)}
        selection=${selection}
        more=${more}
        again=${again}
      />
      ${error && html`<${Trouble} error=${error} retry=${more} />`}
      <div class="grid-stack">
        <div
          ref=${box}
          class=${classes("grid", isPaged && "is-paged")}
          role="grid"
          tabindex="0"
          aria-label=${label}
          aria-multiselectable=${bar ? "true" : null}
          aria-busy=${isLoading}
          aria-rowcount=${total !== null ? total + 1 : pages.isEnd ? pages.length + 1 : -1}
          aria-colcount=${shown.length + (bar ? 1 : 0)}
          aria-activedescendant=${pages.length ? cellId(here, 1) : null}
          onKeyDown=${onKeyDown}
        >
          <${GridHead} columns=${shown} isSelectable=${Boolean(bar)} style=${across} />
          <div
            class="grid-body"
            role="rowgroup"
            style=${{ height: `${isPaged ? pages.length * ROW : virtual.getTotalSize()}px` }}
          >
            ${visible.map(rowAt)}
          </div>
        </div>
        ${isNothing && html`<div class="grid-empty">${empty || html`<p class="none">Nothing matches.</p>`}</div>`}
      </div>
      ${isChapterEnd && html`
        <p>
          <button type="button" onClick=${() => turnChapter(CHAPTER)}>
            Continue from row ${count(list.current.base + CHAPTER + 1)}
          </button>
        </p>
      `}
      ${list.current.base > 0 && html`
        <p>
          <button type="button" onClick=${() => turnChapter(-CHAPTER)}>
            Back to row ${count(list.current.base - CHAPTER + 1)}
          </button>
        </p>
      `}
      ${isPaged && html`<${Pager} isFirst=${!start} next=${pages.next} size=${size} />`}
    </div>
  `;
}
