// Search a static copy of an index without a service. `recto export --static` writes the copy, and this file as its client.js.
// It ranks chunks as the lexical mode does: analyzer.py, lexical.py, display.py and selection.py in search/ explain the rules.
// If the copy has vectors, semantic.js ranks them as the hybrid mode does, as soon as its files are loaded.

export const IS_STATIC = true;
const FORMAT = 3;
const TIMEOUT = 30_000; // milliseconds
const SLICE = 12; // milliseconds
const MAX_WORDS = 50; // words of a query that are searched for: each of them may need another file
const MAX_PAIRS = 200; // the same for pairs of characters, of which a question has more
const WORD = /[\p{L}\p{N}_]+/gu;
const COMPOUND = /--?[A-Za-z][\p{L}\p{N}_-]*|[\p{L}\p{N}_]+(?:[.-][\p{L}\p{N}_]+)*/gu;
const QUOTED = /"[^"\n]+"|“[^”\n]+”|`[^`\n]+`/gu;
const CAMEL = /(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z]{2})/u;

/** A failed search. `status` is 0 if a file is unreachable, and 408 if it did not arrive in time. */
export class RectoError extends Error {
  constructor(status, message, hint = "") {
    super(message);
    this.name = "RectoError";
    Object.assign(this, { status, hint, retryAfter: 0 });
  }
}

/**
 * The part of the service's client that the widget uses. While the files for search by meaning are being loaded, responses
 * are lexical, and `improved` is a promise of the hybrid one. `onstatus` is called with the loaded share of the files, or
 * once with the error if hybrid search is not possible. `semantic` is "on" or "off", or depends on the device.
 */
export class RectoClient {
  #index = null;
  #meaning = null;
  #hasFailed = false;

  constructor({ url = new URL("..", import.meta.url), semantic = "auto" } = {}) {
    this.url = new URL("data/", String(url).replace(/\/*$/u, "/")).href;
    this.semantic = semantic;
    this.onstatus = () => undefined;
  }

  search(query, { top_k: topK = 5, group_by: groupBy = null, mode, signal, ...filters } = {}) {
    return this.#answer(query, mode, async (index, meaning) => {
      const limit = groupBy ? topK * index.meta.chunks_per_page : topK;
      const { ranked, ...found } = await find(index, meaning, query, limit, filters, signal);
      const groups = groupBy ? groupByPage(index, ranked, topK) : [];
      const chosen = groupBy ? groups.flat() : ranked;
      const hits = await Promise.all(chosen.map(async ([number, score]) => ({ number, score, chunk: await index.chunk(number) })));
      signal?.throwIfAborted();
      return runInSlices(respond(index, query, hits, found, found.words, groups.map((group) => group.length)));
    });
  }

  related(selection, { question = null, top_k: topK = 5, mode, signal, ...filters } = {}) {
    const text = question ? `${question}\n\n${selection}` : selection;
    return this.#answer(text, mode, async (index, meaning) => {
      const limit = topK + index.meta.selection_candidates;
      const { ranked, ...found } = await find(index, meaning, text, limit, filters, signal);
      await Promise.all(ranked.slice(0, 2 * topK).map(([number]) => index.chunk(number)));
      const { hits, leftOut } = await excludeAndDiversify(index, ranked, selection, topK);
      signal?.throwIfAborted();
      const asked = question ? await analyze(index, question, index.analyzer(question)) : [];
      const chosen = { text: selection, given: selection.length, cut: false, left_out: leftOut };
      return { ...(await runInSlices(respond(index, question ?? selection, hits, found, asked))), selection: chosen };
    });
  }

  async click() {
    // There is no query log.
  }

  /** Search by words and meaning, or by words alone if the mode is lexical or the rest is not loaded. */
  #answer(text, mode, search) {
    return this.#use(async (index) => {
      const opened = mode !== "lexical" && (await this.#openSemantic(index));
      if (!opened || opened.isBroken) return search(index, null);
      const { semantic } = opened;
      const byMeaning = async () => {
        const cosines = await semantic.similarity(text).catch((error) => this.#fail(error));
        const { fuse } = await import("./semantic.js");
        return search(index, cosines && ((...values) => fuse(index.meta.semantic, cosines, ...values)));
      };
      if (opened.isReady) return byMeaning();
      const improved = byMeaning();
      improved.catch(() => undefined); // a later search has begun
      return { ...(await search(index, null)), improved };
    });
  }

  /** Return what searches by meaning, which may still be loading, or null if this device or this export has nothing. */
  async #openSemantic({ meta }) {
    if (!meta.semantic || this.semantic === "off") return null;
    try {
      const { isFast, Semantic } = await import("./semantic.js");
      if (this.semantic !== "on" && !isFast()) return null;
      if (this.#meaning?.generation !== meta.generation) {
        const semantic = new Semantic(meta.semantic, this.url, (loaded) => this.onstatus({ loaded }));
        const opened = { generation: meta.generation, semantic, isReady: false, isBroken: false };
        semantic.ready.then(() => { opened.isReady = true; }, () => { opened.isBroken = true; });
        this.#meaning = opened;
      }
      return this.#meaning;
    } catch (error) {
      return this.#fail(error);
    }
  }

  #fail(error) {
    if (!this.#hasFailed) {
      console.warn("Recto: the search by meaning is not available.", error);
      this.onstatus({ error });
    }
    this.#hasFailed = true;
    return null;
  }

