// Sets the theme that was chosen before anything is painted; a module would come too late.
(() => {
  try {
    const chosen = localStorage.getItem("recto-theme");
    if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
  } catch {
    // Storage may be forbidden; the system's theme is used then.
  }
})();
