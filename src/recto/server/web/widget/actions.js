// Actions for a page: copy or view it as Markdown, open it in an assistant, add the book to an editor.

import { h } from "../dom.js";
import { textsFor, translator } from "./strings.js";

const ASSISTANTS = { ChatGPT: "https://chatgpt.com/?q={prompt}", Claude: "https://claude.ai/new?q={prompt}" };
const SHOWN = 2000; // milliseconds that a message replaces a label
const CSS = `
:host { display: block; margin: 8px 0 16px; color-scheme: light; font: 14px/1.4 var(--recto-font, system-ui, -apple-system, "Segoe UI", "Noto Sans", Arial, sans-serif); }
:host([data-theme="dark"]) { color-scheme: dark; }
div { position: relative; display: inline-flex; color: var(--recto-text, light-dark(#1c1e21, #e6e6e8)); }
button, summary, a { font: inherit; color: inherit; cursor: pointer; text-decoration: none; }
.main, summary { min-height: 32px; box-sizing: border-box; padding: 5px 12px; background: var(--recto-background, light-dark(#ffffff, #1e1f22)); border: 1px solid var(--recto-border, light-dark(#d5d9e0, #44464d)); }
.main { border-radius: 8px 0 0 8px; }
summary { list-style: none; border-radius: 0 8px 8px 0; margin-inline-start: -1px; padding-inline: 10px; }
summary.alone { border-radius: 8px; margin: 0; }
summary::-webkit-details-marker { display: none; }
ul { position: absolute; z-index: 800; inset: 36px auto auto 0; min-width: 220px; margin: 0; padding: 4px; list-style: none; background: var(--recto-background, light-dark(#ffffff, #1e1f22)); border: 1px solid var(--recto-border, light-dark(#d5d9e0, #44464d)); border-radius: 10px; box-shadow: 0 8px 24px rgb(0 0 0 / .2); }
li > * { display: block; box-sizing: border-box; width: 100%; padding: 8px 12px; border: 0; border-radius: 6px; background: none; text-align: start; }
li > :hover, .main:hover, summary:hover { background: var(--recto-surface, light-dark(#f4f5f7, #2a2b2f)); }
:focus-visible { outline: 2px solid var(--recto-accent, light-dark(#3b5bdb, #91a7ff)); outline-offset: 1px; position: relative; z-index: 1; }
@media print { :host { display: none; } }
`;

/** Put the actions below the title, again when a site replaces its content. */
export async function addActions(options, followTheme) {
  const t = translator(options.strings, await textsFor(document.documentElement.lang));
  const { IS_STATIC } = await import("../client.js");
  const hasMarkdown = options.markdown || !IS_STATIC; // a static export has no pages
  const host = document.createElement("recto-page-actions");
  const root = host.attachShadow({ mode: "open" });
  const sheet = new CSSStyleSheet();
  sheet.replaceSync(CSS);
  root.adoptedStyleSheets = [sheet];
  root.append(makeActions(options, t, hasMarkdown));
  const place = () => {
    if (host.isConnected) return;
    const slot = document.querySelector("[data-recto-page-actions]");
    const title = document.querySelector("main h1, article h1, h1");
    if (slot) slot.append(host);
    else if (title) title.after(host);
    else (document.querySelector("main, article") ?? document.body).prepend(host);
    followTheme({ host, options });
  };
  place();
  new MutationObserver(place).observe(document.body, { childList: true, subtree: true });
  const themes = new MutationObserver(() => followTheme({ host, options }));
  for (const element of [document.documentElement, document.body]) themes.observe(element, { attributes: true });
}

