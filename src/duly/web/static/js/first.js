// Runs before anything is drawn, so that a chosen theme does not flash.
try {
  const theme = JSON.parse(localStorage.getItem("duly.theme") ?? "null");
  if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
} catch {
  // A browser that stores nothing shows the theme of the system.
}
