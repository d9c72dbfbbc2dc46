// Starts the page: reads the user and the service, then shows the screen of the address.
import { html, render, useEffect, useErrorBoundary, useLayoutEffect, useRef, useState } from "./lib/ui.js";
import { get, me } from "./lib/api.js";
import { useWaiting } from "./lib/live.js";
import { path, place, restoreScroll } from "./lib/router.js";
import { screenAt, service } from "./lib/service.js";
import { Shell, Title } from "./parts/shell.js";
import { Empty, Trouble } from "./parts/marks.js";

const files = new URL("..", import.meta.url);

/**
 * The components of screens that were loaded, by their module.
 * @type {Map<string, unknown>}
 */
const loaded = new Map();

/**
 * The module of the screen at this path, and the values in the path.
 * @param {string} at
 */
function targetAt(at) {
  const here = screenAt(at);
  if (!here) return null;
  const { script } = here.screen;
  return { load: () => import(new URL(script, files).href), values: here.values, name: script };
}

/** @typedef {{ name: string | null, component?: any, error?: any }} Loading */

/**
 * Load the module of a screen. Gives the name and the component of the one that is ready.
 * @param {ReturnType<typeof targetAt>} target
 * @param {() => void} mend what clears an earlier error
 */
function useScreen(target, mend) {
  const [state, setState] = useState(/** @type {Loading} */ ({ name: null }));
  useEffect(() => {
    if (!target) return undefined;
    mend();
    const { name } = target;
    const ready = loaded.get(name);
    if (ready) {
      setState({ name, component: ready });
      return undefined;
    }
    let isWanted = true; // until the person goes on to another screen
    target.load().then(
      (module) => {
        loaded.set(name, module.default);
        if (isWanted) setState({ name, component: module.default });
      },
      (error) => {
        if (isWanted) setState({ name, error });
      },
    );
    return () => {
      isWanted = false;
    };
  }, [target?.name]);
  return state;
}

/**
 * Put the focus on the heading of a new page, for people who listen to it; at once, because a person may press the key
 * of another field meanwhile.
 * @param {string} at
 * @param {boolean} isShown
 */
function useFocusOnTitle(at, isShown) {
  const before = useRef(/** @type {string | null} */ (null));
  useLayoutEffect(() => {
    if (!isShown) return;
    const title = document.querySelector("main h1");
    const isNew = before.current !== null && before.current !== at;
    if (isNew && title instanceof HTMLElement) title.focus({ preventScroll: true });
    before.current = at;
  }, [at, isShown]);
}

const reload = () => location.reload();

const NotFound = () => html`
  <${Title}>Not found</${Title}>
  <${Empty} title="There is no such screen.">
    <p>The navigation shows the screens that you may use.</p>
  </${Empty}>
`;

const NotLoaded = () => html`
  <${Title}>Load the page again</${Title}>
  <${Trouble}
    error=${new Error("The files of this screen cannot be read. The service may have been updated meanwhile.")}
    retry=${reload}
  />
`;

function Screen() {
  const at = path.value;
  const target = targetAt(at);
  const [broken, mend] = useErrorBoundary();
  const state = useScreen(target, mend);
  const isReady = state.name === target?.name;
  useFocusOnTitle(at, isReady);
  useWaiting(Boolean(target) && !isReady);
  useEffect(restoreScroll, [place.value.key, state.name]);
  if (!target) return html`<${NotFound} />`;
  if (broken) return html`<${Title}>Something broke</${Title}><${Trouble} error=${broken} retry=${reload} />`;
  if (!isReady) return html`<p class="loading" role="status">Loading…</p>`;
  if (state.error) return html`<${NotLoaded} />`;
  return html`<${state.component} key=${at} ...${target.values} />`;
}

function App() {
  const [error, setError] = useState(/** @type {any} */ (null));
  const [SignIn, setSignIn] = useState(/** @type {any} */ (null));
  const begin = async () => {
    setError(null);
    try {
      // Both are requested at once: the first rows wait for each answer that is requested in turn.
      const about = get("/api/dashboard");
      about.catch(() => {}); // an error of both is shown for the first
      const who = await get("/api/me");
      service.value = await about;
      me.value = who;
    } catch (wrong) {
      if (wrong.status === 401) me.value = false;
      else setError(wrong);
    }
  };
  useEffect(() => {
    begin();
  }, []);
  useEffect(() => {
    if (me.value !== false || SignIn) return;
    import("./screens/sign_in.js").then((module) => setSignIn(() => module.default));
  }, [me.value]);
  if (error) return html`<main class="alone"><h1>duly</h1><${Trouble} error=${error} retry=${begin} /></main>`;
  if (me.value === false) return SignIn && html`<${SignIn} />`;
  if (!me.value) return html`<p class="boot">Loading…</p>`;
  return html`<${Shell}><${Screen} /></${Shell}>`;
}

const target = /** @type {HTMLElement} */ (document.getElementById("app"));
target.replaceChildren();
render(html`<${App} />`, target);
