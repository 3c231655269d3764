// Light or dark: the system's choice until a reader makes another.

import { byId } from "./dom.js";

const system = matchMedia("(prefers-color-scheme: dark)");

export function begin() {
  const button = byId("theme-button");
  const isDark = () => (document.documentElement.dataset.theme ?? (system.matches ? "dark" : "light")) === "dark";
  const draw = () => button.setAttribute("aria-pressed", String(isDark()));
  button.addEventListener("click", () => {
    const chosen = isDark() ? "light" : "dark";
    document.documentElement.dataset.theme = chosen;
    try {
      localStorage.setItem("recto-theme", chosen);
    } catch {
      // The choice then holds until the page is left.
    }
    draw();
  });
  system.addEventListener("change", draw);
  draw();
}
