/** Where the service is, and how to use it. */
export interface ClientOptions {
  /** The address of the service; default: the folder of client.js. */
  url?: string | URL;
  /** An API key; a page of a book needs a search key. */
  key?: string;
  /** The collection of all requests that name no other; default: the key's first, or else the service's. */
  collection?: string;
  /** After how many milliseconds a request fails with the status 408; default: 30 000. */
  timeout?: number;
}

/** Options of every request. */
export interface RequestOptions {
  /** Cancels the request, which then rejects with the reason of the signal (an AbortError). */
  signal?: AbortSignal;
}

/** Options of requests that the reader may not wait for. */
export interface KeepaliveOptions {
  /** Whether the request continues after the reader leaves the page. */
  keepalive?: boolean;
}

export type SearchOptions = RequestOptions & KeepaliveOptions & Omit<SearchRequest, "query">;
export type RelatedOptions = RequestOptions & KeepaliveOptions & Omit<RelatedRequest, "selection">;
export type BatchOptions = RequestOptions & KeepaliveOptions & Omit<BatchRequest, "queries">;
export type AnswerOptions = RequestOptions & Omit<AnswerRequest, "query">;
export type ClickOptions = RequestOptions & KeepaliveOptions & { collection?: string | null };
export type CollectionOptions = RequestOptions & { collection?: string | null };
export type PagesOptions = CollectionOptions & { module?: string | null };
export type PageOptions = CollectionOptions & { query?: string | null; html?: boolean };

/** A section that an answer can cite as [number]. */
export interface AnswerSection {
  number: number;
  title: string;
  headings: string[];
  url: string;
  text: string;
}

/** A part of an answer: its sections, a piece of text, and the end with what was cited, or an error. */
export type AnswerEvent =
  | { name: "sections"; data: { query: string; collection: string; covered: boolean; sections: AnswerSection[] } }
  | { name: "text"; data: { text: string } }
  | { name: "end"; data: { cited: number[] } }
  | { name: "error"; data: { error: string; hint: string } };

/** A failed request. */
export class RectoError extends Error {
  constructor(status: number, message: string, hint?: string, retryAfter?: number);
  /** The status of the response; 0: the service is unreachable, 408: it did not answer in time. */
  readonly status: number;
  /** What to do about it; may be empty. */
  readonly hint: string;
  /** After how many seconds to try again; 0: the service did not say. */
  readonly retryAfter: number;
}

/** Sends requests to one service; failed ones reject with a RectoError. */
export class RectoClient {
  constructor(options?: ClientOptions);
  readonly url: string;
  key: string;
  collection: string;
  timeout: number;
  search(query: string, options?: SearchOptions): Promise<SearchResponse>;
  related(selection: string, options?: RelatedOptions): Promise<RelatedResponse>;
  /** Answer several queries at once; a search key may not. */
  batch(queries: string[], options?: BatchOptions): Promise<BatchResponse>;
  /** Report that a reader opened a result; the request continues after the reader leaves the page. */
  click(query: string, url: string, rank: number, options?: ClickOptions): Promise<void>;
  /** Yield the events of an answer; the loop ends after "end" or "error". */
  answer(query: string, options?: AnswerOptions): AsyncGenerator<AnswerEvent, void>;
  /** Report whether an answer was helpful; the request continues after the reader leaves the page. */
  feedback(query: string, helpful: boolean, options?: ClickOptions): Promise<void>;
  collections(options?: RequestOptions): Promise<CollectionsResponse>;
  modules(options?: CollectionOptions): Promise<ModulesResponse>;
  pages(options?: PagesOptions): Promise<PagesResponse>;
  page(url: string, options?: PageOptions): Promise<PageResponse>;
  /** Return the state of a collection; a search key may not. */
  health(options?: CollectionOptions): Promise<HealthResponse>;
}

// scripts/make_client_types.py writes the rest of this file from the OpenAPI description.

/** The body of `/v1/answer`. */
export interface AnswerRequest {
  /** A collection that the server serves; default: the first. */
  collection?: string | null;
  /** False: leave this query out of the query log, if the service keeps one. Send it while a reader is still typing, and with a query that is logged already. */
  log?: boolean;
  /** The query: 1 to 2000 characters without surrounding white space. */
  query: string;
  /** The earlier questions of the conversation, oldest first; the last is searched, too. */
  turns?: AnswerTurn[];
  /** Versions and languages of the page that the reader is on, separated by commas, such as 2.0,de: they are searched if the book has them, and there is no `version` or `lang`. */
  prefer?: string | null;
}

/** The body of `/v1/answer/feedback`: whether a reader found the answer to a question helpful. */
export interface AnswerFeedback {
  /** The query: 1 to 2000 characters without surrounding white space. */
  query: string;
  helpful: boolean;
  /** A collection that the server serves; default: the first. */
  collection?: string | null;
}

