// The address bar holds everything that is shown: what is read from it, how it is written, and who is told of a change.

const NOTHING = {
  q: "", modules: [], url: "", page: "", anchor: "", passage: null, selection: "", ask: false, view: "", collection: "", mode: "", limit: 10,
};
const LONGEST_SELECTION = 6000; // as it is encoded: more than models read, and proxies take addresses of about 8000 characters
const LONGEST_TEXT = 2000;
const MODES = ["dense", "lexical"]; // besides the default, hybrid

const listeners = [];
let current = read(location.search);

export const state = () => current;

export function onChange(listener) {
  listeners.push(listener);
}

export function read(search) {
  const given = new URLSearchParams(search);
  const text = (name) => (given.get(name) ?? "").trim().slice(0, LONGEST_TEXT);
  const whole = (name, least, most, fallback) => {
    const number = Number(given.get(name) || Number.NaN);
    return Number.isInteger(number) ? Math.min(most, Math.max(least, number)) : fallback;
  };
  return Object.freeze({
    q: text("q"),
    modules: [...new Set(given.getAll("module").map((name) => name.trim()).filter(Boolean))].slice(0, 50),
    url: text("url"),
    page: text("page"),
    anchor: text("anchor"),
    passage: whole("passage", 0, 1e6, null),
    selection: bounded(given.get("selection") ?? ""),
    ask: given.get("ask") === "1",
    view: given.get("view") === "health" ? "health" : "",
    collection: text("collection"),
    mode: MODES.includes(given.get("mode")) ? given.get("mode") : "",
    limit: whole("limit", 1, 100, NOTHING.limit),
  });
}

/** The address of a state, relative to this page. */
export function address(changes, from = current) {
  const wanted = { ...from, ...changes };
  const given = new URLSearchParams();
  for (const [name, nothing] of Object.entries(NOTHING)) {
    const value = wanted[name];
    if (name === "modules") value.forEach((module) => given.append("module", module));
    else if (value !== nothing && value !== "") given.set(name, value === true ? "1" : String(value));
  }
  const query = given.toString();
  return query ? `?${query}` : ".";
}

/** What makes a link lead from whatever is shown when it is clicked to the same with these changes. */
export function leads(changes) {
  return { href: address(changes), "data-go": JSON.stringify(changes) };
}

export function go(changes) {
  goTo(address(changes));
}

export function goTo(href) {
  const target = new URL(href, location.href);
  if (target.href !== location.href) history.pushState(null, "", target);
  change();
}

/** As much of a selected text as an address can hold, cut between words. */
export function bounded(text) {
  const clean = text.replace(/\s+/gu, " ").trim().toWellFormed();
  if (encodeURIComponent(clean).length <= LONGEST_SELECTION) return clean;
  let [low, high] = [0, Math.min(clean.length, LONGEST_SELECTION)];
  while (low < high) {
    const middle = Math.ceil((low + high) / 2);
    if (encodeURIComponent(clean.slice(0, middle).toWellFormed()).length <= LONGEST_SELECTION) low = middle;
    else high = middle - 1;
  }
  const cut = clean.slice(0, low);
  return (cut.slice(0, cut.lastIndexOf(" ")) || cut).toWellFormed();
}

function change() {
  const previous = current;
  current = read(location.search);
  for (const listener of listeners) listener(current, previous);
}

export function begin() {
  addEventListener("popstate", change);
  for (const listener of listeners) listener(current, null);
}
