// The frame of every page: navigation, the switches for times, theme and refreshing, help, and the command palette.
import { html, useEffect, useState, classes } from "../lib/ui.js";
import { Link, go, path } from "../lib/router.js";
import { clock, isLive, theme } from "../lib/prefs.js";
import { me, reach, remove } from "../lib/api.js";
import { refresh, waiting } from "../lib/live.js";
import { useKeys } from "../lib/keys.js";
import { screenAt, screens, service } from "../lib/service.js";
import { zoneName } from "../lib/time.js";
import { Actions, Asked, Dialog, Toasts, act } from "./dialogs.js";
import { Palette } from "./palette.js";

/** @typedef {import("../lib/service.js").Screen} Screen */

/** @param {Screen} screen */
const isHere = (screen) => {
  const here = screenAt(path.value)?.screen;
  return here !== undefined && (here.path === screen.path || here.within === screen.path);
};

/** @param {{ screen: Screen, onGo: () => void }} props */
const ScreenLink = ({ screen, onGo }) => html`
  <li>
    <${Link}
      to=${screen.path}
      onClick=${onGo}
      class=${classes(isHere(screen) && "is-here")}
      aria-current=${isHere(screen) ? "page" : null}
    >
      ${screen.title}
    </${Link}>
  </li>
`;

/** @param {{ onGo: () => void }} props */
function Navigation({ onGo }) {
  const shown = screens();
  const groups = [...new Set(shown.map((screen) => screen.group))];
  return html`
    <nav class="nav" aria-label="Screens">
      ${groups.map((group) => html`
        <div role="group" aria-label=${group}>
          <span class="nav-group" aria-hidden="true">${group}</span>
          <ul>
            ${shown
              .filter((screen) => screen.group === group)
              .map((screen) => html`<${ScreenLink} screen=${screen} onGo=${onGo} />`)}
          </ul>
        </div>
      `)}
    </nav>
  `;
}

/** @param {{ label: string, pref: Signal<any>, options: [key: string, word: string][] }} props */
const Switch = ({ label, pref, options }) => html`
  <label class="switch">
    <span class="sr">${label}</span>
    <select value=${String(pref.value)} onChange=${(event) => (pref.value = event.target.value)}>
      ${options.map(([key, word]) => html`<option value=${key}>${word}</option>`)}
    </select>
  </label>
`;

const KEYS = [
  ["/", "search or filter this screen"],
  ["Ctrl K", "commands: go anywhere, find anything"],
  ["?", "this help"],
  ["j k", "next and previous row"],
  ["x", "select the row; with Shift, all rows up to it"],
  ["Enter", "open the row"],
  ["Escape", "clear the selection, close"],
  ["l", "turn refreshing on or off"],
  ["r", "refresh now"],
  ["t", "times: local, UTC, relative"],
];

/** The keys that lead to screens, with their screens. */
const screenKeys = () => screens().filter((screen) => screen.key);

/** @param {{ onClose: () => void }} props */
function Help({ onClose }) {
  const keys = [...KEYS, ...screenKeys().map((screen) => [`g ${screen.key}`, screen.title])];
  return html`
    <${Dialog} title="Keyboard" onClose=${onClose}>
      <dl class="facts keys-help">
        ${keys.map(([key, text]) => html`
          <div>
            <dt><kbd>${key}</kbd></dt>
            <dd>${text}</dd>
          </div>
        `)}
      </dl>
    </${Dialog}>
  `;
}

/** @type {Record<Clock, Clock>} */
const NEXT_CLOCK = { local: "utc", utc: "relative", relative: "local" };

const toggleLive = () => {
  isLive.value = !isLive.value;
};

/** @param {(dialog: "help" | "palette") => void} open */
const keysOf = (open) => ({
  "?": () => open("help"),
  "mod+k": () => open("palette"),
  l: toggleLive,
  r: refresh,
  t: () => {
    clock.value = NEXT_CLOCK[clock.value];
  },
  "/": () => {
    const field = document.querySelector("[data-search]");
    if (field instanceof HTMLElement) field.focus();
    else open("palette");
  },
  ...Object.fromEntries(screenKeys().map((screen) => [`g ${screen.key}`, () => go(screen.path)])),
});