/** An earlier question of a conversation, and its answer. */
export interface AnswerTurn {
  /** The query: 1 to 2000 characters without surrounding white space. */
  query: string;
  /** Only its start is sent to the model. */
  answer?: string;
}

/** The body of `/v1/batch`. */
export interface BatchRequest {
  /** A collection that the server serves; default: the first. */
  collection?: string | null;
  /** False: leave this query out of the query log, if the service keeps one. Send it while a reader is still typing, and with a query that is logged already. */
  log?: boolean;
  /** Together at most 16000 characters. The number of queries times `top_k` is at most 1000. */
  queries: string[];
  /** The maximum number of results. */
  top_k?: number;
  /** Only this module, or any of these modules. */
  module?: string | string[] | null;
  /** Only the page with this URL. */
  url?: string | null;
  /** Only pages in this language, such as de. */
  lang?: string | null;
  /** This version of the book, or `all`; default: the current one. */
  version?: string | null;
  /** Versions and languages of the page that the reader is on, separated by commas, such as 2.0,de: they are searched if the book has them, and there is no `version` or `lang`. */
  prefer?: string | null;
  /** Only results with at least this score; in dense mode it is a cosine, at most 1. */
  min_score?: number | null;
  /** Rank by cosine similarity (dense), by BM25 (lexical), or by their weighted sum (hybrid). */
  mode?: "hybrid" | "dense" | "lexical";
  /** "page": return the best `top_k` pages with their chunks instead of single chunks. */
  group_by?: "page" | null;
}

/** The responses, in the order of the queries. */
export interface BatchResponse {
  responses: SearchResponse[];
}

/** A chunk of the book; `html` is present only if the request asks for it. */
export interface Chunk {
  id: string;
  /** Cite this: it opens the section. */
  url: string;
  page_url: string;
  anchor: string;
  anchors: string[];
  /** The page's title. */
  title: string;
  /** The heading of the section. */
  section: string;
  /** The path from the page's title down to the section. */
  headings: string[];
  module: string;
  module_title: string;
  text: string;
  /** `text` as HTML, without scripts, styles and images. */
  html?: string;
  source: string;
  start_line: number;
  end_line: number;
  chunk_index: number;
  total_chunks: number;
  version: string;
  locale: string;
  language: string;
  /** Words of the text and its headings that match the query. */
  matches: string[];
}

/** The body of `/v1/click`: a reader opened the result with this rank and URL. */
export interface ClickRequest {
  /** The query: 1 to 2000 characters without surrounding white space. */
  query: string;
  /** The `url` of the result. */
  url: string;
  /** The `rank` of the result. */
  rank: number;
  /** A collection that the server serves; default: the first. */
  collection?: string | null;
}

/** A collection that the server serves. */
export interface Collection {
  name: string;
  default: boolean;
  /** The book's title; the collection's name if it is unknown. */
  title: string;
  /** The book's logo as a `data:` URL. */
  logo: string | null;
  /** The versions of the book, if it has several. */
  versions: string[];
}

/** The collections that the server serves. */
export interface CollectionsResponse {
  collections: Collection[];
}

/** The body of `/v1/context`; without `top_k`, the best 100 chunks are considered. */
export interface ContextRequest {
  /** A collection that the server serves; default: the first. */
  collection?: string | null;
  /** False: leave this query out of the query log, if the service keeps one. Send it while a reader is still typing, and with a query that is logged already. */
  log?: boolean;
  /** The query: 1 to 2000 characters without surrounding white space. */
  query: string;
  /** The maximum size of all texts together. */
  max_tokens?: number;
  /** The page that the reader is on; its sections come first if relevant. */
  page?: string | null;
  /** How many sections around each to add, if they fit. */
  neighbors?: number;
  /** The maximum number of results. */
  top_k?: number;
  /** Only this module, or any of these modules. */
  module?: string | string[] | null;
  /** Only pages in this language, such as de. */
  lang?: string | null;
  /** This version of the book, or `all`; default: the current one. */
  version?: string | null;
  /** Versions and languages of the page that the reader is on, separated by commas, such as 2.0,de: they are searched if the book has them, and there is no `version` or `lang`. */
  prefer?: string | null;
  /** Rank by cosine similarity (dense), by BM25 (lexical), or by their weighted sum (hybrid). */
  mode?: "hybrid" | "dense" | "lexical";
}