function makeActions(options, t, hasMarkdown) {
  const copy = h("button", { type: "button", class: "main" }, t("copyPage"));
  copy.addEventListener("click", () => copyText(copy, t, () => readMarkdown(options)));
  const label = hasMarkdown ? "▾" : `${t("pageActions")} ▾`;
  const menu = h("details", {}, h("summary", { "aria-label": t("pageActions"), class: hasMarkdown ? "" : "alone" }, label));
  const entries = [
    ...(hasMarkdown ? [action(t("viewMarkdown"), () => view(options))] : []),
    ...Object.entries(options.assistants ?? ASSISTANTS).map(([name, address]) => action(t("openIn", { name }), () => {
      const isReadable = hasMarkdown && (!options.key || options.markdown);
      const prompt = t("assistantPrompt", { url: isReadable ? markdownUrl(options) : pageUrl(options) });
      open(address.replace("{prompt}", encodeURIComponent(prompt)));
    })),
    ...(options.mcp ? editorEntries(options, t) : []),
  ];
  menu.append(h("ul", { role: "list" }, ...entries.map((entry) => h("li", {}, entry))));
  menu.addEventListener("click", ({ target }) => {
    if (target.closest("li") && !target.closest("[data-stays]")) menu.open = false;
  });
  menu.addEventListener("keydown", ({ key }) => {
    if (key !== "Escape" || !menu.open) return;
    menu.open = false;
    menu.firstChild.focus();
  });
  document.addEventListener("click", (event) => {
    if (!event.composedPath().includes(menu)) menu.open = false;
  });
  return h("div", {}, ...(hasMarkdown ? [copy] : []), menu);
}

function action(label, act) {
  const button = h("button", { type: "button" }, label);
  button.addEventListener("click", act);
  return button;
}

/** Return links that add the book's MCP server to editors, and its configuration. */
function editorEntries({ mcp, collection }, t) {
  const name = collection || "book";
  const url = new URL(mcp, document.baseURI).href;
  const encoded = encodeURIComponent(btoa(JSON.stringify({ url })));
  const editors = {
    Cursor: `https://cursor.com/install-mcp?name=${encodeURIComponent(name)}&config=${encoded}`,
    "VS Code": `https://vscode.dev/redirect/mcp/install?name=${encodeURIComponent(name)}&config=${encodeURIComponent(JSON.stringify({ type: "http", url }))}`,
  };
  const config = h("button", { type: "button", "data-stays": true }, t("copyMcp"));
  const text = JSON.stringify({ mcpServers: { [name]: { type: "http", url } } }, null, 2);
  config.addEventListener("click", () => copyText(config, t, async () => text));
  const links = Object.entries(editors).map(([editor, address]) => action(t("addTo", { name: editor }), () => open(address)));
  return [...links, config];
}

async function copyText(button, t, read) {
  const label = button.textContent;
  try {
    // Safari allows writing only right after a click, so it gets a promise of the text.
    const blob = read().then((text) => new Blob([text], { type: "text/plain" }));
    await navigator.clipboard.write([new ClipboardItem({ "text/plain": blob })]);
    button.textContent = t("copied");
  } catch (error) {
    console.warn("Recto: the text could not be copied.", error);
    button.textContent = t("notCopied");
  }
  setTimeout(() => (button.textContent = label), SHOWN);
}

/** Return the URL of the page in the index. */
function pageUrl({ rewrite: { from, to } }) {
  const here = location.href.replace(/[?#].*$/u, "");
  const published = to && new URL(to, document.baseURI).href;
  return published && here.startsWith(published) ? from + here.slice(published.length) : here;
}

function markdownUrl(options) {
  if (options.markdown) {
    const path = location.pathname.replace(/\/$/u, "") || "/index";
    return new URL(options.markdown.replace("{path}", path), document.baseURI).href;
  }
  const url = new URL(`v1/pages/${encodeURIComponent(pageUrl(options))}.md`, options.url.replace(/\/*$/u, "/"));
  if (options.collection) url.searchParams.set("collection", options.collection);
  return url.href;
}

async function readMarkdown(options) {
  const headers = options.key && !options.markdown ? { Authorization: `Bearer ${options.key}` } : {};
  const response = await fetch(markdownUrl(options), { headers });
  if (!response.ok) throw new Error(`${response.url}: ${response.status}`);
  return response.text();
}

/** Open the Markdown; with a key, which a link cannot send, from memory. */
async function view(options) {
  if (!options.key || options.markdown) return open(markdownUrl(options));
  const tab = window.open("about:blank", "_blank"); // a browser allows it only right after the click
  try {
    const blob = new Blob([await readMarkdown(options)], { type: "text/plain;charset=utf-8" });
    tab.location.replace(URL.createObjectURL(blob));
  } catch (error) {
    tab?.close();
    console.warn("Recto: the page could not be loaded as Markdown.", error);
  }
  return undefined;
}

function open(address) {
  if (/^https?:/u.test(address)) window.open(address, "_blank", "noopener");
}
