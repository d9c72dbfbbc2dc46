// The pages of a long list, as far as they were read. Pages far from what is seen are dropped, and read when needed.
import { FRESH } from "./live.js";

const NEAR = 4; // pages kept on either side of what is seen

/**
 * @typedef {object} Page
 * @property {string | null} after the cursor that it was read with
 * @property {number} start the index of its first row
 * @property {number} count
 * @property {any[] | null} rows null where they were forgotten
 * @property {number} [looks] how often it was read again
 * @property {boolean} [isBusy] whether it is being read again
 */

/** @typedef {(row: any) => string} KeyOf */

export class Pages {
  /** @param {KeyOf} keyOf */
  constructor(keyOf) {
    this.load = /** @type {LoadPage} */ (() => Promise.reject(new Error("nothing to load from")));
    this.age = 0; // seconds that rows which are read again may be old
    this.keyOf = keyOf;
    /** @type {Page[]} */
    this.pages = [];
    /** @type {string | null} */
    this.next = null;
    this.isEnd = false;
    /** @type {Promise<void> | null} */
    this.busy = null;
    /** @type {any} */
    this.search = null;
    this.isHeld = false;
  }

  get length() {
    const last = this.pages.at(-1);
    return last ? last.start + last.count : 0;
  }

  /**
   * The number of the page with this row.
   * @param {number} index
   */
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

  /** @param {number} index */
  row(index) {
    const page = this.pages[this.at(index)];
    return page?.rows?.[index - page.start] ?? null;
  }

  /**
   * Read one more page. A search that looked through many rows and found few stops here until the person continues it.
   * @param {number} size
   * @param {AbortSignal} stop
   */
  async more(size, stop) {
    if (this.isEnd || this.busy) return this.busy;
    this.busy = this.#readNext(size, stop).finally(() => {
      this.busy = null;
    });
    return this.busy;
  }

  /**
   * @param {number} size
   * @param {AbortSignal} stop
   */
  async #readNext(size, stop) {
    const after = this.next;
    const { items, next, search } = await this.load(after, size, stop, FRESH);
    if (items.length || !this.pages.length) {
      this.pages.push({ after, start: this.length, count: items.length, rows: items });
    }
    this.#continueAt(next);
    this.isHeld = Boolean(next && search && !search.isIndexed && items.length < size);
    this.search = search && { ...search, scanned: search.scanned + (this.search?.scanned ?? 0) };
  }

  /** @param {string | null | undefined} next */
  #continueAt(next) {
    this.next = next ?? null;
    this.isEnd = !next;
  }

  /**
   * Read a page again. Its rows keep their places. Gives the keys of rows that are new.
   * @param {number} number
   * @param {AbortSignal} stop
   * @param {number} size
   * @returns {Promise<string[]>}
   */
  async again(number, stop, size) {
    const page = this.pages[number];
    const look = (page.looks ?? 0) + 1;
    page.looks = look;
    const wanted = Math.max(page.count, number === 0 ? size : 1);
    const { items, next } = await this.load(page.after, wanted, stop, this.age);
    if (look !== page.looks) return []; // a later look is under way
    if (!page.count && number === this.pages.length - 1) {
      // The list was empty, so new rows move nothing.
      Object.assign(page, { rows: items, count: items.length });
      // A search that has looked further continues from there, unless something was found.
      if (items.length || !this.isHeld) this.#continueAt(next);
      return [];
    }
    if (!page.rows) {
      const around = [...(this.pages[number - 1]?.rows ?? []), ...(this.pages[number + 1]?.rows ?? [])];
      const others = new Set(around.map(this.keyOf));
      page.rows = items.filter((row) => !others.has(this.keyOf(row))).slice(0, page.count);
      return [];
    }
    return this.#replace(page, page.rows, items);
  }

  /**
   * @param {Page} page
   * @param {any[]} old
   * @param {any[]} items
   */
  #replace(page, old, items) {
    const found = new Map(items.map((row) => [this.keyOf(row), row]));
    const before = new Set(old.map(this.keyOf));
    page.rows = old.map((row) => found.get(this.keyOf(row)) ?? (row.isGone ? row : { ...row, isGone: true }));
    return [...found.keys()].filter((key) => !before.has(key) && !this.#has(key));
  }

  /** @param {string} key */
  #has(key) {
    return this.pages.some((page) => page.rows?.some((row) => this.keyOf(row) === key));
  }

  /**
   * The rows with these keys, as far as they are known.
   * @param {Set<string>} keys
   */
  withKeys(keys) {
    if (!keys.size) return [];
    return this.pages.flatMap((page) => (page.rows ?? []).filter((row) => keys.has(this.keyOf(row))));
  }

  /**
   * Forget the rows of pages that are far from this one.
   * @param {number} number
   */
  forgetFar(number) {
    this.pages.forEach((page, at) => {
      if (Math.abs(at - number) > NEAR) page.rows = null;
    });
  }
}