  /** Call a function with the index; if a file is missing, the site may have been published again. */
  async #use(search) {
    try {
      return await search(await this.#open());
    } catch (error) {
      if (error.status !== 404) throw error;
      this.#index = null;
      return search(await this.#open());
    }
  }

  #open() {
    if (this.#index) return this.#index;
    const opened = read(new URL("meta.bin", this.url), "no-cache").then((meta) => openIndex(meta, this.url));
    this.#index = opened;
    opened.catch(() => {
      this.#index = null; // a later attempt may succeed
    });
    opened.then(({ meta }) => forgetOthers(this.url, meta)).catch(() => undefined); // the next visit tries again
    return opened;
  }
}

/** Let the page work. */
export function pause() {
  return globalThis.scheduler?.yield ? scheduler.yield() : new Promise((resolve) => setTimeout(resolve));
}

/** Run the steps of a computation without blocking the thread for long; return its result. */
export async function runInSlices(steps) {
  let end = performance.now() + SLICE;
  for (;;) {
    const { done, value } = steps.next();
    if (done) return value;
    if (performance.now() < end) continue;
    await pause();
    end = performance.now() + SLICE;
  }
}

/** Return the JSON of a compressed file. */
async function read(url, cache = "default") {
  const response = await fetchKept(url, cache).catch((error) => {
    throw new RectoError(error.name === "TimeoutError" ? 408 : 0, `${url} cannot be reached.`);
  });
  const hint = "Publish the complete directory that `recto export --static` wrote.";
  if (!response.ok) throw new RectoError(response.status, `${url} cannot be read: ${response.status}.`, hint);
  const content = new Response(response.body.pipeThrough(new DecompressionStream("gzip")));
  return content.json().catch(() => {
    throw new RectoError(502, `${url} is incomplete or is another file.`, hint);
  });
}

/** Return the cache for files, or null if the browser has none for this page: it may forbid it, or require HTTPS. */
export function openCache() {
  return (cacheOfFiles ??= globalThis.caches?.open("recto-static").catch(() => null)); // opening it takes milliseconds
}
let cacheOfFiles;

/** Remove what an earlier export of the book left in the cache. */
async function forgetOthers(url, { files, semantic }) {
  const names = Object.entries({ ...files, vectors: semantic?.vectors ?? [] }).flatMap(([kind, hashes]) => hashes.map((hash) => fileName(kind, hash)));
  const kept = new Set(["meta.bin", ...names].map((name) => url + name));
  const cache = await openCache();
  for (const { url: key } of (await cache?.keys()) ?? []) {
    if (key.startsWith(url) && !kept.has(key)) await cache.delete(key);
  }
}

/** Return the name of a file of the index, which has the beginning of the hash of its content. */
export function fileName(kind, hash) {
  return `${kind}-${hash.slice(0, 12)}.bin`;
}

/** Fetch a file, and keep a copy: it is used if the name has a hash of the content, or without a network. */
async function fetchKept(url, cache) {
  const isImmutable = cache === "default";
  const kept = await openCache();
  const copy = isImmutable && (await kept?.match(url));
  if (copy) return copy;
  const request = fetch(url, { cache, signal: AbortSignal.timeout(TIMEOUT) });
  const response = await request.catch(async (error) => {
    const earlier = await kept?.match(url);
    if (!earlier) throw error;
    return earlier;
  });
  if (response.ok) await kept?.put(url, response.clone()).catch(() => undefined); // the disk may be full
  return response;
}

function openIndex(meta, url) {
  if (meta.format !== FORMAT) throw new RectoError(502, "The browser has loaded files of two versions.", "Reload the page.");
  const files = new Map();
  const load = (kind, number = 0, prepare = (content) => content) => {
    const name = fileName(kind, meta.files[kind][number]);
    if (!files.has(name)) {
      const file = read(new URL(name, url)).then(prepare);
      files.set(name, file);
      file.catch(() => files.delete(name));
    }
    return files.get(name);
  };
  const { k1, b, average } = meta.bm25;
  const stopTerms = new Set(meta.stop_words.map(stem));
  const analyzers = meta.languages.map((language) => makeAnalyzer(language, meta));
  const rows = (shard) => load("words", shard, (content) => new Map(content));
  return {
    meta,
    analyzers,
    /** Return the analyzer of a language, or of the language that a query has most words of. */
    analyzer(text, language) {
      const named = analyzers.find((one) => one.language === language);
      const others = analyzers.filter((one) => one.language !== "en");
      const possible = analyzers.length > 1 && !isAscii(text) ? others : analyzers;
      const count = ({ isStopWord }) => text.split(/\s+/u).filter(isStopWord).length;
      return named ?? possible.reduce((best, one) => (count(one) > count(best) ? one : best));
    },
    idf: (count) => Math.log((meta.lengths.length - count + 0.5) / (count + 0.5) + 1),
    weight: (count, chunk) => (count * (k1 + 1)) / (count + k1 * (1 - b + (b * meta.lengths[chunk]) / average)),
    common: () => load("common", 0, cumulated),
    filters: () => load("filters"),
    async chunk(number) {
      const shard = lastAtMost(meta.chunks, number);
      return (await load("chunks", shard))[number - meta.chunks[shard]];
    },
    /** Return the words of a term, each with its chunks; the empty word stands for parts of identifiers. */
    async words(term) {
      const key = stopTerms.has(term) ? `~${term}` : term;
      const shard = lastAtMost(meta.words, key);
      return (shard >= 0 && (await rows(shard)).get(key)) || [];
    },
    /** Return the words with a number of letters, or some more or fewer, each with the number of its chunks. */
    async similar(letters, edits) {
      const lengths = Array.from({ length: 2 * edits + 1 }, (_, place) => Math.min(letters - edits + place, meta.longest));
      return (await Promise.all([...new Set(lengths)].map((length) => load("vocabulary", length - meta.shortest)))).flat();
    },
  };
}

/** Return the position of the last element of a sorted list that is not greater than a value, or -1. */
function lastAtMost(sorted, value) {
  let low = 0;
  let high = sorted.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (sorted[middle] <= value) low = middle + 1;
    else high = middle;
  }
  return low - 1;
}

