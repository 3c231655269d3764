// Put the widget into the page: its host element, its theme, the button for searching and the one for selected text.

import { RectoClient } from "../client.js";
import { h, svg } from "../dom.js";
import { makeDialog } from "./dialog.js";
import { makePanel } from "./panel.js";
import { translator } from "./strings.js";
import { sheet } from "./style.js";

const isMac = /Mac|iPhone|iPad/u.test(navigator.userAgentData?.platform ?? navigator.platform);
export const SHORTCUT = isMac ? "⌘ K" : "Ctrl K";

/** Return the functions that the loader calls. */
export function mount({ host, root, options }) {
  const context = {
    t: translator(options.strings),
    client: new RectoClient({ url: options.api, key: options.key, collection: options.collection }),
    rewrite: options.rewrite,
    root,
  };
  root.adoptedStyleSheets = [sheet()];
  host.lang = document.documentElement.lang;
  const panel = makePanel(context);
  const dialog = makeDialog(context, (selection) => panel.open(selection));
  const searchButton = makeSearchButton(context.t, () => dialog.open("", ""));
  const relatedButton = makeRelatedButton(context.t, panel);
  root.append(searchButton, relatedButton.element, panel.element, dialog.element);

  /** Follow the page, which may have changed its theme, its direction, or its body. */
  const refresh = () => {
    if (!host.isConnected) document.body.append(host);
    const { theme } = options;
    host.dataset.theme = ["light", "dark"].includes(theme) ? theme : themeOf(document.body);
    host.dir = getComputedStyle(document.body).direction;
  };
  return {
    showButton() {
      refresh();
      searchButton.hidden = false;
    },
    openSearch(query, selection) {
      refresh();
      relatedButton.hide();
      dialog.open(query, options.related ? selection : "");
    },
    offerRelated(text) {
      refresh();
      if (text) relatedButton.show(text);
      else relatedButton.hide();
    },
  };
}

function makeSearchButton(t, open) {
  const button = h("button", { type: "button", class: "open", hidden: true },
    searchIcon(), h("span", {}, t("search")), h("kbd", {}, SHORTCUT));
  button.addEventListener("click", open);
  return button;
}

export function searchIcon() {
  return svg("svg", { class: "icon", viewBox: "0 0 20 20", "aria-hidden": "true" },
    svg("circle", { cx: 8.5, cy: 8.5, r: 5.5 }), svg("path", { d: "M13 13l4.5 4.5" }));
}

/** The button below the selected text; it keeps the selection when it is pressed. */
function makeRelatedButton(t, panel) {
  const element = h("button", { type: "button", class: "related", hidden: true }, t("related"));
  let text = "";
  const hide = () => {
    element.hidden = true;
  };
  element.addEventListener("pointerdown", (event) => event.preventDefault());
  element.addEventListener("click", () => {
    hide();
    panel.open(text);
  });
  const show = (selected) => {
    text = selected;
    element.hidden = false;
    place(element, endOfSelection());
  };
  return { element, show, hide };
}

/** Return the rectangle of the last selected line. */
function endOfSelection() {
  const range = document.getSelection().getRangeAt(0);
  return [...range.getClientRects()].findLast(({ width }) => width > 0) ?? range.getBoundingClientRect();
}

/** Put an element below a rectangle, within the window. */
function place(element, { left, right, bottom }) {
  const { clientWidth, clientHeight } = document.documentElement;
  const { width, height } = element.getBoundingClientRect();
  const isRtl = getComputedStyle(element).direction === "rtl";
  const x = Math.max(8, Math.min((isRtl ? left : right - width), clientWidth - width - 8));
  const y = Math.max(8, Math.min(bottom + 8, clientHeight - height - 8));
  element.style.setProperty("left", `${x + scrollX}px`);
  element.style.setProperty("top", `${y + scrollY}px`);
}

/** Return "dark" if the background behind an element is dark. */
function themeOf(element) {
  for (let at = element; at; at = at.parentElement) {
    const [red, green, blue, alpha = 1] = (getComputedStyle(at).backgroundColor.match(/[\d.]+/gu) ?? []).map(Number);
    if (alpha > 0.5) return 0.299 * red + 0.587 * green + 0.114 * blue < 128 ? "dark" : "light";
  }
  const isDark = matchMedia("(prefers-color-scheme: dark)").matches;
  return isDark && getComputedStyle(document.documentElement).colorScheme.includes("dark") ? "dark" : "light";
}
