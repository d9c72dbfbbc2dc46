// A list of any length: rows are fetched as they are scrolled to, forgotten when they are far away, and never jump.
// It is an ARIA grid: the keyboard moves a cell, and what is not drawn is still counted.
import { html, useEffect, useLayoutEffect, useRef, useState, classes } from "../lib/ui.js";
import {
  Virtualizer,
  elementScroll,
  observeElementOffset,
  observeElementRect,
} from "../../vendor/virtual/index.js";
import { go, place, query, setQuery, changed, Link } from "../lib/router.js";
import { clock, isLive } from "../lib/prefs.js";
import { FRESH, useLooker, useWaiting } from "../lib/live.js";
import { useKeys } from "../lib/keys.js";
import { count } from "../lib/time.js";
import { Trouble } from "./marks.js";

const ROW = 34; // pixels
const SIZE = 100; // rows asked for at once
const NEAR = 4; // pages kept on either side of what is seen
const CHAPTER = 100_000; // rows in one scroll area, for browsers bound its height
const SELECTED = 50; // ids that the address takes
const PAGED = 50;

/** The pages of a list as far as they were read, in the order of their cursors. */
class Pages {
  constructor(keyOf) {
    this.load = null;
    this.age = 0; // seconds that rows which are read again may be old
    this.keyOf = keyOf;
    this.pages = [];
    this.next = null;
    this.isEnd = false;
    this.busy = null;
    this.search = null;
    this.isHeld = false;
  }

  get length() {
    const last = this.pages.at(-1);
    return last ? last.start + last.count : 0;
  }

  at(index) {
    let low = 0;
    let high = this.pages.length - 1;
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (this.pages[middle].start <= index) low = middle;
      else high = middle - 1;
    }
    return low;
  }

  row(index) {
    const page = this.pages[this.at(index)];
    return page?.rows?.[index - page.start] ?? null;
  }

  /** Read one more page. A search may have looked long and found little; then it goes on only when it is told to. */
  async more(size, stop) {
    if (this.isEnd || this.busy) return this.busy;
    const after = this.next;
    this.busy = this.load(after, size, stop, FRESH)
      .then((answer) => {
        if (answer.items.length || !this.pages.length) {
          this.pages.push({ after, start: this.length, count: answer.items.length, rows: answer.items });
        }
        this.next = answer.next;
        this.isEnd = !answer.next;
        this.isHeld = Boolean(
          answer.next && answer.search && !answer.search.isIndexed && answer.items.length < size,
        );
        this.search = answer.search && {
          ...answer.search,
          scanned: answer.search.scanned + (this.search?.scanned ?? 0),
        };
      })
      .finally(() => {
        this.busy = null;
      });
    return this.busy;
  }

  /** Read a page anew where it stands. Rows keep their places; gives the keys that were not there before. */
  async again(number, stop, size) {
    const page = this.pages[number];
    const look = (page.looks ?? 0) + 1;
    page.looks = look;
    const answer = await this.load(
      page.after,
      Math.max(page.count, number === 0 ? size : 1),
      stop,
      this.age,
    );
    if (look !== page.looks) return []; // a later look, which knows more, is under way
    if (!page.count && number === this.pages.length - 1) {
      // Where there was nothing, nothing can be moved by what comes.
      Object.assign(page, { rows: answer.items, count: answer.items.length });
      // A search that has looked further goes on from there, unless something came.
      if (answer.items.length || !this.isHeld) {
        this.next = answer.next;
        this.isEnd = !answer.next;
      }
      return [];
    }
    const found = new Map(answer.items.map((row) => [this.keyOf(row), row]));
    if (!page.rows) {
      const others = new Set(
        [...(this.pages[number - 1]?.rows ?? []), ...(this.pages[number + 1]?.rows ?? [])].map(
          this.keyOf,
        ),
      );
      page.rows = answer.items.filter((row) => !others.has(this.keyOf(row))).slice(0, page.count);
      return [];
    }
    const before = new Set(page.rows.map(this.keyOf));
    page.rows = page.rows.map(
      (row) => found.get(this.keyOf(row)) ?? (row.isGone ? row : { ...row, isGone: true }),
    );
    return [...found.keys()].filter((key) => !before.has(key) && !this.has(key));
  }

  has(key) {
    return this.pages.some((page) => page.rows?.some((row) => this.keyOf(row) === key));
  }

  forgetFar(number) {
    this.pages.forEach((page, at) => {
      if (Math.abs(at - number) > NEAR) page.rows = null;
    });
  }
}

