// The command palette: go to a screen, press a button of this one, open an item by its id.
import { html, useMemo, useState } from "../lib/ui.js";
import { go } from "../lib/router.js";
import { clock, theme } from "../lib/prefs.js";
import { refresh } from "../lib/live.js";
import { screens, service } from "../lib/service.js";
import { Dialog } from "./dialogs.js";

/** @typedef {{ title: string, act: () => unknown }} Command */

const SHOWN = 12;
const THEMES = ["light", "dark", "auto"];
/** @type {Clock[]} */
const CLOCKS = ["local", "utc", "relative"];

/**
 * The buttons at the head of the screen.
 * @returns {Command[]}
 */
const buttonsHere = () =>
  Array.from(
    /** @type {NodeListOf<HTMLElement>} */ (
      document.querySelectorAll("main .title .actions button:not(:disabled)")
    ),
    (button) => ({ title: (button.textContent ?? "").trim(), act: () => button.click() }),
  );

/** @returns {Command[]} */
const commands = () => [
  ...buttonsHere(),
  { title: "Refresh now", act: refresh },
  ...screens().map((screen) => ({ title: `Go to ${screen.title}`, act: () => go(screen.path) })),
  ...THEMES.map((each) => ({ title: `Theme: ${each}`, act: () => (theme.value = each) })),
  ...CLOCKS.map((each) => ({ title: `Times: ${each}`, act: () => (clock.value = each) })),
];

/**
 * The commands that match a text, and what the text may be: an id or a key.
 * @param {Command[]} all
 * @param {string} text
 * @returns {Command[]}
 */
function matching(all, text) {
  const words = text.toLowerCase().split(/\s+/);
  const found = all.filter((each) => words.every((word) => each.title.toLowerCase().includes(word)));
  const byId = [
    { title: `Open item ${text}`, act: () => go(`/items/${text}`) },
    { title: `Open job ${text}`, act: () => go(`/jobs/${text}`) },
  ];
  const byKey = { title: `Items with key ${text}`, act: () => go(`/items?key=${encodeURIComponent(text)}`) };
  return [...(/^\d+$/.test(text) ? byId : []), ...found, ...(text ? [byKey] : [])].slice(0, SHOWN);
}

/** @param {{ onClose: () => void }} props */
export function Palette({ onClose }) {
  const [text, setText] = useState("");
  const [at, setAt] = useState(0);
  const all = useMemo(commands, [service.value]);
  const shown = matching(all, text.trim());
  /** @param {Command | undefined} command */
  const run = (command) => {
    if (!command) return;
    onClose();
    command.act();
  };
  /** @param {string} typed */
  const type = (typed) => {
    setText(typed);
    setAt(0);
  };
  /** @param {KeyboardEvent} event */
  const onKeyDown = (event) => {
    if (event.key === "ArrowDown") setAt(Math.min(at + 1, shown.length - 1));
    else if (event.key === "ArrowUp") setAt(Math.max(at - 1, 0));
    else if (event.key === "Enter") run(shown[at]);
    else return;
    event.preventDefault();
  };
  return html`
    <${Dialog} title="Commands" onClose=${onClose}>
      <input
        autofocus
        type="text"
        role="combobox"
        aria-expanded="true"
        aria-controls="palette"
        aria-activedescendant=${shown.length ? `command-${at}` : null}
        aria-label="Command"
        placeholder="A screen, an id or a key"
        value=${text}
        onInput=${(event) => type(event.target.value)}
        onKeyDown=${onKeyDown}
      />
      <ul id="palette" role="listbox" aria-label="Commands" class="palette">
        ${shown.map((each, index) => html`
          <li
            id=${`command-${index}`}
            role="option"
            aria-selected=${String(index === at)}
            class=${index === at && "is-here"}
            onClick=${() => run(each)}
          >
            ${each.title}
          </li>
        `)}
      </ul>
    </${Dialog}>
  `;
}
