// Addresses: every screen, filter and selection has one, and going back finds the place where one was.
import { root } from "./api.js";
import { signal, computed, html } from "./ui.js";

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
  key: history.state?.key ?? "first",
});

export const place = signal(read());
export const path = computed(() => place.value.path);
export const query = computed(() => place.value.query);

// Where each visited page was scrolled to, by its entry in the history.
const scrolls = new Map();
history.scrollRestoration = "manual";
const remember = () => {
  scrolls.set(place.value.key, window.scrollY);
  if (scrolls.size > 200) scrolls.delete(scrolls.keys().next().value);
};
addEventListener("scroll", remember, { passive: true });

/** Put the page where it was when its history entry was left; a new page begins at its top. */
export function restoreScroll() {
  const y = scrolls.get(place.value.key) ?? 0;
  requestAnimationFrame(() => window.scrollTo(0, y));
}

addEventListener("popstate", () => {
  place.value = read();
});

let entries = 0;
export function go(url, { replace = false } = {}) {
  const key = replace ? place.value.key : `${Date.now()}-${entries++}`;
  history[replace ? "replaceState" : "pushState"]({ key }, "", root + url);
  place.value = read();
}

/** The address of this screen with these parameters changed; null takes one away. */
export function changed(values, at = place.value) {
  const next = new URLSearchParams(at.query);
  for (const [name, value] of Object.entries(values)) {
    next.delete(name);
    for (const each of Array.isArray(value) ? value : [value]) {
      if (each !== null && each !== undefined && each !== "") next.append(name, String(each));
    }
  }
  const text = next.toString().replaceAll("%2C", ",").replaceAll("%3A", ":");
  return at.path + (text ? `?${text}` : "");
}

export const setQuery = (values, options = { replace: true }) => go(changed(values), options);

const isPlain = (event) =>
  event.button === 0 && !event.metaKey && !event.ctrlKey && !event.shiftKey && !event.altKey;

/** A link within the dashboard: a real address, which a plain click follows without loading the page. */
export function Link({ to, children, onClick, ...rest }) {
  const follow = (event) => {
    onClick?.(event);
    if (event.defaultPrevented || !isPlain(event)) return;
    event.preventDefault();
    go(to);
  };
  return html`<a href=${root + to} onClick=${follow} ...${rest}>${children}</a>`;
}