function cumulated(gaps) {
  let sum = 0;
  return new Set(gaps.map((gap) => (sum += gap)));
}

// Words and their terms: analyzer.py

function wordTerms(word) {
  const whole = word.toLowerCase();
  if (isNumber(whole)) return [stem(whole)];
  const pieces = word.match(/[\p{L}\p{Nl}\p{No}]+|\p{Nd}+/gu) ?? [];
  const parts = pieces.flatMap((piece) => piece.split(CAMEL)).filter((part) => /../u.test(part));
  const forms = [whole, ...(whole.match(WORD) ?? [])];
  const short = forms.filter((form) => !isAscii(form)).flatMap((form) => shortStem(unaccented(form)));
  return [...new Set([...[...forms, ...parts.map((part) => part.toLowerCase())].map(stem), ...short])];
}

const unaccented = (word) => word.normalize("NFKD").replace(/[\u0300-\u036f]+/gu, "").normalize("NFC") || word;

/** Return the second stem of a word of five or six letters, in a list. */
function shortStem(word) {
  const letters = [...word];
  return [5, 6].includes(letters.length) && !/[\p{Nd}_.-]/u.test(word) ? [letters.slice(0, 4).join("")] : [];
}

function stem(given) {
  const word = isAscii(given) ? given : unaccented(given);
  if (word.length <= 3 || !/^[A-Za-z]+$/u.test(word)) return word;
  let rest = word;
  if (word.endsWith("ies") && word.length > 4) rest = `${word.slice(0, -3)}y`;
  else if (/(?:ss|sh|ch|x|z)es$/u.test(word)) rest = word.slice(0, -2);
  else if (/[^sui]s$/u.test(word)) rest = word.slice(0, -1);
  const [, base] = /^(.{3,})(?:ing|ed)$/u.exec(rest) ?? [];
  if (base && /[aeiouy]/u.test(base)) return /([^lsz])\1$/u.test(base) ? base.slice(0, -1) : base;
  return rest.length > 3 && rest.endsWith("e") ? rest.slice(0, -1) : rest;
}

export const isAscii = (text) => /^[\0-\x7f]*$/u.test(text);
const isNumber = (word) => /^v?\p{Nd}+(?:\.\p{Nd}+)*$/u.test(word);

/** Return what cuts the words of a language; `meta` has its rules and stop words. */
export function makeAnalyzer(language, meta) {
  return language === "en" ? englishAnalyzer(meta) : otherAnalyzer(language, meta);
}

