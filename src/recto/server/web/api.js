// Requests to the service: the API key, cancelled and failed requests, and the outline of each book.

import { byId } from "./dom.js";

const TIMEOUT = 30_000; // milliseconds
const KEY = "recto-key";
let unstoredKey = "";
let keyDialog = null;

export class ApiError extends Error {
  constructor(status, message, hint = "", retryAfter = 0) {
    super(message);
    Object.assign(this, { status, hint, retryAfter });
  }
}

async function send(path, body, signal) {
  const key = apiKey();
  const headers = { Accept: "application/json" };
  if (key) headers.Authorization = `Bearer ${encodeHeader(key)}`;
  if (body) headers["Content-Type"] = "application/json";
  const timeout = AbortSignal.timeout(TIMEOUT);
  const options = { method: body ? "POST" : "GET", headers, body: body && JSON.stringify(body) };
  options.signal = signal ? AbortSignal.any([signal, timeout]) : timeout;
  let response;
  let text;
  try {
    response = await fetch(path, options);
    text = await response.text();
  } catch (error) {
    if (signal?.aborted) throw error;
    if (timeout.aborted) throw new ApiError(408, "The service did not answer in time.", "Try again.");
    throw new ApiError(0, "The service does not answer.", "If it was stopped, start it with `recto serve`.");
  }
  if (response.status === 401 && (await askForKey(key))) return send(path, body, signal);
  const data = parse(text);
  if (response.ok && data) return data;
  const retryAfter = Number(response.headers.get("Retry-After")) || 0;
  const message = data?.error ?? "The service sent a response that is not valid.";
  throw new ApiError(response.ok ? 502 : response.status, message, data?.hint ?? "", retryAfter);
}

/** Encode a key with other characters than Latin-1 as its UTF-8 bytes. */
function encodeHeader(text) {
  return String.fromCharCode(...new TextEncoder().encode(text));
}

function parse(text) {
  try {
    const data = JSON.parse(text);
    return typeof data === "object" ? data : null;
  } catch {
    return null;
  }
}

function apiKey() {
  try {
    return sessionStorage.getItem(KEY) ?? unstoredKey;
  } catch {
    return unstoredKey;
  }
}

function storeKey(value) {
  unstoredKey = value;
  try {
    sessionStorage.setItem(KEY, value);
  } catch {
    // Storage may be forbidden; the key is then kept until the page is left.
  }
}

/** Ask for a key; resolve to whether one was entered. Requests that fail together share one dialog. */
function askForKey(refusedKey) {
  if (refusedKey !== apiKey()) return Promise.resolve(true); // another request has asked in the meantime
  keyDialog ??= showKeyDialog(refusedKey !== "").finally(() => { keyDialog = null; });
  return keyDialog;
}

function showKeyDialog(wasWrong) {
  const dialog = byId("key");
  const input = byId("key-input");
  byId("key-wrong").hidden = !wasWrong;
  input.value = "";
  input.setAttribute("aria-describedby", wasWrong ? "key-wrong key-help" : "key-help");
  dialog.returnValue = "";
  return new Promise((resolve) => {
    const closed = () => {
      const entered = dialog.returnValue === "use" ? input.value.trim() : "";
      input.value = "";
      if (entered) storeKey(entered);
      resolve(entered !== "");
    };
    dialog.addEventListener("close", closed, { once: true });
    dialog.showModal();
    input.focus();
  });
}

/** Return a function that runs work and cancels earlier work, which then resolves to undefined. */
export function latestOnly() {
  let latest = null;
  return async (work) => {
    latest?.abort();
    const controller = new AbortController();
    latest = controller;
    try {
      const result = await work(controller.signal);
      return latest === controller ? result : undefined;
    } catch (error) {
      if (latest !== controller) return undefined;
      throw error;
    }
  };
}

const query = (collection, more = {}) => {
  const params = new URLSearchParams(more);
  if (collection) params.set("collection", collection);
  return params.size ? `?${params}` : "";
};

const parameters = (state) => ({
  top_k: state.top_k,
  module: state.modules.length ? state.modules : null,
  url: state.url || null,
  collection: state.collection || null,
  mode: state.mode || "hybrid",
  html: true,
});

export const search = (state, signal) =>
  send("v1/search", { query: state.q, group_by: "page", ...parameters(state) }, signal);
export const related = (state, signal) => {
  const question = (state.ask && state.q) || null;
  return send("v1/related", { selection: state.selection, question, ...parameters(state) }, signal);
};
export const collections = () => send("v1/collections");
export const page = ({ page: url, collection, q }, signal) => {
  const more = q ? { html: "true", query: q } : { html: "true" };
  return send(`v1/pages/${encodeURIComponent(url)}${query(collection, more)}`, null, signal);
};
export const health = (collection, signal) => send(`v1/health${query(collection)}`, null, signal);

const outlines = new Map();

/** Return `{modules, pages}` of a collection; request them once for each generation of the index. */
export function outline(collection) {
  let entry = outlines.get(collection);
  if (!entry) {
    const requests = ["modules", "pages"].map((name) => send(`v1/${name}${query(collection)}`));
    const result = Promise.all(requests).then(([{ modules }, { pages }]) => ({ modules, pages }));
    entry = { generation: null, result };
    outlines.set(collection, entry);
    // Failures are not cached.
    result.catch(() => outlines.get(collection) === entry && outlines.delete(collection));
  }
  return entry.result;
}

/** Note which generation answered a search; return whether the outline was outdated and has been dropped. */
export function dropOldOutline(collection, generation) {
  const entry = outlines.get(collection);
  if (!entry) return false;
  const isOld = entry.generation !== null && entry.generation !== generation;
  entry.generation = generation;
  if (isOld) outlines.delete(collection);
  return isOld;
}
