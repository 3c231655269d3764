// Connect the parts: each draws what the URL says.

import * as book from "./book.js";
import { byId } from "./dom.js";
import * as health from "./health.js";
import * as keys from "./keys.js";
import * as list from "./list.js";
import * as page from "./page.js";
import * as search from "./search.js";
import { go, goTo, onChange, start, urlOf } from "./state.js";

function layoutOf(now) {
  if (now.view === "health") return "health";
  if (!now.page) return "single";
  return now.selection ? "related" : "split";
}

onChange((now) => {
  document.body.dataset.layout = layoutOf(now);
  byId("list-panel").hidden = now.view === "health";
  if (now.view || !now.page) book.setTitle(now.view ? "Health" : now.q);
  for (const [id, view] of [["nav-search", ""], ["nav-health", "health"]]) {
    byId(id).setAttribute("href", urlOf({ view }));
    if (now.view === view) byId(id).setAttribute("aria-current", "page");
    else byId(id).removeAttribute("aria-current");
  }
});
for (const part of [book, search, list, page, health]) onChange(part.show);

// Links to another state of this page; with a modifier key they open like any other link.
document.addEventListener("click", (event) => {
  const link = event.target.closest?.("a[data-go]");
  if (!link || event.defaultPrevented || event.button) return;
  if (event.ctrlKey || event.metaKey || event.shiftKey || event.altKey) return;
  event.preventDefault();
  if (link.dataset.go) go(JSON.parse(link.dataset.go));
  else goTo(link.href);
});

/** Follow the system's theme until the reader chooses one. */
function startTheme() {
  const system = matchMedia("(prefers-color-scheme: dark)");
  const button = byId("theme-button");
  const root = document.documentElement;
  const isDark = () => (root.dataset.theme ?? (system.matches ? "dark" : "light")) === "dark";
  const draw = () => button.setAttribute("aria-pressed", String(isDark()));
  button.addEventListener("click", () => {
    root.dataset.theme = isDark() ? "light" : "dark";
    try {
      localStorage.setItem("recto-theme", root.dataset.theme);
    } catch {
      // The choice is then kept until the page is left.
    }
    draw();
  });
  system.addEventListener("change", draw);
  draw();
}

startTheme();
for (const part of [book, search, page, keys]) part.start();
start();
if (!location.search && matchMedia("(hover: hover)").matches) byId("q").focus();