// Lists that were left, by their entry in the history, so that going back finds them as they were.
const left = new Map();
const leave = (key, kept) => {
  left.set(key, kept);
  if (left.size > 8) left.delete(left.keys().next().value);
};

/** How wide a column is; moments take more room where they are also told from now. */
const widthOf = (column) =>
  column.isTime ? (clock.value === "relative" ? "260px" : "180px") : column.width || "minmax(90px, 1fr)";

const isNarrow = matchMedia("(max-width: 720px)");

/**
 * `name` says what list this is: another name is another list. `load(after, size, stop, age)` gives {items, next, search?}.
 * `columns`: [{title, width, cell, isNumber, isMinor, isTime}]; minor ones are left out on a phone. `to(row)`: where Enter leads.
 * `bar({selected, rows, clear})` draws what can be done with a selection. `total`: rows in all, if that is known.
 * Another number of `changes` reads the list anew; another one of `looks` reads the rows that are seen, where they stand.
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
  const box = useRef(null);
  const list = useRef(null);
  const [error, setError] = useState(null);
  const [fresh, setFresh] = useState(0);
  // The row that the keyboard is at and the selection are read when a key comes, which may be before the next drawing.
  const spot = useRef(0);
  const here = spot.current;
  const setHere = (index) => {
    spot.current = index;
    draw();
  };
  const picked = useRef(null);
  const anchor = useRef(null);
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
    // A list that is read anew stays the same one for who comes back to it.
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
  const { pages } = list.current;
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
      if (wrong.name !== "AbortError" && !stopping.signal.aborted) setError(wrong);
    }
  };

  useEffect(() => {
    setFresh(0);
    setError(null);
    setHere(0);
    if (!pages.pages.length) more();
    return undefined;
  }, [whole]);

  // Draws only what is seen. It is told of the number of rows at each drawing.
  const rows = useRef(null);
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
  // Before the virtualizer looks where the box is scrolled to, which it would take for a wish to be at the top.
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
  const first = (items[0]?.index ?? 0) + list.current.base;
  const last = (items.at(-1)?.index ?? 0) + list.current.base;
  const isChapterEnd = pages.length - list.current.base > CHAPTER;
  useEffect(() => {
    if (!pages.pages.length) return;
    const [from, until] = [pages.at(first), pages.at(last)];
    pages.forgetFar(from);
    for (let number = from; number <= until; number += 1) {
      if (!pages.pages[number].rows && !pages.pages[number].isBusy) {
        pages.pages[number].isBusy = true;
        pages
          .again(number, stop.current.signal, size)
          .then(draw, () => {})
          .finally(() => {
            pages.pages[number].isBusy = false;
          });
      }
    }
    if (!isPaged && !pages.isEnd && !pages.isHeld && !error && !isChapterEnd && last >= pages.length - 40)
      more();
  });

  // Rows that are seen are kept fresh where they stand; new ones are only counted.
  const look = async () => {
    if (!pages.pages.length) {
      await more();
      return;
    }
    const stopping = stop.current.signal;
    try {
      await pages.busy;
      const number = pages.at((rows.current.getVirtualItems()[0]?.index ?? 0) + list.current.base);
      const come = await pages.again(number, stopping, size);
      const isTop = number === 0 && !start;
      const anew = isTop ? come : start ? [] : await pages.again(0, stopping, size);
      if (stopping.aborted) return;
      setFresh(anew.length);
      draw();
    } catch {
      /* The next look tells. */
    }
  };
  useLooker(look, [whole]);
  useEffect(() => {
    if (!every) return undefined;
    let timer = null;
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
    pages
      .again(
        pages.at((rows.current.getVirtualItems()[0]?.index ?? 0) + list.current.base),
        stop.current.signal,
        size,
      )
      .then(draw, () => {});
  }, [looks]);

  const choose = (next) => {
    picked.current = next;
    draw();
    const text = next.size && next.size <= SELECTED ? [...next].join(",") : null;
    if ((query.value.get("sel") ?? null) !== text) setQuery({ sel: text });
  };
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
  const move = (index) => {
    const target = Math.min(
      Math.max(index, list.current.base),
      list.current.base + Math.max(length - 1, 0),
    );
    setHere(target);
    if (!isPaged) virtual.scrollToIndex(target - list.current.base);
  };
  const open = () => {
    const row = pages.row(spot.current);
    if (row && to) go(to(row));
  };
  const seen = Math.max(Math.floor((box.current?.clientHeight ?? 400) / ROW) - 2, 1);
  const keys = {
    j: () => move(spot.current + 1),
    k: () => move(spot.current - 1),
    x: (event) => bar && toggle(spot.current, event.shiftKey),
    X: () => bar && toggle(spot.current, true),
    Enter: open,
    ...(bar ? { Escape: () => choose(new Set()) } : {}),
  };
  useKeys(keys, [length, whole, bar === null]);
  const onKeyDown = (event) => {
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

  const tracks = `${bar ? "34px " : ""}${shown.map((column) => widthOf(column)).join(" ")}`;
  // All rows are as wide as their columns need at least, whatever is in them, so that columns stand below each other.
  const least = shown.reduce(
    (sum, column) => sum + Number(/\d+/.exec(column.width || "90")[0]),
    bar ? 34 : 0,
  );
  const across = { gridTemplateColumns: tracks, minWidth: `${least}px` };
  const chosen = [];
  if (bar && selected.size) {
    for (const page of pages.pages)
      for (const row of page.rows ?? []) if (selected.has(keyOf(row))) chosen.push(row);
  }
  const again = () => {
    setTurn((times) => times + 1);
    box.current.scrollTop = 0;
  };
  const visible = isPaged
    ? Array.from({ length: pages.length }, (_, index) => ({ index, start: index * ROW }))
    : items;
  const isNothing = pages.pages.length > 0 && pages.length === 0 && pages.isEnd;
  const cell = (index, column) => `${label.replace(/\W+/g, "-")}-${index}-${column}`;
  return html`
    <div class="grid-frame">
      <div class="grid-bar">
        <span class="number" role="status">
          ${total !== null
            ? `${count(total)} rows`
            : pages.isEnd
              ? `${count(pages.length)} ${pages.length === 1 ? "row" : "rows"}`
              : pages.pages.length
                ? `${count(pages.length)} rows read, more below`
                : "Reading…"}
        </span>
        ${pages.search && !pages.search.isIndexed && html`
          <span class="note">
            No index answers this search: ${count(pages.search.scanned)} rows were looked through
            ${pages.search.isDone ? "" : " so far"}.
            ${pages.isHeld && html` <button type="button" class="mini" onClick=${more}>Look further</button>`}
          </span>
        `}
        ${fresh > 0 && html`
          <button type="button" class="fresh" onClick=${again}>${fresh >= size ? `${size}+` : fresh} new</button>
        `}
        <span class="push"></span>
        ${bar && html`
          <div class="selection">
            ${bar({ selected, rows: chosen, clear: () => choose(new Set()), reload: again })}
          </div>
        `}
        <${Link} class="mini" to=${changed({ view: isPaged ? null : "paged", after: null })}>
          ${isPaged ? "Scroll" : "Pages"}
        </${Link}>
      </div>
      ${error && html`<${Trouble} error=${error} retry=${more} />`}
      <div class="grid-stack">
        <div
          ref=${box}
          class=${classes("grid", isPaged && "is-paged")}
          role="grid"
          tabindex="0"
          aria-label=${label}
          aria-multiselectable=${bar ? "true" : null}
          aria-busy=${Boolean(!pages.pages.length && !error)}
          aria-rowcount=${total !== null ? total + 1 : pages.isEnd ? pages.length + 1 : -1}
          aria-colcount=${shown.length + (bar ? 1 : 0)}
          aria-activedescendant=${pages.length ? cell(here, 1) : null}
          onKeyDown=${onKeyDown}
        >
          <div class="grid-head" role="row" aria-rowindex="1" style=${across}>
            ${bar && html`
              <div role="columnheader" aria-colindex="1">
                <span class="sr">Selected</span>
              </div>
            `}
            ${shown.map((column, at) => html`
              <div
                role="columnheader"
                aria-colindex=${at + (bar ? 2 : 1)}
                class=${column.isNumber && "number"}
              >
                ${column.title}
              </div>
            `)}
          </div>
          <div
            class="grid-body"
            role="rowgroup"
            style=${{ height: `${isPaged ? pages.length * ROW : virtual.getTotalSize()}px` }}
          >
            ${visible.map((item) => {
              const index = item.index + list.current.base;
              const row = pages.row(index);
              const isChosen = row && selected.has(keyOf(row));
              return html`
                <div
                  key=${index}
                  role="row"
                  aria-rowindex=${index + 2}
                  aria-selected=${bar ? String(Boolean(isChosen)) : null}
                  class=${classes(
                    "grid-row",
                    index === here && "is-here",
                    isChosen && "is-chosen",
                    row?.isGone && "is-gone",
                  )}
                  style=${{ ...across, transform: `translateY(${item.start}px)` }}
                  onClick=${(event) => {
                    if (!event.target.closest("a,button,input,label")) {
                      setHere(index);
                      box.current.focus({ preventScroll: true });
                      if (bar && event.shiftKey) toggle(index, true);
                    }
                  }}
                  onDblClick=${() => row && to && go(to(row))}
                >
                  ${bar && html`
                    <div role="gridcell" aria-colindex="1">
                      <input
                        type="checkbox"
                        tabindex="-1"
                        aria-label=${row ? `Select ${keyOf(row)}` : "Select"}
                        checked=${Boolean(isChosen)}
                        onClick=${(event) => {
                          setHere(index);
                          event.target.checked = toggle(index, event.shiftKey);
                        }}
                      />
                    </div>
                  `}
                  ${row ? (
                    shown.map((column, at) => html`
                      <div
                        role="gridcell"
                        id=${cell(index, at + 1)}
                        aria-colindex=${at + (bar ? 2 : 1)}
                        class=${classes(column.isNumber && "number")}
                      >
                        ${column.cell(row)}
                      </div>
                    `)
                  ) : html`<div role="gridcell" class="none">…</div>`}
                </div>
              `;
            })}
          </div>
        </div>
        ${isNothing && html`<div class="grid-empty">${empty || html`<p class="none">Nothing fits.</p>`}</div>`}
      </div>
      ${isChapterEnd && html`
        <p>
          <button
            type="button"
            onClick=${() => {
              list.current.base += CHAPTER;
              box.current.scrollTop = 0;
              draw();
            }}
          >
            Go on from row ${count(list.current.base + CHAPTER + 1)}
          </button>
        </p>
      `}
      ${list.current.base > 0 && html`
        <p>
          <button
            type="button"
            onClick=${() => {
              list.current.base -= CHAPTER;
              box.current.scrollTop = 0;
              draw();
            }}
          >
            Back to row ${count(list.current.base - CHAPTER + 1)}
          </button>
        </p>
      `}
      ${isPaged && html`
        <nav class="pager" aria-label="Pages">
          ${start && html`<${Link} to=${changed({ after: null })}>First page</${Link}>`}
          ${pages.next && html`<${Link} to=${changed({ after: pages.next })}>Next page</${Link}>`}
          <label>
            Rows${" "}
            <select
              value=${size}
              onChange=${(event) => setQuery({ size: event.target.value, after: null })}
            >
              ${[25, 50, 100, 250, 500].map((each) => html`<option value=${each}>${each}</option>`)}
            </select>
          </label>
        </nav>
      `}
    </div>
  `;
}