function englishAnalyzer(meta) {
  const stopWords = new Set(meta.stop_words);
  const isStopWord = (word) => stopWords.has(word.toLowerCase());
  return {
    language: "en", stem, isStopWord,
    spans: (text) => [...text.matchAll(COMPOUND)].map(({ 0: word, index }) => ({ word, start: index, end: index + word.length })),
    terms: wordTerms,
    form: (word) => word.toLowerCase(),
    isPair: () => false,
    isEnglish: () => true,
    hasForms: (form) => /^[a-z]+$/u.test(form) && !isStopWord(form),
  };
}

function otherAnalyzer(language, { analysis }) {
  const { unspaced, marks, same, unspaced_languages: unspacedLanguages, stem: stemLetters } = analysis;
  const letter = `(?:(?![${unspaced}])[\\p{L}\\p{N}_]|[${marks}])`;
  const compound = new RegExp(`[${unspaced}]+|--?[A-Za-z](?:${letter}|-)*|${letter}+(?:[.-]${letter}+)*`, "gu");
  const subword = new RegExp(`${letter}+`, "gu");
  const pairStart = new RegExp(`^[${unspaced}]`, "u");
  const han = new RegExp(analysis.han, "gu");
  const particles = new RegExp(`^(?:${analysis.particles})$`, "u");
  const ignored = new RegExp(analysis.ignored, "gu");
  const article = new RegExp(`^${analysis.article}`, "u");
  const stopWords = new Set(analysis.stop_words[language]);
  const isPair = (word) => pairStart.test(word);
  const translate = (text) => [...text].map((letter) => same[letter] ?? letter).join("");
  const fold = (word) => (isAscii(word) ? word : translate(translate(word).normalize("NFKD").replace(ignored, "")) || word);
  const plain = (word) => (language === "ar" ? fold(word).replace(article, "") : fold(word));
  const isStopWord = (word) => stopWords.has(fold(word.toLowerCase())) || particles.test(word.toLowerCase());
  const form = (word) => word.toLowerCase().normalize("NFKC");

  const isEnglish = (word) => unspacedLanguages.includes(language) && isAscii(word);

  function stemOther(word) {
    if (isPair(word)) return word;
    const folded = plain(word);
    if (isEnglish(folded)) return stem(folded);
    return /[\p{Nd}_.-]/u.test(folded) ? folded : [...folded].slice(0, stemLetters).join("");
  }

  function terms(word) {
    if (isEnglish(word)) return wordTerms(word);
    const whole = form(word);
    if (isPair(word)) return [...new Set([whole, ...(whole.match(han) ?? [])])];
    const forms = new Set([whole, ...(isNumber(whole) ? [] : whole.match(subword) ?? [])]);
    const found = [...forms].map(stemOther);
    const pieces = isNumber(whole) || !isAscii(word) ? [] : word.match(/[A-Za-z]+|\d+/gu) ?? [];
    const parts = pieces.flatMap((piece) => piece.split(CAMEL));
    if (parts.length > 1) found[0] = whole;
    const stems = parts.filter((part) => part.length > 1).map((part) => stemOther(part.toLowerCase()));
    return [...new Set([...found, ...stems, ...[...forms].flatMap((one) => shortStem(plain(one)))])];
  }

  /** Return the words of a text; in scripts without spaces, overlapping pairs of characters. */
  function spans(text) {
    return [...text.matchAll(compound)].flatMap(({ 0: word, index }) => {
      if (!isPair(word)) return [{ word, start: index, end: index + word.length }];
      const letters = [...word];
      let start = index;
      return letters.slice(0, Math.max(1, letters.length - 1)).map((first, place) => {
        const pair = first + (letters[place + 1] ?? "");
        start += first.length;
        return { word: pair, start: start - first.length, end: start - first.length + pair.length };
      });
    });
  }

  const hasForms = (word) => !isPair(word) && !/[\p{Nd}_.-]/u.test(word) && !isStopWord(word);
  return { language, stem: stemOther, isStopWord, spans, terms, form, isPair, isEnglish, hasForms };
}

function tokens(text, analyzer, maxWord) {
  const short = analyzer.spans(text).filter(({ word }) => [...word].length <= maxWord);
  return short.map((span) => ({ ...span, terms: analyzer.terms(span.word) }));
}

function queryWords(text, analyzer, maxWord) {
  const all = analyzer.spans(text).filter(({ word }) => [...word].length <= maxWord);
  const quoted = [...text.matchAll(QUOTED)].map(({ 0: whole, index }) => ({ from: index, to: index + whole.length }));
  const isQuoted = ({ start, end }) => quoted.some(({ from, to }) => from < start && end < to);
  const content = all.filter((span) => !analyzer.isStopWord(span.word) || isQuoted(span));
  return [...new Set((content.length ? content : all).map(({ word }) => word))].slice(0, all.some(({ word }) => analyzer.isPair(word)) ? MAX_PAIRS : MAX_WORDS);
}