const signOut = () =>
  act(() => remove("/api/session"), "Signed out.", {
    after: () => {
      me.value = false;
    },
  });

/** @param {MouseEvent} event */
const skipToContent = (event) => {
  event.preventDefault();
  document.getElementById("main")?.focus();
};

function LiveButton() {
  const isAway = reach.value === false;
  const text = isAway ? "No connection" : isLive.value ? "Live" : "Paused";
  return html`
    <button
      type="button"
      class=${classes("live", isAway && "is-away", !isLive.value && "is-still")}
      aria-pressed=${String(isLive.value)}
      onClick=${toggleLive}
    >
      ${text}
    </button>
  `;
}

const User = () =>
  me.value && html`
    <span class="who" title=${`Role: ${me.value.role}`}>${me.value.userId}</span>
    ${me.value.via === "session" && html`<button type="button" class="mini" onClick=${signOut}>Sign out</button>`}
  `;

/** @param {{ isMenu: boolean, onMenu: () => void, onOpen: (dialog: "help" | "palette") => void }} props */
const Header = ({ isMenu, onMenu, onOpen }) => html`
  <header class="top">
    <button type="button" class="menu" aria-expanded=${String(isMenu)} aria-label="Menu" onClick=${onMenu}>☰</button>
    <${Link} to="/" class="brand" aria-label="duly, now">
      <span aria-hidden="true" class="dot"></span>duly
    </${Link}>
    <button type="button" class="find" onClick=${() => onOpen("palette")}>Find or do <kbd>Ctrl K</kbd></button>
    <span class="push"></span>
    <${LiveButton} />
    <${Switch}
      label="Times"
      pref=${clock}
      options=${[
        ["local", `Local (${zoneName(false)})`],
        ["utc", "UTC"],
        ["relative", "Relative"],
      ]}
    />
    <${Switch}
      label="Theme"
      pref=${theme}
      options=${[
        ["auto", "System theme"],
        ["light", "Light"],
        ["dark", "Dark"],
      ]}
    />
    <button type="button" class="mini" aria-label="Keyboard help" onClick=${() => onOpen("help")}>?</button>
    <${User} />
  </header>
`;

/** @param {{ children: Children }} props */
export function Shell({ children }) {
  const [opened, setOpened] = useState(/** @type {"help" | "palette" | null} */ (null));
  const [isMenu, setMenu] = useState(false);
  useKeys(keysOf(setOpened), [service.value, me.value]);
  const close = () => setOpened(null);
  return html`
    <div class="frame">
      <a class="skip" href="#main" onClick=${skipToContent}>Skip to the content</a>
      <${Header} isMenu=${isMenu} onMenu=${() => setMenu(!isMenu)} onOpen=${setOpened} />
      <div class=${classes("side", isMenu && "is-open")}>
        <${Navigation} onGo=${() => setMenu(false)} />
        ${service.value && html`<p class="version">duly ${service.value.version}</p>`}
      </div>
      <main id="main" tabindex="-1" aria-busy=${String(waiting.value > 0)}>${children}</main>
      ${opened === "help" && html`<${Help} onClose=${close} />`}
      ${opened === "palette" && html`<${Palette} onClose=${close} />`}
      <${Asked} />
      <${Toasts} />
    </div>
  `;
}

/**
 * The head of a screen: its title, which is also the document's, and its buttons.
 * @param {{ children: Children, text?: string, actions?: Children }} props
 */
export function Title({ children, text, actions }) {
  const title = text ?? (typeof children === "string" ? children : "");
  useEffect(() => {
    document.title = title ? `${title} · duly` : "duly";
  }, [title]);
  return html`
    <header class="title">
      <h1 tabindex="-1">${children}</h1>
      ${actions && html`<${Actions}>${actions}</${Actions}>`}
    </header>
  `;
}
