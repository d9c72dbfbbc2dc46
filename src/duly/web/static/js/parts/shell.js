// The frame of every page: navigation, the switches for time, theme and refreshing, help, and the command palette.
import { html, signal, useEffect, useMemo, useRef, useState, classes } from "../lib/ui.js";
import { Link, go, path } from "../lib/router.js";
import { clock, isLive, theme } from "../lib/prefs.js";
import { me, reach, remove } from "../lib/api.js";
import { refresh, waiting } from "../lib/live.js";
import { useKeys } from "../lib/keys.js";
import { zoneName } from "../lib/time.js";
import { Actions, Asked, Dialog, Toasts, act } from "./dialogs.js";

/** What is known of this service: its version, its screens as far as one may use them, what is turned on. */
export const service = signal(null);

const screens = () => (service.value?.screens ?? []).filter((screen) => screen.group);

const shapeOf = ({ path: at, app }) =>
  new RegExp(`^${at.replace(/[.*+?^$()|[\]\\]/g, "\\$&").replace("{id}", "(?<id>[0-9a-f]+)")}${app ? "(?:/(?<rest>.*))?" : ""}$`);

/** The screen at this path, and what its path says; null where there is none. */
export function screenAt(at) {
  for (const screen of service.value?.screens ?? []) {
    const match = shapeOf(screen).exec(at);
    if (match) return { screen, values: screen.app ? { rest: match.groups.rest ?? "", isOn: screen.isOn } : { ...match.groups } };
  }
  return null;
}

const isHere = (screen) => {
  const here = screenAt(path.value)?.screen;
  return here !== undefined && (here.path === screen.path || here.within === screen.path);
};

function Navigation({ onGo }) {
  const groups = Map.groupBy ? Map.groupBy(screens(), (screen) => screen.group) : screens().reduce((map, screen) => map.set(screen.group, [...(map.get(screen.group) ?? []), screen]), new Map());
  return html`<nav class="nav" aria-label="Screens">${[...groups].map(([group, each]) => html`<div role="group" aria-label=${group}><span class="nav-group" aria-hidden="true">${group}</span>
    <ul>${each.map((screen) => html`<li><${Link} to=${screen.path} onClick=${onGo} class=${classes(isHere(screen) && "is-here")} aria-current=${isHere(screen) ? "page" : null}>${screen.title}</${Link}></li>`)}</ul></div>`)}</nav>`;
}

const Switch = ({ label, pref, options }) => html`<label class="switch"><span class="sr">${label}</span>
  <select value=${String(pref.value)} onChange=${(event) => { pref.value = event.target.value; }}>${options.map(([key, word]) => html`<option value=${key}>${word}</option>`)}</select></label>`;

const KEYS = [
  ["/", "search or filter this screen"], ["Ctrl K", "commands: go anywhere, find anything"], ["?", "this help"], ["j k", "next and previous row"],
  ["x", "select the row; with Shift, all rows up to it"], ["Enter", "open the row"], ["Escape", "clear the selection, close"], ["l", "refresh by itself, or stand still"], ["r", "refresh now"], ["t", "times: local, UTC, relative"],
];

function Help({ onClose }) {
  return html`<${Dialog} title="Keyboard" onClose=${onClose}><dl class="facts keys-help">${[...KEYS, ...screens().filter((screen) => screen.key).map((screen) => [`g ${screen.key}`, screen.title])].map(([key, text]) =>
    html`<div><dt><kbd>${key}</kbd></dt><dd>${text}</dd></div>`)}</dl></${Dialog}>`;
}

/** What can be done on the screen that is shown: the buttons at its head. */
const actsHere = () => Array.from(document.querySelectorAll("main .title .actions button:not(:disabled)"), (button) => ({ title: button.textContent.trim(), act: () => button.click() }));

