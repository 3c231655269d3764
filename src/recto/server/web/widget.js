// The part of the widget that every page of a book loads.
// It loads the rest when a reader uses it.

const HOST = "recto-widget";
const MIN_SELECTION = 3; // characters
const MAX_SELECTION = 20_000;
const SELECTION_PAUSE = 250; // milliseconds
const BUTTON_STYLE = `
:host { all: initial; position: absolute; inset: 0 auto auto 0; width: 0; height: 0; color-scheme: light; }
:host([data-theme="dark"]) { color-scheme: dark; }
.open {
  position: fixed; inset-block-end: 20px; inset-inline-end: 20px; z-index: 900; display: flex; align-items: center; gap: 10px;
  padding: 9px 16px; border: 1px solid var(--recto-border, light-dark(#d5d9e0, #44464d)); border-radius: 999px; cursor: pointer;
  font: 16px/1.5 var(--recto-font, system-ui, -apple-system, "Segoe UI", "Helvetica Neue", "Noto Sans", Arial, sans-serif);
  background: var(--recto-background, light-dark(#ffffff, #1e1f22)); color: var(--recto-text, light-dark(#1c1e21, #e6e6e8));
  box-shadow: 0 4px 16px rgb(0 0 0 / .2);
}
.open:hover, .open:focus-visible { outline: 2px solid var(--recto-accent, light-dark(#3b5bdb, #91a7ff)); outline-offset: 1px; }
kbd { font: inherit; font-size: 12px; color: var(--recto-muted, light-dark(#5a606b, #a7adb8)); }
@media (max-width: 640px), (hover: none) { kbd { display: none; } }
@media print { :host { display: none; } }
`;
const SEARCH = { ar: "بحث", de: "Suchen", es: "Buscar", fr: "Rechercher", ja: "検索", pt: "Pesquisar", ur: "تلاش", zh: "搜索" };
const script = [...document.scripts].find(({ src }) => src === import.meta.url);

if (!document.querySelector(HOST)) start(readOptions(script?.dataset ?? {}));

function readOptions(data) {
  const [from = "", to = ""] = (data.rewrite ?? "").trim().split(/\s+/u);
  return {
    url: new URL(data.api || ".", data.api ? document.baseURI : import.meta.url).href,
    collection: data.collection || null,
    key: data.key || null,
    button: data.button ?? "auto",
    related: data.related !== "off",
    theme: data.theme ?? "auto",
    semantic: data.semantic ?? "auto",
    rewrite: { from, to },
    strings: parseObject(data.strings, "data-strings") ?? {},
    pageActions: data.pageActions !== undefined && data.pageActions !== "off",
    assistants: parseObject(data.assistants, "data-assistants"),
    markdown: data.markdown || null,
    mcp: data.mcp || null,
    version: data.version ?? null,
    lang: data.lang ?? null,
  };
}

function parseObject(text, name) {
  try {
    return text ? JSON.parse(text) : null;
  } catch {
    console.warn(`Recto: ${name} is not valid JSON, so the widget uses its own.`);
    return null;
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
  if (options.pageActions) import("./static/widget/actions.js").then(({ addActions }) => addActions(options, followTheme));
  const modelContext = document.modelContext ?? navigator.modelContext;
  if (modelContext) import("./static/widget/agents.js").then(({ registerTool }) => registerTool(modelContext, options));
  if (options.button === "auto" && !document.querySelector("[data-recto-open]")) addButton(parts);
}

/** Add the floating button, with a style of its own. */
function addButton(parts) {
  const isMac = /Mac|iPhone|iPad/u.test(navigator.userAgentData?.platform ?? navigator.platform);
  const button = document.createElement("button");
  button.type = "button";
  button.className = "open";
  button.ariaKeyShortcuts = isMac ? "Meta+K" : "Control+K";
  const shortcut = document.createElement("kbd");
  shortcut.textContent = isMac ? "⌘ K" : "Ctrl K";
  const language = document.documentElement.lang.toLowerCase().split(/[-_]/u)[0];
  button.append(parts.options.strings.search ?? SEARCH[language] ?? "Search", shortcut);
  button.addEventListener("click", () => openSearch(parts));
  const sheet = new CSSStyleSheet();
  sheet.replaceSync(BUTTON_STYLE);
  parts.root.adoptedStyleSheets = [sheet];
  parts.root.append(button);
  followTheme(parts);
  document.body.append(parts.host);
}

/** Follow the page, which may have changed its theme or its direction. */
function followTheme({ host, options }) {
  host.dataset.theme = ["light", "dark"].includes(options.theme) ? options.theme : themeOf(document.body);
  host.dir = getComputedStyle(document.body).direction;
  host.lang = document.documentElement.lang;
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
  try {
    parts.widget ??= import("./static/widget/main.js").then(({ mount }) => mount(parts));
    const widget = await parts.widget;
    if (!parts.host.isConnected) document.body.append(parts.host); // the page may have replaced its body
    followTheme(parts);
    widget[name](...values);
  } catch (error) {
    parts.widget = null; // a later attempt may succeed
    console.warn(`Recto: the widget could not be loaded from ${parts.options.url}.`, error);
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

/** Return the selected text of the page, without fields and the widget. */
function selectedText(host) {
  const selection = document.getSelection();
  if (!selection || selection.isCollapsed || !selection.rangeCount) return "";
  const { commonAncestorContainer: node } = selection.getRangeAt(0);
  const element = node instanceof Element ? node : node.parentElement;
  if (!element || element.closest(HOST) || host.contains(element)) return "";
  if (element.closest("input, textarea, select, [contenteditable]:not([contenteditable=false])")) return "";
  const text = selection.toString().trim();
  return text.length < MIN_SELECTION ? "" : [...text].slice(0, MAX_SELECTION).join("");
}
