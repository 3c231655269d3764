// The book's modules and pages, asked for once for each published index.

import * as api from "./api.js";

const known = new Map();

/** The outline of a collection: `{modules, pages}`. */
export function outline(collection) {
  let entry = known.get(collection);
  if (!entry) {
    const asked = Promise.all([api.modules(collection), api.pages(collection)]);
    entry = { generation: null, made: asked.then(([{ modules }, { pages }]) => ({ modules, pages })) };
    known.set(collection, entry);
    entry.made.catch(() => known.get(collection) === entry && known.delete(collection)); // a failure is not remembered
  }
  return entry.made;
}

/** Take note of the index that answered; tells whether the outline is of an older one and was dropped. */
export function noticed(collection, generation) {
  const entry = known.get(collection);
  if (!entry) return false;
  const old = entry.generation !== null && entry.generation !== generation;
  entry.generation = generation;
  if (old) known.delete(collection);
  return old;
}
