// Asks the service. Every failure is an ApiError that knows what to tell; a newer request on the same lane ends the older one.

import { askForKey, key } from "./key.js";

const PATIENCE = 30_000; // milliseconds

export class ApiError extends Error {
  constructor(status, message, hint = "", wait = 0) {
    super(message);
    Object.assign(this, { status, hint, wait });
  }
}

async function send(path, body, signal) {
  const sent = key();
  const headers = { Accept: "application/json" };
  if (sent) headers.Authorization = `Bearer ${encodeHeader(sent)}`;
  if (body) headers["Content-Type"] = "application/json";
  const patience = AbortSignal.timeout(PATIENCE);
  const options = { method: body ? "POST" : "GET", headers, signal: signal ? AbortSignal.any([signal, patience]) : patience };
  if (body) options.body = JSON.stringify(body);
  let response;
  let text;
  try {
    response = await fetch(path, options);
    text = await response.text();
  } catch (error) {
    if (signal?.aborted) throw error;
    if (patience.aborted) throw new ApiError(408, "The service takes too long to answer.", "Try again; if it stays so, look at its log.");
    throw new ApiError(0, "The service does not answer.", "It may have been stopped: start it with `recto serve`, or check the connection.");
  }
  if (response.status === 401 && (await askForKey(sent))) return send(path, body, signal);
  const data = parsed(text);
  if (response.ok && data) return data;
  const wait = Number(response.headers.get("Retry-After")) || 0;
  throw new ApiError(response.ok ? 502 : response.status, data?.error ?? "The answer is not one of this service.", data?.hint ?? "", wait);
}

/** Headers are Latin-1: a key with other characters is sent as the bytes that it is. */
function encodeHeader(text) {
  return String.fromCharCode(...new TextEncoder().encode(text));
}

function parsed(text) {
  try {
    const data = JSON.parse(text);
    return typeof data === "object" ? data : null;
  } catch {
    return null;
  }
}

/** Work of which only the latest counts: `run` yields what it made, or `undefined` if it was overtaken. */
export function lane() {
  let latest = null;
  return async (work) => {
    latest?.abort();
    const mine = new AbortController();
    latest = mine;
    try {
      const made = await work(mine.signal);
      return latest === mine ? made : undefined;
    } catch (error) {
      if (latest !== mine) return undefined;
      throw error;
    }
  };
}

const inCollection = (collection, more = {}) => {
  const given = new URLSearchParams(more);
  if (collection) given.set("collection", collection);
  return given.size ? `?${given}` : "";
};

const narrowed = (state) => ({
  top_k: state.limit,
  module: state.modules.length ? state.modules : null,
  url: state.url || null,
  collection: state.collection || null,
  mode: state.mode || "hybrid",
});

export const search = (state, signal) => send("v1/search", { query: state.q, group_by: "page", ...narrowed(state) }, signal);
export const related = (state, signal) =>
  send("v1/related", { selection: state.selection, question: (state.ask && state.q) || null, ...narrowed(state) }, signal);
export const collections = () => send("v1/collections");
export const modules = (collection) => send(`v1/modules${inCollection(collection)}`);
export const pages = (collection) => send(`v1/pages${inCollection(collection)}`);
export const page = (url, collection, signal) => send(`v1/pages/${encodeURIComponent(url)}${inCollection(collection)}`, null, signal);
export const health = (collection, signal) => send(`v1/health${inCollection(collection)}`, null, signal);
