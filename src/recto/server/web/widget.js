// Search and "Related in this book" on the pages of a published book: the part that every page loads.
// It listens for the shortcut, for clicks and for selected text, and loads the rest when a reader uses it.

const HOST = "recto-widget";
const MIN_SELECTION = 3; // characters
const MAX_SELECTION = 20_000;
const SELECTION_PAUSE = 250; // milliseconds
const script = [...document.scripts].find(({ src }) => src === import.meta.url);

if (!document.querySelector(HOST)) start(readOptions(script?.dataset ?? {}));

function readOptions(data) {
  const [from = "", to = ""] = (data.rewrite ?? "").trim().split(/\s+/u);
  return {
    api: new URL(data.api || ".", data.api ? document.baseURI : import.meta.url).href,
    collection: data.collection || null,
    key: data.key || null,
    button: data.button ?? "auto",
    related: data.related !== "off",
    theme: data.theme ?? "auto",
    rewrite: { from, to },
    strings: parseStrings(data.strings),
  };
}

function parseStrings(text) {
  try {
    return text ? JSON.parse(text) : {};
  } catch {
    console.warn("Recto: data-strings is not valid JSON, so the widget uses its own texts.");
    return {};
  }
}

function start(options) {
  const host = document.createElement(HOST);
  const root = host.attachShadow({ mode: "open" });
  const parts = { host, root, options, widget: null };
  document.addEventListener("keydown", (event) => onKey(event, parts));
  document.addEventListener("click", (event) => {
    const opener = opensSearch(event.target);
    if (!opener || event.defaultPrevented) return;
    event.preventDefault();
    openSearch(parts, opener.value);
  });
  document.addEventListener("input", (event) => {
    if (opensSearch(event.target)) openSearch(parts, event.target.value);
  });
  if (options.related) watchSelection(parts);
  if (options.button === "auto" && !document.querySelector("[data-recto-open]")) {
    whenIdle(() => load(parts, "showButton"));
  }
}

function whenIdle(work) {
  if (window.requestIdleCallback) requestIdleCallback(work, { timeout: 1000 });
  else setTimeout(work, 200);
}

/** Return the element of the page that opens the search and contains the target of an event. */
function opensSearch(target) {
  return target instanceof Element ? target.closest("[data-recto-open]") : null;
}

function onKey(event, parts) {
  const isShortcut = event.key?.toLowerCase() === "k" && (event.ctrlKey || event.metaKey);
  if (!isShortcut || event.shiftKey || event.altKey || event.defaultPrevented) return;
  if (event.target.isContentEditable) return; // editors insert links with this shortcut
  event.preventDefault();
  openSearch(parts);
}

function openSearch(parts, query = "") {
  load(parts, "openSearch", query || "", selectedText(parts.host));
}

/** Load the rest of the widget once, and call one of its functions. */
async function load(parts, name, ...values) {
  const { api } = parts.options;
  try {
    parts.widget ??= import("./static/widget/main.js").then(({ mount }) => mount(parts));
    (await parts.widget)[name](...values);
  } catch (error) {
    parts.widget = null; // a later attempt may succeed
    console.warn(`Recto: the widget could not be loaded from ${api}.`, error);
  }
}

/** Offer related passages for the text that a reader selects. */
function watchSelection(parts) {
  let timer = 0;
  let isOffered = false;
  document.addEventListener("selectionchange", () => {
    clearTimeout(timer);
    timer = setTimeout(() => {
      const text = selectedText(parts.host);
      if (!text && !isOffered) return;
      isOffered = text !== "";
      load(parts, "offerRelated", text);
    }, SELECTION_PAUSE);
  });
}

/** Return the selected text of the page; text in fields and in the widget itself does not count. */
function selectedText(host) {
  const selection = document.getSelection();
  if (!selection || selection.isCollapsed || !selection.rangeCount) return "";
  const { commonAncestorContainer: node } = selection.getRangeAt(0);
  const element = node instanceof Element ? node : node.parentElement;
  if (!element || element.closest(HOST) || host.contains(element)) return "";
  if (element.closest("input, textarea, select, [contenteditable]:not([contenteditable=false])")) return "";
  const text = selection.toString().trim();
  return text.length < MIN_SELECTION ? "" : text.slice(0, MAX_SELECTION);
}
