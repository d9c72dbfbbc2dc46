// What a person chose for this browser: theme, how times are shown, whether pages refresh themselves.
import { signal, effect } from "./ui.js";

const kept = (name, initial, allowed) => {
  let value = initial;
  try {
    const found = JSON.parse(localStorage.getItem(`duly.${name}`));
    if (allowed.includes(found)) value = found;
  } catch {
    // Nothing is kept here; the first choice stands.
  }
  const pref = signal(value);
  effect(() => {
    try {
      localStorage.setItem(`duly.${name}`, JSON.stringify(pref.value));
    } catch {
      // A browser that keeps nothing forgets the choice with the page.
    }
  });
  return pref;
};

export const theme = kept("theme", "auto", ["auto", "light", "dark"]);
export const clock = kept("clock", "local", ["local", "utc", "relative"]);
export const isLive = kept("live", true, [true, false]);

effect(() => {
  if (theme.value === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme.value;
});

/** Ticks once a second while the page is seen, for ages that grow. */
export const now = signal(Date.now());
setInterval(() => {
  if (!document.hidden) now.value = Date.now();
}, 1000);
