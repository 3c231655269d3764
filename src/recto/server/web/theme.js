// Apply the stored theme before the first paint; a module would run too late.
(() => {
  try {
    const theme = localStorage.getItem("recto-theme");
    if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
  } catch {
    // Storage may be forbidden; the system's theme is used then.
  }
})();
