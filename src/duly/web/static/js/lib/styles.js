// A stylesheet of an app's own screens: `await styles(new URL("catalog.css", import.meta.url))` before anything is drawn.
const loaded = new Map();

export function styles(url) {
  const address = String(url);
  if (!loaded.has(address)) {
    loaded.set(
      address,
      new Promise((resolve) => {
        const link = document.createElement("link");
        link.rel = "stylesheet";
        link.href = address;
        // A screen without its looks is better than none.
        link.onload = link.onerror = resolve;
        document.head.append(link);
      }),
    );
  }
  return loaded.get(address);
}