/** The response of `/v1/context`: sections, most relevant page first; without any, `message` says why. */
export interface ContextResponse {
  /** found, no_match, or filtered_out: the filters exclude every chunk. */
  outcome: "found" | "no_match" | "filtered_out";
  /** What to know before you use the results; may be empty. */
  message: string;
  collection: string;
  mode: "hybrid" | "dense" | "lexical";
  /** Estimated probability that the book covers the query. */
  answerable: number | null;
  /** covered, unclear, or not covered; null if it is unknown. A covered query can still lack an answer: read the text. */
  coverage: "covered" | "unclear" | "not covered" | null;
  /** Query words that the book does not have, and what was searched for. */
  corrections: Record<string, string[]>;
  /** A `score` below this is noise in this book; null if it was not measured. */
  noise_floor: number | null;
  warnings: string[];
  query: string;
  generation: string;
  covered: boolean;
  /** Whether sections of `page` come first. */
  page_used: boolean | null;
  sections: McpSection[];
  tokens: number;
  max_tokens: number;
  /** The URLs of further results that did not fit. */
  left_out: string[];
  timings: Timings;
}

/** The body of every error. */
export interface ErrorResponse {
  error: string;
  status_code: number;
  hint?: string | null;
}

/** The state of a collection, and what to do about it. `coverage`, `suite` and `gaps` are the last runs of `recto coverage`, `recto validate` and `recto gaps`; their `current` is false if they measured an older index. `latency` is about the last searches of the worker that handles the request. */
export interface HealthResponse {
  validation: ValidationResponse;
  index: Record<string, unknown> | null;
  problems: Record<string, unknown>[];
  coverage: Record<string, unknown> | null;
  suite: Record<string, unknown> | null;
  gaps: Record<string, unknown> | null;
  latency: Record<string, unknown>;
  advice: string[];
}

/** A chunk of the book with its rank and score. */
export interface Hit {
  rank: number;
  id: string;
  /** Cite this: it opens the section. */
  url: string;
  page_url: string;
  anchor: string;
  anchors: string[];
  /** The page's title. */
  title: string;
  /** The heading of the section. */
  section: string;
  /** The path from the page's title down to the section. */
  headings: string[];
  module: string;
  module_title: string;
  text: string;
  /** `text` as HTML, without scripts, styles and images. */
  html?: string;
  source: string;
  start_line: number;
  end_line: number;
  chunk_index: number;
  total_chunks: number;
  version: string;
  locale: string;
  language: string;
  /** Ranks the results; compare it within one response only. */
  score: number;
  /** Cosine similarity to the query, if it was computed. */
  dense: number | null;
  /** Share of the largest BM25 score, 0 to 1, if it was computed. */
  lexical: number | null;
  /** False: as unrelated texts score in this book. Null: not measured. */
  above_noise: boolean | null;
  /** Words of the text and its headings that match the query. */
  matches: string[];
  /** The part of the text around the best matches, in one line. */
  snippet: string;
  /** The section around the chunk as Markdown. Null: the request did not ask for it. */
  section_text: string | null;
}

/** A section of the book that has one or more hits; `score` is the score of its best hit. */
export interface McpSection {
  /** How many chunks of it match the query. */
  hits: number;
  /** Markdown; […] stands for chunks that did not fit. */
  text: string;
  tokens: number;
  /** Chunks of the section that did not fit; read_page returns all of it. */
  missing: number;
  /** True: the text ends after a sentence, because it alone is over max_tokens. */
  truncated: boolean;
  /** Cite this: it opens the section. */
  url: string;
  /** The page's title. */
  title: string;
  /** The path from the page's title down to the section. */
  headings: string[];
  module: string;
  /** Ranks the results; compare it within one response only. */
  score: number;
  /** False: as unrelated texts score in this book. Null: not measured. */
  above_noise: boolean | null;
}

/** A module of the book. */
export interface Module {
  name: string;
  title: string;
  chunks: number;
  pages: number;
}

/** The modules of a book. */
export interface ModulesResponse {
  collection: string;
  modules: Module[];
}

/** A page of a grouped search; `ranks` are the ranks of its chunks in `results`. */
export interface PageGroup {
  page_url: string;
  title: string;
  score: number;
  ranks: number[];
}

/** A page of the book. */
export interface Page {
  url: string;
  title: string;
  module: string;
  chunks: number;
}

/** The chunks of a page, in reading order. */
export interface PageResponse {
  collection: string;
  url: string;
  title: string;
  module: string;
  chunks: Chunk[];
}

/** The pages of a book. */
export interface PagesResponse {
  collection: string;
  pages: Page[];
}

