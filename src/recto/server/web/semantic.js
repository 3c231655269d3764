// Search a static copy of an index by meaning: load the model and the vectors of the chunks, and rank as the hybrid mode does.
// search/pipeline.py and search/response.py explain the rules; semantic_export.py writes the files.

import { fileName, isAscii, openCache, pause, runInSlices } from "./client.js";
import { embed, readModel, Tokenizer } from "./model.js";

const STALLED = 30_000; // milliseconds without a byte
const BLOCK = 131_072; // bytes that are decompressed at a time
const HIDDEN = 384;
const GROUPS = 6; // scales of a token's row
const SLOW = ["slow-2g", "2g"];
const LEAST_MEMORY = 2; // GB
const LEAST_HITS = 2; // stop words of another language that a query in it has, if all its letters are ASCII
const CLEAR = 1.5; // how many more they must be than English ones

/** Return whether this device loads the model without being asked. */
export function isFast() {
  const { connection, deviceMemory = LEAST_MEMORY } = globalThis.navigator ?? {};
  return !connection?.saveData && !SLOW.includes(connection?.effectiveType) && deviceMemory >= LEAST_MEMORY;
}

/** The model and the vectors of the chunks; `onProgress` is called with the loaded share of the bytes. */
export class Semantic {
  #meta;
  #url;
  #data;
  #model = null;
  #tokenizer = null;
  #vectors = [];
  #shards = new Map();

  constructor(meta, url, onProgress) {
    this.#meta = meta;
    this.#url = new URL(`../${meta.model.folder}/`, url);
    this.#data = url;
    this.ready = this.#load(onProgress);
  }