// The query and the scores of chunks: lexical.py

/** Return the chunks that match a text by words, or also by meaning, and that pass the filters; best first. */
async function find(index, meaning, text, limit, given, signal) {
  const { passes, explainEmpty } = await openFilters(index, narrowed(index.meta, given));
  const analyzer = index.analyzer(text, given.lang && FILTERS.lang.normalize(given.lang));
  const words = await analyze(index, text, analyzer);
  signal?.throwIfAborted();
  const lexical = rank(index, words).filter(([number]) => passes(number));
  const isSingle = isSingleWord(text, words.map(({ word }) => word), analyzer);
  const others = index.analyzers.filter((one) => one !== analyzer);
  const fused = meaning?.(text, words, lexical, limit, { passes, analyzer, isSingle, others: given.lang ? null : others });
  const ranked = (fused?.ranked ?? lexical).slice(0, limit);
  return { ranked, fused, words, explainEmpty };
}

async function analyze(index, text, analyzer) {
  const words = queryWords(text, analyzer, index.meta.max_word);
  const isSingle = isSingleWord(text, words, analyzer);
  return Promise.all(words.map((word) => analyzeWord(index, word, analyzer, isSingle)));
}

/** Return whether a query is one word; a sentence in a script without spaces is not. */
const isSingleWord = (text, words, { isPair }) => text.trim().split(/\s+/u).length === 1 && !(words.length > 1 && words.some(isPair));

/** Return a word with its IDF, its corrections, and the chunks of the terms that match it. */
async function analyzeWord(index, word, analyzer, isSingle) {
  const [whole, ...parts] = analyzer.terms(word);
  const found = await index.words(whole);
  const isKnown = found.length > 0;
  const isOnlyCommon = !isKnown && analyzer.isEnglish(word) && (await isCommon(index, word.toLowerCase()));
  const nearest = isKnown || isOnlyCommon ? [] : await corrections(index, word, analyzer);
  const terms = nearest.length ? nearest.flatMap(analyzer.terms) : [whole, ...parts];
  const matches = new Map();
  for (const term of terms) matches.set(term, merged((await index.words(term)).map(([, chunks]) => chunks)));
  const { known_parts: knownParts, common_weight: commonWeight } = index.meta.query;
  const hasParts = !isOnlyCommon && parts.some((part) => matches.get(part)?.size);
  const known = isKnown || nearest.length ? 1 : hasParts ? knownParts : 0;
  const idf = index.idf(merged(found.map(([, chunks]) => chunks)).size) * (isOnlyCommon ? commonWeight : 1);
  const exact = new Map();
  for (const form of isSingle ? (nearest.length ? nearest : [analyzer.form(word)]) : []) {
    const same = (await index.words(analyzer.stem(form))).find(([other]) => other === form);
    if (same && analyzer.hasForms(form)) exact.set(`=${form}`, merged([same[1]]));
  }
  return { word, nearest, matches, exact, analyzer, idf, known };
}

// Filters: Filters in types/search.py. A new one needs an entry here and in the table of static_export.py.

const FILTERS = {
  module: {
    normalize: (name) => name.trim().toLowerCase(),
    missing: (names, all) => `There is no module ${names}. Modules: ${[...new Set(all.map(([name]) => name))].join(", ")}.`,
  },
  url: { normalize: pageKey, missing: (url) => `There is no page ${url}.` },
  lang: { normalize: languageOf, missing: (language) => `The book has no page in the language ${language}.` },
  version: {
    normalize: (name) => name,
    missing: (name, all) => `The book has no version ${name}. Versions: ${[...new Set(all.flat())].filter(Boolean).join(", ")}.`,
  },
  locale: { normalize: (name) => name },
};

/** Return filters with the versions and locales that they stand for: search/query.py has the rules. */
function narrowed({ editions }, { prefer, ...given }) {
  const { versions = [], locales = [] } = editions ?? {};
  const preferred = (prefer ?? "").split(",").map((name) => name.trim()).filter(Boolean);
  const older = versions.find(([name, isCurrent]) => !isCurrent && preferred.includes(name));
  const byDefault = given.url ? [] : older ? [older] : versions.filter(([, isCurrent]) => isCurrent);
  const chosen = given.version === "all" ? [] : given.version ? [given.version] : byDefault.map(([name]) => name);
  const isKnown = chosen.length > 0 && chosen.every((name) => versions.some(([known]) => known === name));
  const version = isKnown ? [...chosen, ""] : chosen.length ? chosen : null; // pages without a version are part of all
  const tagOf = (name) => name.toLowerCase().replaceAll("_", "-");
  const forms = [tagOf, (name) => tagOf(name).split("-")[0]];
  const localesOf = (tag) => forms.map((form) => locales.filter((name) => form(name) === form(tag))).find((one) => one.length);
  const locale = given.url ? null : (given.lang ? [given.lang] : preferred).map(localesOf).find(Boolean);
  return { ...given, version, locale, lang: locale ? null : given.lang };
}

