// What a person chose for this browser: theme, how times are shown, whether pages refresh themselves.
import { signal, effect } from "./ui.js";

/**
 * A choice that the browser remembers.
 * @template Value
 * @param {string} name
 * @param {Value} initial
 * @param {Value[]} allowed
 */
const kept = (name, initial, allowed) => {
  let value = initial;
  try {
    const found = JSON.parse(localStorage.getItem(`duly.${name}`) ?? "null");
    if (allowed.includes(found)) value = found;
  } catch {
    // Nothing is stored here, so the default applies.
  }
  const pref = signal(value);
  effect(() => {
    try {
      localStorage.setItem(`duly.${name}`, JSON.stringify(pref.value));
    } catch {
      // A browser that stores nothing forgets the choice when the page is closed.
    }
  });
  return pref;
};

export const theme = kept("theme", "auto", ["auto", "light", "dark"]);
/** @type {Signal<Clock>} */
export const clock = kept("clock", /** @type {Clock} */ ("local"), ["local", "utc", "relative"]);
export const isLive = kept("live", true, [true, false]);

effect(() => {
  if (theme.value === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme.value;
});

/** The time, once a second while the page is visible, for ages that grow. */
export const now = signal(Date.now());
setInterval(() => {
  if (!document.hidden) now.value = Date.now();
}, 1000);
