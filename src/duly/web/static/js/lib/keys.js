// Keyboard commands: single keys, and `g` followed by another. None works while a person types into a field.
import { useLayoutEffect } from "./ui.js";

/** @typedef {Record<string, (event: KeyboardEvent) => unknown>} KeyActs what each key does, by its name */

const PAIR = 1500; // milliseconds between `g` and the next key

/** @type {KeyActs[]} */
const bound = [];
let pressedG = 0;

/** @param {HTMLElement} target */
const isTyping = (target) =>
  target.isContentEditable ||
  ["TEXTAREA", "SELECT"].includes(target.tagName) ||
  (target instanceof HTMLInputElement && target.type !== "checkbox");

/**
 * Whether a link, button or field has its own meaning for this key.
 * @param {KeyboardEvent} event
 * @param {HTMLElement} target
 */
const isItsOwn = (event, target) =>
  ["Enter", " "].includes(event.key) && target.closest("a, button, summary, input") !== null;

addEventListener("keydown", (event) => {
  const target = /** @type {HTMLElement} */ (event.target);
  const isCommand = (event.metaKey || event.ctrlKey) && event.key === "k";
  if (!isCommand) {
    if (event.defaultPrevented || event.metaKey || event.ctrlKey || event.altKey) return;
    if (isTyping(target) || isItsOwn(event, target) || document.querySelector("dialog[open]")) return;
  }
  const isPair = Date.now() - pressedG < PAIR;
  const name = isCommand ? "mod+k" : isPair ? `g ${event.key}` : event.key;
  pressedG = !isPair && event.key === "g" ? Date.now() : 0;
  const act = bound.findLast((acts) => acts[name])?.[name];
  if (!act) return;
  event.preventDefault();
  act(event);
});

/**
 * Bind these keys while the component is shown; the innermost one wins.
 * @param {KeyActs} acts
 * @param {unknown[]} [inputs]
 */
export function useKeys(acts, inputs = []) {
  useLayoutEffect(() => {
    bound.push(acts);
    return () => {
      bound.splice(bound.indexOf(acts), 1);
    };
  }, inputs);
}