function Palette({ onClose }) {
  const [text, setText] = useState("");
  const [at, setAt] = useState(0);
  const field = useRef(null);
  useEffect(() => field.current?.focus(), []);
  const all = useMemo(() => [
    ...actsHere(),
    { title: "Refresh now", act: refresh },
    ...screens().map((screen) => ({ title: `Go to ${screen.title}`, act: () => go(screen.path) })),
    ...["light", "dark", "auto"].map((each) => ({ title: `Theme: ${each}`, act: () => { theme.value = each; } })),
    ...["local", "utc", "relative"].map((each) => ({ title: `Times: ${each}`, act: () => { clock.value = each; } })),
  ], [service.value]);
  const said = text.trim().toLowerCase();
  const found = all.filter((each) => said.split(/\s+/).every((word) => each.title.toLowerCase().includes(word)));
  if (/^\d+$/.test(said)) found.unshift({ title: `Open item ${said}`, act: () => go(`/items/${said}`) }, { title: `Open job ${said}`, act: () => go(`/jobs/${said}`) });
  if (said) found.push({ title: `Items with key ${text.trim()}`, act: () => go(`/items?key=${encodeURIComponent(text.trim())}`) });
  const shown = found.slice(0, 12);
  const run = (each) => {
    if (!each) return;
    onClose();
    each.act();
  };
  const onKeyDown = (event) => {
    if (event.key === "ArrowDown") setAt(Math.min(at + 1, shown.length - 1));
    else if (event.key === "ArrowUp") setAt(Math.max(at - 1, 0));
    else if (event.key === "Enter") run(shown[at]);
    else return;
    event.preventDefault();
  };
  return html`<${Dialog} title="Commands" onClose=${onClose}>
    <input ref=${field} type="text" role="combobox" aria-expanded="true" aria-controls="palette" aria-activedescendant=${shown.length ? `command-${at}` : null} aria-label="Command" placeholder="Where to, or an id or a key" value=${text}
      onInput=${(event) => { setText(event.target.value); setAt(0); }} onKeyDown=${onKeyDown} />
    <ul id="palette" role="listbox" aria-label="Commands" class="palette">${shown.map((each, index) => html`<li id=${`command-${index}`} role="option" aria-selected=${String(index === at)} class=${index === at && "is-here"} onClick=${() => run(each)}>${each.title}</li>`)}</ul>
  </${Dialog}>`;
}

export function Shell({ children }) {
  const [opened, setOpened] = useState(null);
  const [isMenu, setMenu] = useState(false);
  const cycle = () => { clock.value = { local: "utc", utc: "relative", relative: "local" }[clock.value]; };
  const keys = {
    "?": () => setOpened("help"), "mod+k": () => setOpened("palette"), l: () => { isLive.value = !isLive.value; }, r: refresh, t: cycle,
    "/": () => { const field = document.querySelector("[data-search]"); if (field) field.focus(); else setOpened("palette"); },
    ...Object.fromEntries(screens().filter((screen) => screen.key).map((screen) => [`g ${screen.key}`, () => go(screen.path)])),
  };
  useKeys(keys, [service.value, me.value]);
  const leave = () => act(() => remove("/api/session"), "Signed out.", { after: () => { me.value = false; } });
  return html`<div class="frame">
    <a class="skip" href="#main" onClick=${(event) => { event.preventDefault(); document.getElementById("main").focus(); }}>Skip to the content</a>
    <header class="top">
      <button type="button" class="menu" aria-expanded=${String(isMenu)} aria-label="Menu" onClick=${() => setMenu(!isMenu)}>☰</button>
      <${Link} to="/" class="brand" aria-label="duly, now"><span aria-hidden="true" class="dot"></span>duly</${Link}>
      <button type="button" class="find" onClick=${() => setOpened("palette")}>Find or do <kbd>Ctrl K</kbd></button>
      <span class="push"></span>
      <button type="button" class=${classes("live", reach.value === false && "is-away", !isLive.value && "is-still")} aria-pressed=${String(isLive.value)} onClick=${() => { isLive.value = !isLive.value; }}>
        ${reach.value === false ? "No connection" : isLive.value ? "Live" : "Standing still"}</button>
      <${Switch} label="Times" pref=${clock} options=${[["local", `Local (${zoneName(false)})`], ["utc", "UTC"], ["relative", "Relative"]]} />
      <${Switch} label="Theme" pref=${theme} options=${[["auto", "System theme"], ["light", "Light"], ["dark", "Dark"]]} />
      <button type="button" class="mini" aria-label="Keyboard help" onClick=${() => setOpened("help")}>?</button>
      ${me.value && html`<span class="who" title=${`Role: ${me.value.role}`}>${me.value.userId}</span>${me.value.via === "session" && html`<button type="button" class="mini" onClick=${leave}>Sign out</button>`}`}
    </header>
    <div class=${classes("side", isMenu && "is-open")}><${Navigation} onGo=${() => setMenu(false)} />
      ${service.value && html`<p class="version">duly ${service.value.version}</p>`}</div>
    <main id="main" tabindex="-1" aria-busy=${String(waiting.value > 0)}>${children}</main>
    ${opened === "help" && html`<${Help} onClose=${() => setOpened(null)} />`}
    ${opened === "palette" && html`<${Palette} onClose=${() => setOpened(null)} />`}
    <${Asked} /><${Toasts} />
  </div>`;
}

/** The head of a screen: its title, which is also the document's, and what can be done there. */
export function Title({ children, text, actions }) {
  const said = text ?? (typeof children === "string" ? children : "");
  useEffect(() => { document.title = said ? `${said} · duly` : "duly"; }, [said]);
  return html`<header class="title"><h1 tabindex="-1">${children}</h1>${actions && html`<${Actions}>${actions}</${Actions}>`}</header>`;
}
