// Puts the page together: each part draws what the address bar says, and nothing else.

import { byId } from "./dom.js";
import * as health from "./health.js";
import * as keys from "./keys.js";
import * as list from "./list.js";
import * as pageView from "./page-view.js";
import * as related from "./related.js";
import * as search from "./search.js";
import * as switching from "./switching.js";
import { address, begin, go, goTo, onChange } from "./state.js";

function layout(now) {
  if (now.view === "health") return "health";
  if (!now.page) return "single";
  return now.selection ? "related" : "spread";
}

onChange((now) => {
  document.body.dataset.layout = layout(now);
  byId("verso").hidden = now.view === "health";
  if (now.view || !now.page) document.title = now.view ? "Health · Recto" : now.q ? `${now.q} · Recto` : "Recto";
  byId("nav-search").setAttribute("href", address({ view: "" }, now));
  byId("nav-health").setAttribute("href", address({ view: "health" }, now));
  for (const [id, current] of [["nav-search", !now.view], ["nav-health", Boolean(now.view)]]) {
    if (current) byId(id).setAttribute("aria-current", "page");
    else byId(id).removeAttribute("aria-current");
  }
  search.showCollection(now);
});
onChange(search.show);
onChange(list.show);
onChange(pageView.show);
onChange(health.show);

// Links that lead to another state of this page; with a modifier key they open as any other link does.
document.addEventListener("click", (event) => {
  const link = event.target.closest?.("a[data-go]");
  if (!link || event.defaultPrevented || event.button || event.ctrlKey || event.metaKey || event.shiftKey || event.altKey) return;
  event.preventDefault();
  if (link.dataset.go) go(JSON.parse(link.dataset.go));
  else goTo(link.href);
});

switching.begin();
search.begin();
related.begin();
keys.begin();
begin();
search.showCollections();
if (!location.search && matchMedia("(hover: hover)").matches) byId("q").focus();
