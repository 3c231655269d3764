// Requests to the service: the API key, cancelled and failed requests, and the outline of each book.

import { RectoClient, RectoError } from "./client.js";
import { byId } from "./dom.js";
import { storeKey, storedKey } from "./stored_key.js";

let keyDialog = null;

export { RectoError as ApiError };
const client = new RectoClient({ url: new URL(".", document.baseURI) });

/** Call the service with the stored key; ask for another key if it is refused. */
async function send(call) {
  const key = (client.key = storedKey());
  try {
    return await call();
  } catch (error) {
    if (error.status === 401 && (await askForKey(key))) return send(call);
    throw error;
  }
}

/** Ask for a key; resolve to whether one was entered. Requests that fail together share one dialog. */
function askForKey(refusedKey) {
  if (refusedKey !== storedKey()) return Promise.resolve(true); // another request has asked in the meantime
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

const parameters = (state, signal) => ({
  top_k: state.top_k,
  module: state.modules.length ? state.modules : null,
  url: state.url || null,
  version: state.version || null,
  collection: state.collection,
  mode: state.mode || "hybrid",
  html: true,
  signal,
});

let logged = null; // the last search that the query log has: filters and more results do not repeat it

export const search = async (state, signal) => {
  const log = logged?.query !== state.q;
  const response = await send(() => client.search(state.q, { group_by: "page", log, ...parameters(state, signal) }));
  logged = response.query_log ? { query: state.q, collection: state.collection } : null;
  return response;
};

/** Report that a reader opened a result, if the service keeps a query log. */
export function reportOpened({ url, rank }) {
  if (logged) client.click(logged.query, url, rank, { collection: logged.collection }).catch(() => undefined);
}
export const related = async (state, signal) => {
  const question = (state.ask && state.q) || null;
  const response = await send(() => client.related(state.selection, { question, ...parameters(state, signal) }));
  logged = response.query_log && question ? { query: question, collection: state.collection } : null;
  return response;
};
export const page = ({ page: url, collection, q }, signal) =>
  send(() => client.page(url, { collection, query: q || null, html: true, signal }));
export const health = (collection, signal) => send(() => client.health({ collection, signal }));

const outlines = new Map();
let listed = null;

/** Return the books, the default one first; failures are not cached. */
export function collections() {
  listed ??= send(() => client.collections()).catch((error) => {
    listed = null;
    throw error;
  });
  return listed;
}

/** Return `{modules, pages, versions}` of a collection; request them once for each generation of the index. */
export function outline(collection) {
  let entry = outlines.get(collection);
  if (!entry) {
    const requests = [() => client.modules({ collection }), () => client.pages({ collection })];
    const result = Promise.all([...requests.map(send), collections()]).then(([{ modules }, { pages }, books]) => {
      const book = books.collections.find((one) => (collection ? one.name === collection : one.default));
      return { modules, pages, versions: book?.versions ?? [] };
    });
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
  if (isOld) {
    outlines.delete(collection);
    listed = null;
  }
  return isOld;
}