/** The body of `/v1/related`. */
export interface RelatedRequest {
  /** A collection that the server serves; default: the first. */
  collection?: string | null;
  /** False: leave this query out of the query log, if the service keeps one. Send it while a reader is still typing, and with a query that is logged already. */
  log?: boolean;
  /** The selected text; a long one is cut at a sentence. */
  selection: string;
  /** A question about the selected text; blank means none. */
  question?: string | null;
  /** Also return the text of each chunk as HTML that is safe to show in a page. */
  html?: boolean;
  /** The maximum number of results. */
  top_k?: number;
  /** Only this module, or any of these modules. */
  module?: string | string[] | null;
  /** Only the page with this URL. */
  url?: string | null;
  /** Only pages in this language, such as de. */
  lang?: string | null;
  /** This version of the book, or `all`; default: the current one. */
  version?: string | null;
  /** Versions and languages of the page that the reader is on, separated by commas, such as 2.0,de: they are searched if the book has them, and there is no `version` or `lang`. */
  prefer?: string | null;
  /** Only results with at least this score; in dense mode it is a cosine, at most 1. */
  min_score?: number | null;
  /** Rank by cosine similarity (dense), by BM25 (lexical), or by their weighted sum (hybrid). */
  mode?: "hybrid" | "dense" | "lexical";
}

/** The response of `/v1/related`. */
export interface RelatedResponse {
  /** found, no_match, or filtered_out: the filters exclude every chunk. */
  outcome: "found" | "no_match" | "filtered_out";
  /** What to know before you use the results; may be empty. */
  message: string;
  collection: string;
  mode: "hybrid" | "dense" | "lexical";
  /** Estimated probability that the book covers the query. */
  answerable: number | null;
  /** covered, unclear, or not covered; null if it is unknown. A covered query can still lack an answer: read the text. */
  coverage: "covered" | "unclear" | "not covered" | null;
  /** Query words that the book does not have, and what was searched for. */
  corrections: Record<string, string[]>;
  /** A `score` below this is noise in this book; null if it was not measured. */
  noise_floor: number | null;
  warnings: string[];
  query: string;
  generation: string;
  covered: boolean;
  results: Hit[];
  groups: PageGroup[];
  timings: Timings;
  query_log: boolean;
  answers: boolean;
  selection: Selection;
}

/** The body of `/v1/search`. */
export interface SearchRequest {
  /** A collection that the server serves; default: the first. */
  collection?: string | null;
  /** False: leave this query out of the query log, if the service keeps one. Send it while a reader is still typing, and with a query that is logged already. */
  log?: boolean;
  /** The query: 1 to 2000 characters without surrounding white space. */
  query: string;
  /** Also return the text of each chunk as HTML that is safe to show in a page. */
  html?: boolean;
  /** The maximum number of results. */
  top_k?: number;
  /** Only this module, or any of these modules. */
  module?: string | string[] | null;
  /** Only the page with this URL. */
  url?: string | null;
  /** Only pages in this language, such as de. */
  lang?: string | null;
  /** This version of the book, or `all`; default: the current one. */
  version?: string | null;
  /** Versions and languages of the page that the reader is on, separated by commas, such as 2.0,de: they are searched if the book has them, and there is no `version` or `lang`. */
  prefer?: string | null;
  /** Only results with at least this score; in dense mode it is a cosine, at most 1. */
  min_score?: number | null;
  /** Rank by cosine similarity (dense), by BM25 (lexical), or by their weighted sum (hybrid). */
  mode?: "hybrid" | "dense" | "lexical";
  /** "page": return the best `top_k` pages with their chunks instead of single chunks. */
  group_by?: "page" | null;
  /** Also return `section_text`: the section around each chunk, of at most this many tokens. */
  section_tokens?: number | null;
}

/** The response of `/v1/search`. If `results` is empty, `outcome` and `message` say why. `covered` is false if `coverage` is "not covered". `groups` is empty unless the request has `group_by`. `query_log` says whether the service keeps a query log, `answers` whether this caller may send the question to `/v1/answer`. */
export interface SearchResponse {
  /** found, no_match, or filtered_out: the filters exclude every chunk. */
  outcome: "found" | "no_match" | "filtered_out";
  /** What to know before you use the results; may be empty. */
  message: string;
  collection: string;
  mode: "hybrid" | "dense" | "lexical";
  /** Estimated probability that the book covers the query. */
  answerable: number | null;
  /** covered, unclear, or not covered; null if it is unknown. A covered query can still lack an answer: read the text. */
  coverage: "covered" | "unclear" | "not covered" | null;
  /** Query words that the book does not have, and what was searched for. */
  corrections: Record<string, string[]>;
  /** A `score` below this is noise in this book; null if it was not measured. */
  noise_floor: number | null;
  warnings: string[];
  query: string;
  generation: string;
  covered: boolean;
  results: Hit[];
  groups: PageGroup[];
  timings: Timings;
  query_log: boolean;
  answers: boolean;
}

/** The part of a selected text that was searched for. */
export interface Selection {
  text: string;
  given: number;
  cut: boolean;
  left_out: number;
}

/** Milliseconds that each step of a search took. */
export interface Timings {
  embed_ms: number;
  search_ms: number;
  total_ms: number;
}

/** The response of `/validate`; `last_updated` is null if it is unknown. */
export interface ValidationResponse {
  collection_exists: boolean;
  vector_count: number;
  sample_search_works: boolean;
  last_updated: string | null;
}
