// The state of the page is in its URL. Read it, write it, and notify listeners of changes.

const DEFAULTS = {
  q: "",
  modules: [],
  url: "",
  version: "",
  page: "",
  anchor: "",
  chunk: null,
  selection: "",
  ask: false,
  view: "",
  collection: "",
  mode: "",
  top_k: 10,
};
const MAX_SELECTION = 6000; // percent-encoded characters: proxies accept URLs of about 8000
const MAX_TEXT = 2000;
const MODES = ["dense", "lexical"]; // besides the default, hybrid

/** Changes that close the page and the related passages. */
export const NO_PAGE = { page: "", anchor: "", chunk: null, selection: "", ask: false };
/** Changes that remove everything but the collection and the mode. */
export const NO_SEARCH = { ...NO_PAGE, q: "", modules: [], url: "", version: "", view: "", top_k: DEFAULTS.top_k };

const listeners = [];
let current = read(location.search);

export const state = () => current;

export function onChange(listener) {
  listeners.push(listener);
}

function read(search) {
  const params = new URLSearchParams(search);
  const text = (name) => (params.get(name) ?? "").trim().slice(0, MAX_TEXT);
  const integer = (name, min, max) => {
    const number = Number(params.get(name) || Number.NaN);
    return Number.isInteger(number) ? Math.min(max, Math.max(min, number)) : DEFAULTS[name];
  };
  const modules = params.getAll("module").map((name) => name.trim()).filter(Boolean);
  return Object.freeze({
    q: text("q"),
    modules: [...new Set(modules)].slice(0, 50),
    url: text("url"),
    version: text("version"),
    page: text("page"),
    anchor: text("anchor"),
    chunk: integer("chunk", 0, 1e6),
    selection: truncateSelection(params.get("selection") ?? ""),
    ask: params.get("ask") === "1",
    view: params.get("view") === "health" ? "health" : "",
    collection: text("collection"),
    mode: MODES.includes(params.get("mode")) ? params.get("mode") : "",
    top_k: integer("top_k", 1, 100),
  });
}

/** Return the relative URL of a state. */
export function urlOf(changes, from = current) {
  const wanted = { ...from, ...changes };
  const params = new URLSearchParams();
  for (const [name, fallback] of Object.entries(DEFAULTS)) {
    const value = wanted[name];
    if (name === "modules") value.forEach((module) => params.append("module", module));
    else if (value !== fallback && value !== "") params.set(name, value === true ? "1" : String(value));
  }
  const query = params.toString();
  return query ? `?${query}` : ".";
}

/** Return the attributes of a link that applies changes to the state at the time of the click. */
export function linkTo(changes) {
  return { href: urlOf(changes), "data-go": JSON.stringify(changes) };
}

export function go(changes) {
  goTo(urlOf(changes));
}

export function goTo(href) {
  const target = new URL(href, location.href);
  if (target.href !== location.href) history.pushState(null, "", target);
  update();
}

/** Return as much of a selected text as fits into a URL, cut between words. */
export function truncateSelection(text) {
  const clean = text.replace(/\s+/gu, " ").trim().toWellFormed();
  if (encodeURIComponent(clean).length <= MAX_SELECTION) return clean;
  let [low, high] = [0, Math.min(clean.length, MAX_SELECTION)];
  while (low < high) {
    const middle = Math.ceil((low + high) / 2);
    if (encodeURIComponent(clean.slice(0, middle).toWellFormed()).length <= MAX_SELECTION) low = middle;
    else high = middle - 1;
  }
  const cut = clean.slice(0, low);
  return (cut.slice(0, cut.lastIndexOf(" ")) || cut).toWellFormed();
}

function update() {
  const previous = current;
  current = read(location.search);
  for (const listener of listeners) listener(current, previous);
}

export function start() {
  addEventListener("popstate", update);
  for (const listener of listeners) listener(current, null);
}