/** Return what tells whether a chunk passes all filters, and why a search finds nothing. */
async function openFilters(index, given) {
  const names = Object.keys(FILTERS).filter((name) => given[name] !== undefined && given[name] !== null);
  if (!names.length) return { passes: () => true, explainEmpty: () => ({}) };
  const values = await index.filters();
  const rows = names.map((name) => {
    const wanted = new Set([given[name]].flat().map(FILTERS[name].normalize));
    return { name, wanted: [...wanted], passes: values[name].map((own) => own.some((value) => wanted.has(value))) };
  });
  const isPassed = values.starts.map((_, row) => rows.every(({ passes }) => passes[row]));
  const explainEmpty = () => {
    if (isPassed.includes(true)) return {};
    const missing = rows.filter(({ passes }) => !passes.includes(true));
    const reasons = missing.map(({ name, wanted }) => FILTERS[name].missing(wanted.map((one) => `'${one}'`).join(" or "), values[name]));
    const message = reasons.join(" ") || "No page matches all filters together; each of them alone has matches.";
    return { outcome: "filtered_out", message };
  };
  return { passes: (number) => isPassed[lastAtMost(values.starts, number)], explainEmpty };
}

function pageKey(url) {
  const address = url.trim().replace(/[\t\r\n]/gu, "");
  const [, scheme, host = "", full, query] = /^(?:([A-Za-z][A-Za-z0-9+.-]*):)?(?:\/\/([^/?#]*))?([^?#]*)(?:\?([^#]+))?/u.exec(address);
  let path = full.replace(/\/+$/u, "");
  for (const suffix of [".md", ".markdown", ".mdown", ".mkdn", ".mkd", ".mdx"]) if (path.endsWith(suffix)) path = path.slice(0, -suffix.length);
  const key = query ? `${path}?${query}` : path;
  return scheme ? `${scheme.toLowerCase()}://${host.toLowerCase()}${key}` : key;
}

function languageOf(tag) {
  const [, language] = /^([a-z]{2,3})(?:[-_][a-z0-9-_]+)?(?:\..*)?$/u.exec(tag.trim().toLowerCase()) ?? [];
  if (!language) throw new RectoError(400, `'${tag}' is not a language.`, "Use a tag such as de, ja or zh.");
  return language;
}

/** Return how often each chunk has one of several words. */
function merged(lists) {
  const counts = new Map();
  for (const chunks of lists) {
    let number = 0;
    for (let place = 0; place < chunks.length; place += 2) {
      number += chunks[place];
      counts.set(number, (counts.get(number) ?? 0) + chunks[place + 1]);
    }
  }
  return counts;
}

/** Return words of the book for a misspelled one. */
async function corrections(index, spelled, analyzer) {
  const word = analyzer.form(spelled);
  const isEnglish = analyzer.language === "en";
  const { letters, other_letters: otherLetters, two_edits: twoEdits, prefix, alphabet, most } = index.meta.corrections;
  const least = isEnglish ? letters : otherLetters;
  if ([...spelled].length < least || /^\p{N}+$/u.test(word) || analyzer.isPair(word)) return [];
  const isNear = (other, edits) => Math.abs(other.length - word.length) <= edits && distance(word, other) <= edits;
  const added = (other) => [...word].reduce((rest, letter) => rest.replace(letter, ""), other);
  const isTypo = (other) => isNear(other, 1) && (other.startsWith(word.slice(0, prefix)) || alphabet.includes(added(other)));
  let found = (await index.similar(word.length, 1)).filter(([other]) => isTypo(other));
  if (!found.length && word.length >= twoEdits && isEnglish) {
    const begin = word.slice(0, prefix - 1);
    found = (await index.similar(word.length, 2)).filter(([other]) => other.startsWith(begin) && isNear(other, 2));
  }
  const isOther = (first) => first[0] !== word[0];
  found.sort(([one, its], [other, theirs]) => isOther(one) - isOther(other) || theirs - its || (one < other ? -1 : 1));
  return found.slice(0, most).map(([form]) => form);
}

/** Return whether a word is common English; about one of 280 other words counts as common, too. */
async function isCommon(index, word) {
  const common = await index.common();
  return [word, stem(word), `${stem(word)}e`].some((form) => common.has(crc32(form) >>> index.meta.common_shift));
}

function crc32(text) {
  let sum = -1;
  for (const byte of new TextEncoder().encode(text)) {
    sum ^= byte;
    for (let bit = 0; bit < 8; bit += 1) sum = (sum >>> 1) ^ (sum & 1 && 0xedb88320);
  }
  return ~sum >>> 0;
}

/** Return the edit distance of two words; swapping two adjacent letters counts as one edit. */
function distance(one, other) {
  let earlier = [];
  let before = [];
  let row = Array.from({ length: other.length + 1 }, (_, column) => column);
  for (let place = 1; place <= one.length; place += 1) {
    [earlier, before, row] = [before, row, [place]];
    for (let column = 1; column <= other.length; column += 1) {
      const isSame = one[place - 1] === other[column - 1];
      row[column] = Math.min(before[column] + 1, row[column - 1] + 1, before[column - 1] + !isSame);
      if (place > 1 && column > 1 && one[place - 1] === other[column - 2] && one[place - 2] === other[column - 1]) {
        row[column] = Math.min(row[column], earlier[column - 2] + 1);
      }
    }
  }
  return row[other.length];
}

/** Return the numbers and scores of the chunks that match, best first; chunks are numbered by page and place. */
function rank(index, words) {
  const terms = new Map(words.flatMap(({ matches, exact }) => [...matches, ...exact]));
  const { k1 } = index.meta.bm25;
  const largest = (k1 + 1) * [...terms.values()].reduce((sum, chunks) => sum + index.idf(chunks.size), 0);
  const scores = new Map();
  for (const chunks of terms.values()) {
    const idf = index.idf(chunks.size);
    for (const [number, count] of chunks) {
      scores.set(number, (scores.get(number) ?? 0) + (idf * index.weight(count, number)) / largest);
    }
  }
  return [...scores].sort(([one, its], [other, theirs]) => theirs - its || one - other);
}

function groupByPage(index, ranked, pages) {
  const groups = new Map();
  for (const hit of ranked) {
    const page = lastAtMost(index.meta.pages, hit[0]);
    if (groups.has(page)) groups.get(page).push(hit);
    else if (groups.size < pages) groups.set(page, [hit]);
  }
  return [...groups.values()];
}

// The response: display.py and the models of the HTTP API

function* respond(index, query, hits, { fused, words, explainEmpty }, shownWords, groupSizes = []) {
  const { ranked, scores = (_, score) => ({ dense: null, lexical: score, above_noise: null }), ...coverage } = fused ?? {};
  const results = [];
  for (const { number, score, chunk } of hits) {
    const snippet = makeSnippet(chunk.text, shownWords, index);
    const matches = matchedWords(`${chunk.headings.join(" > ")}\n\n${chunk.text}`, shownWords, index);
    results.push({ ...chunk, rank: results.length + 1, score, ...scores(number, score), snippet, matches });
    yield;
  }
  let end = 0;
  const groups = groupSizes.map((size) => results.slice(end, (end += size))).map((group) => ({
    page_url: group[0].page_url, title: group[0].title, score: group[0].score, ranks: group.map((hit) => hit.rank),
  }));
  const corrected = words.filter(({ nearest }) => nearest.length).map(({ word, nearest }) => [word, nearest]);
  return {
    query, collection: index.meta.collection, generation: index.meta.generation, mode: "lexical",
    outcome: hits.length ? "found" : "no_match", message: hits.length ? "" : "No chunk contains any word of the query",
    warnings: [], answerable: null, coverage: null, covered: true, corrections: Object.fromEntries(corrected), noise_floor: null,
    ...coverage, ...(hits.length ? {} : explainEmpty()), results, groups, query_log: false, answers: false,
  };
}

/** Return the words of a text that share a term with a query word; `word` is the query word. */
function findMatches(text, words, { meta }) {
  const analyzer = words[0]?.analyzer;
  const terms = new Map(words.toReversed().flatMap((word) => [...word.matches.keys()].map((term) => [term, word])));
  return (words.length ? tokens(text, analyzer, meta.max_word) : []).flatMap(({ start, end, word, terms: own }) => {
    const found = own.find((term) => terms.has(term));
    const needsWhole = () => analyzer.isStopWord(word) || analyzer.isPair(word);
    const isMatch = found !== undefined && (terms.has(own[0]) || !needsWhole());
    return isMatch ? [{ start, end, word: terms.get(found) }] : [];
  });
}

function matchedWords(text, words, index) {
  const spelled = new Map();
  const spans = [];
  for (const match of findMatches(text, words, index)) {
    const [start, end] = [cutBack(text, match.start), cutForward(text, match.end)];
    if (spans.length && start < spans.at(-1).end) spans.at(-1).end = end;
    else spans.push({ start, end });
  }
  for (const { start, end } of spans) {
    const word = text.slice(start, end);
    if (!spelled.has(word.toLowerCase())) spelled.set(word.toLowerCase(), word);
  }
  return [...spelled.values()];
}

/** Return the part of a text with the most and rarest matches, on one line. */
function makeSnippet(text, words, index) {
  const { length, before } = index.meta.snippets;
  const flat = text.split(/\s+/u).filter(Boolean).join(" ");
  const { from, to } = bestCluster(findMatches(flat, words, index), index.meta.snippets);
  let begin = flat.lastIndexOf(" ", from - 1) + 1;
  let end = flat.indexOf(" ", to);
  if (end < 0) end = flat.length;
  if (end - begin > 2 * length) [begin, end] = [from, to];
  const room = Math.trunc(Math.max(0, length - (end - begin)) * before);
  let start = Math.max(0, Math.min(begin - room, flat.length - length));
  let stop = Math.max(end, Math.min(flat.length, start + length));
  if (start && flat[start - 1] !== " ") {
    const space = flat.indexOf(" ", start);
    start = space >= 0 && space < begin ? space + 1 : isUnspaced(flat, start) ? start : begin;
  }
  if (stop < flat.length && flat[stop] !== " ") {
    const space = flat.lastIndexOf(" ", stop - 1);
    stop = space >= end && space > 0 ? space : isUnspaced(flat, stop) ? stop : end || stop;
  }
  [start, stop] = [cutBack(flat, start), cutForward(flat, stop)];
  return `${start ? "…" : ""}${flat.slice(start, stop)}${stop < flat.length ? "…" : ""}`;
}

const graphemes = Intl.Segmenter && new Intl.Segmenter(undefined, { granularity: "grapheme" });

/** Return whether a position is inside a character: before a mark, or inside an emoji or a syllable. */
function isInside(text, position) {
  if (position <= 0 || position >= text.length || isAscii(text[position])) return false;
  if (/^\p{M}/u.test(text.slice(position, position + 2))) return true; // some marks are graphemes in Burmese
  return Boolean(graphemes) && graphemes.segment(text).containing(position).index < position;
}

function cutBack(text, position) {
  return isInside(text, position) ? cutBack(text, position - 1) : position;
}

function cutForward(text, position) {
  return isInside(text, position) ? cutForward(text, position + 1) : position;
}

/** Return whether a text has no spaces between words at a position. */
function isUnspaced(text, position) {
  return /[\p{Script=Han}\p{Script=Hiragana}\p{Script=Katakana}\p{Script=Hangul}\p{Script=Thai}\p{Script=Lao}\p{Script=Khmer}\p{Script=Myanmar}ー]/u.test(
    String.fromCodePoint(text.codePointAt(position)),
  );
}

function bestCluster(matches, { length, repeated }) {
  let best = { weight: 0, from: 0, to: 0 };
  matches.forEach((match, first) => {
    const seen = new Set();
    let weight = 0;
    for (const { end, word } of matches.slice(first)) {
      if (seen.size && end - match.start > length) break;
      weight += seen.has(word) ? repeated * word.idf : word.idf;
      seen.add(word);
      if (weight > best.weight) best = { weight, from: match.start, to: end };
    }
  });
  return best;
}

// Related chunks: selection.py

async function excludeAndDiversify(index, ranked, selection, topK) {
  const chosen = [];
  const spare = [];
  const { overlap } = index.meta;
  const selected = shingles(selection, overlap);
  let leftOut = 0;
  for (const [number, score] of ranked) {
    const chunk = await index.chunk(number);
    const text = shingles(chunk.text, overlap);
    const samePage = chosen.filter((other) => other.chunk.page_url === chunk.page_url);
    const isSameSection = (other) => other.chunk.headings.join("\n") === chunk.headings.join("\n");
    if (overlaps(selected, text, overlap)) leftOut += 1;
    else if (chosen.some((other) => overlaps(text, other.text, overlap))) continue;
    else if (samePage.length >= Math.ceil(topK / 2) || samePage.some(isSameSection)) spare.push({ number, chunk, score, text });
    else if (chosen.push({ number, chunk, score, text }) === topK) break;
  }
  const hits = [...chosen, ...spare.slice(0, topK - chosen.length)].sort((one, other) => other.score - one.score);
  return { hits, leftOut };
}

function shingles(text, { shingle, long_run: longRun }) {
  const words = text.toLowerCase().match(WORD) ?? [];
  const runs = (size) => new Set(words.slice(size - 1).map((_, start) => words.slice(start, start + size).join(" ")));
  return { count: words.length, short: runs(shingle), long: runs(longRun) };
}

/** Return whether half of the shorter text is in the other one, or both share a long run of words. */
function overlaps(one, other, { min_words: minWords }) {
  if (Math.min(one.count, other.count) < minWords) return false;
  const common = [...one.short].filter((run) => other.short.has(run)).length;
  return 2 * common >= Math.min(one.short.size, other.short.size) || [...one.long].some((run) => other.long.has(run));
}
