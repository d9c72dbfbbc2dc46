// The stylesheet of a plug-in's screens. A screen loads it before it draws:
// `await styles(new URL("catalog.css", import.meta.url))`

/** @type {Map<string, Promise<unknown>>} */
const loaded = new Map();

/** @param {string | URL} url */
export function styles(url) {
  const address = String(url);
  const loading = loaded.get(address) ?? load(address);
  loaded.set(address, loading);
  return loading;
}

/** @param {string} address */
function load(address) {
  return new Promise((resolve) => {
    const link = document.createElement("link");
    link.rel = "stylesheet";
    link.href = address;
    // A screen without its stylesheet is better than none.
    link.onload = link.onerror = resolve;
    document.head.append(link);
  });
}
