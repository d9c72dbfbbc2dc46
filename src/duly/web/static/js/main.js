// Begins: finds out who looks and what is here, then shows the screen that the address names.
import { html, render, useEffect, useErrorBoundary, useRef, useState } from "./lib/ui.js";
import { get, me } from "./lib/api.js";
import { useWaiting } from "./lib/live.js";
import { path, place, restoreScroll } from "./lib/router.js";
import { Shell, Title, screenAt, service } from "./parts/shell.js";
import { Empty, Trouble } from "./parts/marks.js";

const files = new URL("..", import.meta.url);
const loaded = new Map();

/** The module of the screen at this path, and what its path says. */
function found(at) {
  const here = screenAt(at);
  if (!here) return null;
  const { script } = here.screen;
  return { load: () => import(new URL(script, files).href), values: here.values, name: script };
}

function Screen() {
  const at = path.value;
  const target = found(at);
  const [state, setState] = useState({ name: null });
  const [broken, mend] = useErrorBoundary();
  useEffect(() => {
    if (!target) return;
    mend();
    const ready = loaded.get(target.name);
    if (ready) { setState({ name: target.name, component: ready }); return; }
    target.load().then((module) => {
      loaded.set(target.name, module.default);
      setState({ name: target.name, component: module.default });
    }, (error) => setState({ name: target.name, error }));
  }, [target?.name]);
  // A new page begins with its heading, for those who listen to it.
  const before = useRef(null);
  useEffect(() => {
    if (state.name !== target?.name) return;
    if (before.current !== null && before.current !== at) document.querySelector("main h1")?.focus({ preventScroll: true });
    before.current = at;
  }, [at, state.name]);
  useWaiting(Boolean(target) && state.name !== target?.name);
  useEffect(restoreScroll, [place.value.key, state.name]);
  if (!target) return html`<${Title}>Not found</${Title}><${Empty} title="There is no such screen."><p>The navigation shows those that this service has, as far as you may use them.</p></${Empty}>`;
  if (broken) return html`<${Title}>Something broke</${Title}><${Trouble} error=${broken} retry=${() => location.reload()} />`;
  if (state.name !== target.name) return html`<p class="loading" role="status">Loading…</p>`;
  if (state.error) return html`<${Title}>Load the page anew</${Title}><${Trouble} error=${new Error("This screen's files cannot be read. The service may have been updated since this page was loaded.")} retry=${() => location.reload()} />`;
  return html`<${state.component} key=${at} ...${target.values} />`;
}

function App() {
  const [error, setError] = useState(null);
  const [SignIn, setSignIn] = useState(null);
  const begin = async () => {
    setError(null);
    try {
      // Both are requested at once: the first rows wait for each answer that is requested in turn.
      const about = get("/api/dashboard");
      about.catch(() => {}); // what is wrong with both is told of the first
      const who = await get("/api/me");
      service.value = await about;
      me.value = who;
    } catch (wrong) {
      if (wrong.status === 401) me.value = false;
      else setError(wrong);
    }
  };
  useEffect(() => { begin(); }, []);
  useEffect(() => {
    if (me.value === false && !SignIn) import("./screens/sign_in.js").then((module) => setSignIn(() => module.default));
  }, [me.value]);
  if (error) return html`<main class="alone"><h1>duly</h1><${Trouble} error=${error} retry=${begin} /></main>`;
  if (me.value === false) return SignIn && html`<${SignIn} />`;
  if (!me.value) return html`<p class="boot">Loading…</p>`;
  return html`<${Shell}><${Screen} /></${Shell}>`;
}

const target = document.getElementById("app");
target.replaceChildren();
render(html`<${App} />`, target);
