// Reads that stay fresh. They are repeated while the page is visible, and start from what was read before.
import { get, isAbort, reach, takeNoOlder } from "./api.js";
import { isLive } from "./prefs.js";
import { signal, useEffect, useLayoutEffect, useRef, useState } from "./ui.js";

/** Seconds that the first answer of a screen may be old: many people who open it share one. */
export const FRESH = 1;

/** How many parts of the page wait for their first data. */
export const waiting = signal(0);

/**
 * Count as waiting while this is true.
 * @param {boolean} isWaiting
 */
export function useWaiting(isWaiting) {
  useLayoutEffect(() => {
    if (!isWaiting) return undefined;
    waiting.value += 1;
    return () => {
      waiting.value -= 1;
    };
  }, [isWaiting]);
}

/**
 * All reads of the page; each reads again when it is called.
 * @type {Set<() => unknown>}
 */
const lookers = new Set();

/** Read everything that the page shows again, also where refreshing is off. */
export function refresh() {
  takeNoOlder();
  for (const look of lookers) look();
}

/**
 * Have `look` called by `refresh`.
 * @param {() => unknown} look
 * @param {unknown[]} inputs
 */
export function useLooker(look, inputs) {
  useEffect(() => {
    lookers.add(look);
    return () => {
      lookers.delete(look);
    };
  }, inputs);
}

/**
 * Answers that were read, by their address.
 * @type {Map<string | null, any>}
 */
const known = new Map();
const KNOWN = 60;

/**
 * @param {string} name
 * @param {unknown} data
 */
const keep = (name, data) => {
  known.delete(name);
  known.set(name, data);
  if (known.size > KNOWN) known.delete(known.keys().next().value ?? null);
};

/** Forget the answers that were read, after something was changed. */
export const forget = () => known.clear();

/**
 * The answer of `path`, read again every `every` seconds, or once with 0. A null path reads nothing. While the same
 * address is read again, its data stays. Everybody who looks shares the answers: a read of k statements should be
 * repeated every k seconds or less often.
 * @template {string} Path
 * @param {Path | null} path
 * @param {Query} [query]
 * @param {{ every?: number }} [options]
 * @returns {Live<Answer<Path>>}
 */
export function useLive(path, query = {}, { every = 2 } = {}) {
  const name = path === null ? null : `${path}?${JSON.stringify(query)}`;
  const [state, setState] = useState(
    /** @type {{ name: string | null, data: any, error: any }} */ ({ name, data: known.get(name), error: null }),
  );
  const reloader = useRef(/** @type {() => unknown} */ (() => {}));
  useEffect(() => {
    if (path === null || name === null) return undefined;
    const stop = new AbortController();
    let timer = 0;
    let isOver = false;
    let looks = 0;
    /** @param {boolean} isFresh */
    const look = async (isFresh) => {
      clearTimeout(timer);
      looks += 1;
      const number = looks;
      const isOutdated = () => isOver || number !== looks; // a later look is under way
      try {
        const age = isFresh || !every ? 0 : number === 1 ? FRESH : Math.ceil(every);
        const data = await get(path, query, { age, signal: stop.signal });
        if (isOutdated()) return;
        keep(name, data);
        setState({ name, data, error: null });
      } catch (error) {
        if (isOutdated() || isAbort(error)) return;
        setState((before) => ({ name, data: before.name === name ? before.data : undefined, error }));
      }
      if (every) timer = setTimeout(tick, (reach.value === false ? Math.max(every, 3) : every) * 1000);
    };
    const tick = () => {
      if (document.hidden || !isLive.value) timer = setTimeout(tick, 1000);
      else look(false);
    };
    reloader.current = () => look(true);
    setState({ name, data: known.get(name), error: null });
    look(false);
    return () => {
      isOver = true;
      clearTimeout(timer);
      stop.abort();
    };
  }, [name, every]);
  const isCurrent = state.name === name;
  const isLoading = name !== null && !(isCurrent && (state.data !== undefined || state.error));
  useWaiting(isLoading);
  const reload = () => reloader.current();
  useLooker(reload, []);
  return {
    data: isCurrent ? state.data : known.get(name),
    error: isCurrent ? state.error : null,
    isLoading,
    reload,
  };
}
