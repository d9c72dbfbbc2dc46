// Reads that stay fresh: asked for again while the page is seen, and told at once from what was known before.
import { get, reach, takeNoOlder } from "./api.js";
import { isLive } from "./prefs.js";
import { signal, useEffect, useLayoutEffect, useRef, useState } from "./ui.js";

/** Seconds that an answer may be old where nothing is shown yet: who comes or comes back sees what is, and a crowd shares it. */
export const FRESH = 1;

/** How many parts of the page wait for what they show first. */
export const waiting = signal(0);

/** Count as waiting while this is true, from the first drawing on. */
export function useWaiting(isWaiting) {
  useLayoutEffect(() => {
    if (!isWaiting) return undefined;
    waiting.value += 1;
    return () => {
      waiting.value -= 1;
    };
  }, [isWaiting]);
}

// All that looks on the page, each to look again at once.
const lookers = new Set();

/** Read everything anew that the page shows, also where it stands still. */
export function refresh() {
  takeNoOlder();
  for (const look of lookers) look();
}

/** Have `look` called when the page is to be read anew. */
export function useLooker(look, inputs) {
  useEffect(() => {
    lookers.add(look);
    return () => lookers.delete(look);
  }, inputs);
}

const known = new Map();
const KNOWN = 60;

const keep = (name, data) => {
  known.delete(name);
  known.set(name, data);
  if (known.size > KNOWN) known.delete(known.keys().next().value);
};

/** Forget what was read, after something was changed. */
export const forget = () => known.clear();

/**
 * What `path` answers. `every`: seconds between two looks, 0 for once. A null path asks nothing. All who look share the
 * answers: a read that costs the database k statements should be asked for every k seconds or less often.
 * Gives {data, error, isLoading, reload}; data of the same address stays while it is asked for again.
 */
export function useLive(path, query = {}, { every = 2 } = {}) {
  const name = path === null ? null : `${path}?${JSON.stringify(query)}`;
  const [state, setState] = useState({ name, data: known.get(name), error: null });
  const reloader = useRef(() => {});
  useEffect(() => {
    if (name === null) return undefined;
    const stop = new AbortController();
    let timer = null;
    let isOver = false;
    let looks = 0;
    const look = async (isFresh) => {
      clearTimeout(timer);
      looks += 1;
      const number = looks;
      try {
        const age = isFresh || !every ? 0 : number === 1 ? FRESH : Math.ceil(every);
        const data = await get(path, query, { age, signal: stop.signal });
        if (isOver || number !== looks) return; // a later look, which knows more, is under way
        keep(name, data);
        setState({ name, data, error: null });
      } catch (error) {
        if (isOver || number !== looks || error.name === "AbortError") return;
        setState((before) => ({ name, data: before.name === name ? before.data : undefined, error }));
      }
      if (every && !isOver)
        timer = setTimeout(tick, (reach.value === false ? Math.max(every, 3) : every) * 1000);
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
