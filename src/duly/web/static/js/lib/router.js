// Addresses: every screen, filter and selection has one, and going back returns to the same place on the page.
import { root, valuesOf } from "./api.js";
import { signal, computed, html } from "./ui.js";

/** @param {string} text */
const decoded = (text) => {
  try {
    return decodeURI(text);
  } catch {
    return text;
  }
};

const read = () => ({
  path: decoded(location.pathname.slice(root.length)) || "/",
  query: new URLSearchParams(location.search),
  /** @type {string} */
  key: history.state?.key ?? "first",
});

export const place = signal(read());
export const path = computed(() => place.value.path);
export const query = computed(() => place.value.query);

/**
 * How far each visited page was scrolled, by its entry in the history.
 * @type {Map<string, number>}
 */
const scrolls = new Map();
const SCROLLS = 200;
history.scrollRestoration = "manual";
const remember = () => {
  scrolls.set(place.value.key, window.scrollY);
  if (scrolls.size > SCROLLS) scrolls.delete(scrolls.keys().next().value ?? "");
};
addEventListener("scroll", remember, { passive: true });

/** Scroll to where the page was when its history entry was left; a new page starts at its top. */
export function restoreScroll() {
  const y = scrolls.get(place.value.key) ?? 0;
  requestAnimationFrame(() => window.scrollTo(0, y));
}

addEventListener("popstate", () => {
  place.value = read();
});

let entries = 0;

/**
 * Go to an address of the dashboard.
 * @param {string} url
 * @param {{ replace?: boolean }} [options] `replace` changes the address without a new entry in the history
 */
export function go(url, { replace = false } = {}) {
  const key = replace ? place.value.key : `${Date.now()}-${entries++}`;
  history[replace ? "replaceState" : "pushState"]({ key }, "", root + url);
  place.value = read();
}

/**
 * The address of this screen with these parameters changed; null removes one.
 * @param {Query} values
 */
export function changed(values, at = place.value) {
  const next = new URLSearchParams(at.query);
  for (const [name, value] of Object.entries(values)) {
    next.delete(name);
    for (const each of valuesOf(value)) next.append(name, each);
  }
  const text = next.toString().replaceAll("%2C", ",").replaceAll("%3A", ":");
  return at.path + (text ? `?${text}` : "");
}

/**
 * @param {Query} values
 * @param {{ replace?: boolean }} [options]
 */
export const setQuery = (values, options = { replace: true }) => go(changed(values), options);

/** @param {MouseEvent} event */
const isPlain = (event) =>
  event.button === 0 && !event.metaKey && !event.ctrlKey && !event.shiftKey && !event.altKey;

/**
 * A link within the dashboard: a real address, which a plain click follows without loading the page.
 * @param {{ to: string, children?: Children, onClick?: (event: MouseEvent) => void }} props and attributes of the link
 */
export function Link({ to, children, onClick, ...rest }) {
  /** @param {MouseEvent} event */
  const follow = (event) => {
    onClick?.(event);
    if (event.defaultPrevented || !isPlain(event)) return;
    event.preventDefault();
    go(to);
  };
  return html`<a href=${root + to} onClick=${follow} ...${rest}>${children}</a>`;
}