  async #load(onProgress) {
    const { model, vectors } = this.#meta;
    const body = this.#file("body.bin", model.sha256, (bytes) => onProgress(Math.min(1, bytes / model.bytes)));
    const files = vectors.map((hash) => loadFile(new URL(fileName("vectors", hash), this.#data), hash));
    const [content, ...stored] = await Promise.all([body, ...files]);
    this.#vectors = stored.map(readVectors);
    this.#model = readModel(content);
    this.#tokenizer = new Tokenizer(this.#model.arrays);
    onProgress(1);
  }

  /** Load a file of the model; all books of a site share its copy in the cache. */
  #file(name, hash, onBytes) {
    const key = new URL(`/recto-model/${this.#meta.model.sha256}/${name}`, this.#url);
    return loadFile(new URL(name, this.#url), hash, { key, onBytes });
  }

  /** Return the cosine similarity of a text and each chunk. */
  async similarity(text) {
    await this.ready;
    const tokens = this.#tokenizer.encode(text, this.#model.arrays.positions.length / HIDDEN);
    const rows = await Promise.all(tokens.map((token) => this.#row(token)));
    const vector = await runInSlices(embed(this.#model, rows));
    return runInSlices(compare(vector, this.#vectors));
  }

  async #row(token) {
    const { shard_tokens: size, tokens, shards, arrays } = this.#model;
    const number = Math.floor(token / size);
    const count = Math.min(size, tokens - number * size);
    const start = number * size * (HIDDEN + 4 * GROUPS);
    const isFrequent = start < arrays.frequent.length;
    if (!isFrequent && !this.#shards.has(number)) {
      const loading = this.#file(`tokens-${number}.bin`, shards.slice(16 * number, 16 * number + 16));
      this.#shards.set(number, loading);
      loading.catch(() => this.#shards.delete(number)); // a later attempt may succeed
    }
    const buffer = isFrequent ? arrays.frequent.buffer : await this.#shards.get(number);
    const offset = isFrequent ? arrays.frequent.byteOffset + start : 0;
    const place = token - number * size;
    return {
      scales: new Float32Array(buffer, offset + 4 * GROUPS * place, GROUPS),
      numbers: new Int8Array(buffer, offset + 4 * GROUPS * count + HIDDEN * place, HIDDEN),
    };
  }
}

function readVectors(buffer) {
  const count = buffer.byteLength / (4 + 1.5 * HIDDEN);
  const end = count * (4 + HIDDEN);
  return {
    scales: new Float32Array(buffer, 0, count),
    upper: new Int8Array(buffer, 4 * count, count * HIDDEN),
    lower: new Uint8Array(buffer, end),
  };
}

/** Compute the cosine similarity of a vector and each chunk, in steps of a file. */
function* compare(vector, files) {
  const cosines = [];
  for (const { scales, upper, lower } of files) {
    cosines.push(...Array.from(scales, (scale, chunk) => {
      let sum = 0;
      for (let place = 0, at = chunk * HIDDEN; place < HIDDEN; place += 2, at += 2) {
        const low = lower[at >> 1];
        sum += vector[place] * (upper[at] * 16 + (low & 15)) + vector[place + 1] * (upper[at + 1] * 16 + (low >> 4));
      }
      return sum * scale;
    }));
    yield;
  }
  return cosines;
}

// Files: checked by their hashes, and kept in the cache of the browser

/** Return the content of a file, from the cache if it has it; two tabs load it once. */
async function loadFile(url, hash, { key = url, onBytes = () => undefined } = {}) {
  const cache = await openCache();
  const find = async () => {
    const stored = await cache?.match(key);
    return stored && decode(await stored.arrayBuffer(), hash).catch(() => null); // a damaged copy is loaded again
  };
  const load = async () => {
    const again = await find(); // another tab may have loaded it in the meantime
    if (again) return again;
    const bytes = await receive(url, onBytes);
    const content = await decode(bytes, hash);
    await cache?.put(key, new Response(bytes)).catch(() => undefined); // the disk may be full
    return content;
  };
  const found = await find();
  return found || (globalThis.navigator?.locks && cache ? navigator.locks.request(String(key), load) : load());
}

/** Return the bytes of a file; fail if none arrives for a while. */
async function receive(url, onBytes) {
  const controller = new AbortController();
  let timer;
  const wait = () => {
    clearTimeout(timer);
    timer = setTimeout(() => controller.abort(), STALLED);
  };
  try {
    wait();
    const response = await fetch(url, { signal: controller.signal, priority: "low" });
    if (!response.ok) throw new Error(`${url} cannot be read: ${response.status}.`);
    const parts = [];
    let size = 0;
    for (const reader = response.body.getReader(); ;) {
      const { done, value } = await reader.read();
      if (done) return await new Blob(parts).arrayBuffer();
      wait();
      parts.push(value);
      onBytes((size += value.length));
    }
  } finally {
    clearTimeout(timer);
  }
}

/** Decompress a file and compare its hash, or the beginning of its hash. */
async function decode(bytes, hash) {
  const { writable, readable } = new DecompressionStream("gzip");
  const decompressed = new Response(readable).arrayBuffer();
  decompressed.catch(() => undefined); // the writer has the same error
  const writer = writable.getWriter();
  for (let start = 0; start < bytes.byteLength; start += BLOCK) {
    await writer.write(new Uint8Array(bytes, start, Math.min(BLOCK, bytes.byteLength - start)));
    await pause(); // browsers decompress in the thread of the page
  }
  await writer.close();
  const content = await decompressed;
  if (!globalThis.crypto?.subtle) return content; // without HTTPS, nothing protects the scripts either
  const digest = new Uint8Array(await crypto.subtle.digest("SHA-256", content));
  const actual = Array.from(digest, (byte) => byte.toString(16).padStart(2, "0")).join("");
  if (!actual.startsWith(hash)) throw new Error("A file does not have the expected hash.");
  return content;
}

// Ranking

/**
 * Rank by words and meaning: return the best chunks with their scores, and what the response says about coverage.
 * `others` are the analyzers of the book's other languages, or null if the reader has chosen the language.
 */
export function fuse(meta, cosines, query, words, ranked, limit, { passes, analyzer, isSingle, others }) {
  const lexical = new Map(ranked);
  const isSentence = () => analyzer.language === "en" && new RegExp(`[${meta.detection.unspaced}]`, "u").test(query);
  const weight = Math.max(meta.lexical_weight, isSingle && !isSentence() ? meta.single_word_weight : 0);
  const most = limit + meta.more_candidates;
  const dense = [...cosines.keys()].filter(passes).sort((one, other) => cosines[other] - cosines[one] || one - other).slice(0, most);
  const candidates = [...new Set([...dense, ...withoutLastTie(ranked.slice(0, most), most).map(([number]) => number)])];
  const score = (number) => (cosines[number] + weight * (lexical.get(number) ?? 0)) / (1 + weight);
  const fused = candidates.map((number) => [number, ranked.length ? score(number) : cosines[number]]);
  const evidence = candidates.map((number) => cosines[number] + meta.evidence_weight * (lexical.get(number) ?? 0));
  const isEnglish = analyzer.language === "en" && !(others && isForeign(meta.detection, query, analyzer, others));
  const isCalibrated = meta.noise_floor !== null && isEnglish; // the calibration is English
  const noiseFloor = isCalibrated ? meta.noise_floor / (1 + weight) : null;
  const answerable = isCalibrated && evidence.length ? estimate(meta, words, Math.max(...evidence)) : null;
  return {
    ranked: arrange(meta.order, query, fused.sort(([one, its], [other, theirs]) => theirs - its || one - other).slice(0, most)).slice(0, limit),
    mode: "hybrid", noise_floor: noiseFloor, answerable, ...grade(answerable, meta.coverage),
    scores: (number, sum) => ({ dense: cosines[number], lexical: lexical.get(number) ?? 0, above_noise: noiseFloor === null ? null : sum >= noiseFloor }),
  };
}

/** Return whether a query whose analyzer is English is in a language that the book does not have: languages.py, lexical.py. */
function isForeign({ scripts, stop_words: stopWords }, query, { isStopWord: isEnglish }, others) {
  const given = query.split(/\s+/u).filter(Boolean);
  const least = isAscii(query) ? LEAST_HITS : 1;
  if (given.length < least || others.some(({ isStopWord }) => given.some(isStopWord))) return false;
  const prose = query.replace(/`[^`\n]*`|https?:\/\/\S+|<[^>\n]*>/gu, " ");
  const words = prose.toLowerCase().match(/[\p{L}\p{Nl}\p{No}]+/gu) ?? [];
  const { length } = [...words.join("")];
  if (scripts.some((letters) => 4 * (prose.match(new RegExp(`[${letters}]`, "gu")) ?? []).length > length)) return true;
  const count = (isStopWord) => words.filter(isStopWord).length;
  const counts = Object.entries(stopWords).map(([language, list]) => [count((word) => list.split(" ").includes(word)), language]);
  const [hits, best] = counts.reduce((one, other) => (other[0] > one[0] ? other : one));
  return hits >= least && hits > CLEAR * count(isEnglish) && !others.some(({ language }) => language === best);
}

/** Let minor chunks count less and pages with two good hits more; put further hits of a section later. */
function arrange({ link_lists: linkLists, releases, pages, sections, penalty, rivals, share, first: size, most }, query, ranked) {
  const startOf = (starts, number) => starts.findLast((start) => start <= number);
  const namesRelease = query.split(/\s+/u).some((word) => /^[^\p{L}\d]?v?\d+\.\d+\.\d/u.test(word));
  const minor = new Set(namesRelease ? linkLists : [...linkLists, ...releases]);
  const scored = ranked.map((hit) => [hit[1] - (minor.has(hit[0]) ? penalty : 0), hit, startOf(pages, hit[0])]);
  const least = ranked.slice(0, rivals).at(-1)?.[1];
  const compared = scored.slice(0, rivals).filter(([score]) => score > least).map(([score, , page]) => ({ score, page }));
  const sort = () => scored.sort(([one], [other]) => other - one);
  sort();
  for (const page of new Set(compared.map((item) => item.page))) {
    const second = compared.filter((item) => item.page === page)[1];
    if (second) scored.find((item) => item[2] === page)[0] += share * (second.score - least);
  }
  const first = [];
  const others = [];
  const counts = new Map();
  for (const [, hit] of sort()) {
    const section = startOf(sections, hit[0]);
    counts.set(section, (counts.get(section) ?? 0) + 1);
    (first.length < size && counts.get(section) <= most ? first : others).push(hit);
  }
  return [...first, ...others];
}

function withoutLastTie(ranked, limit) {
  const [first, last] = [ranked[0], ranked.at(-1)].map((hit) => Math.fround(hit?.[1] ?? 0));
  return ranked.length < limit || first === last ? ranked : ranked.filter(([, score]) => Math.fround(score) > last);
}

/** Return the probability that the book covers a query. */
function estimate({ noise_floor: floor, spread, coverage: rules }, words, evidence) {
  const above = ((evidence - floor) * rules.spread) / (spread || rules.spread);
  const total = words.reduce((sum, { idf }) => sum + idf, 0);
  const known = words.reduce((sum, word) => sum + word.known * word.idf, 0) / (total || 1);
  const sum = rules.above_weight * above + rules.known_weight * known + rules.offset;
  return Math.round(1000 / (1 + Math.exp(-sum))) / 1000;
}

function grade(answerable, { covered_from: from, not_covered_below: below }) {
  if (answerable === null) return { coverage: null, covered: true };
  const coverage = answerable >= from ? "covered" : answerable >= below ? "unclear" : "not covered";
  return { coverage, covered: coverage !== "not covered" };
}
