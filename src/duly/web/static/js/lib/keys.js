// Keys of the keyboard: single ones, and `g` followed by another. None works while one writes.
import { useEffect } from "./ui.js";

const bound = [];
let isAfterG = 0;

const isWriting = (target) =>
  target.isContentEditable ||
  ["TEXTAREA", "SELECT"].includes(target.tagName) ||
  (target.tagName === "INPUT" && target.type !== "checkbox");

// Keys that links and buttons have a meaning for, which must stay theirs.
const isTheirs = (event) =>
  ["Enter", " "].includes(event.key) && event.target.closest("a, button, summary, input");

addEventListener("keydown", (event) => {
  if (event.defaultPrevented || event.metaKey || event.ctrlKey || event.altKey) {
    if (!((event.metaKey || event.ctrlKey) && event.key === "k")) return;
  }
  const isCommand = (event.metaKey || event.ctrlKey) && event.key === "k";
  if (
    !isCommand &&
    (isWriting(event.target) || isTheirs(event) || document.querySelector("dialog[open]"))
  )
    return;
  const isPair = Date.now() - isAfterG < 1500;
  const name = isCommand ? "mod+k" : isPair ? `g ${event.key}` : event.key;
  isAfterG = !isPair && event.key === "g" ? Date.now() : 0;
  for (let at = bound.length - 1; at >= 0; at -= 1) {
    const act = bound[at][name];
    if (act) {
      event.preventDefault();
      act(event);
      return;
    }
  }
});

/** Have these keys do this while the component is shown; the innermost one wins. */
export function useKeys(acts, inputs = []) {
  useEffect(() => {
    bound.push(acts);
    return () => bound.splice(bound.indexOf(acts), 1);
  }, inputs);
}
