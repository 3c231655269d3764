// A client of Recto's HTTP API for browsers and Node: one file without dependencies. Its types are in client.d.ts.

const TIMEOUT = 30_000; // milliseconds
const ANSWER_TIMEOUT = 630_000; // more than a service allows for an answer

/** A failed request. `status` is 0 if the service is unreachable, and 408 if it did not answer in time. */
export class RectoError extends Error {
  constructor(status, message, hint = "", retryAfter = 0) {
    super(message);
    this.name = "RectoError";
    Object.assign(this, { status, hint, retryAfter });
  }
}

export class RectoClient {
  constructor({ url = new URL(".", import.meta.url), key = "", collection = "", timeout = TIMEOUT } = {}) {
    // The address of the service is a folder, also if it is written without a slash at its end.
    this.url = new URL(String(url).replace(/\/*$/, "/"), globalThis.location).href;
    Object.assign(this, { key, collection, timeout });
  }

  search(query, options) {
    return this.#post("v1/search", { query }, options);
  }

  related(selection, options) {
    return this.#post("v1/related", { selection }, options);
  }

  batch(queries, options) {
    return this.#post("v1/batch", { queries }, options);
  }

  click(query, url, rank, options) {
    return this.#post("v1/click", { query, url, rank }, { keepalive: true, ...options });
  }

  async *answer(query, { signal, ...more } = {}) {
    const options = { signal, timeout: ANSWER_TIMEOUT, isStream: true };
    const response = await this.#send("v1/answer", this.#parameters({ ...more, query }), options);
    try {
      yield* readEvents(response.body);
    } catch (error) {
      if (signal?.aborted || error instanceof RectoError) throw error;
      throw new RectoError(0, "The answer broke off.", "Try again.");
    }
  }

  feedback(query, helpful, options) {
    return this.#post("v1/answer/feedback", { query, helpful }, { keepalive: true, ...options });
  }

  collections({ signal } = {}) {
    return this.#send("v1/collections", null, { signal });
  }

  modules(options) {
    return this.#get("v1/modules", options);
  }

  pages(options) {
    return this.#get("v1/pages", options);
  }

  page(url, options) {
    return this.#get(`v1/pages/${encodeURIComponent(url)}`, options);
  }

  health(options) {
    return this.#get("v1/health", options);
  }

  #post(path, given, { signal, keepalive, ...more } = {}) {
    return this.#send(path, this.#parameters({ ...more, ...given }), { signal, keepalive });
  }

  #get(path, { signal, ...more } = {}) {
    const query = new URLSearchParams(this.#parameters(more));
    return this.#send(query.size ? `${path}?${query}` : path, null, { signal });
  }

  /** Return parameters without those that are not given; the collection of the client is the default. */
  #parameters(given) {
    const all = { ...given, collection: given.collection || this.collection || null };
    return Object.fromEntries(Object.entries(all).filter(([, value]) => value !== null && value !== undefined));
  }

  async #send(path, body, { signal, keepalive = false, timeout: limit = this.timeout, isStream = false }) {
    const headers = { Accept: "application/json" };
    if (this.key) headers.Authorization = `Bearer ${encodeHeader(this.key)}`;
    if (body) headers["Content-Type"] = "application/json";
    const timeout = AbortSignal.timeout(limit);
    let response;
    let text;
    try {
      response = await fetch(new URL(path, this.url), {
        method: body ? "POST" : "GET",
        headers,
        body: body && JSON.stringify(body),
        keepalive,
        signal: signal ? AbortSignal.any([signal, timeout]) : timeout,
      });
      if (isStream && response.ok) return response;
      text = await response.text();
    } catch (error) {
      if (signal?.aborted) throw error;
      if (timeout.aborted) throw new RectoError(408, "The service did not answer in time.", "Try again.");
      throw new RectoError(0, "The service does not answer.", "If it was stopped, start it with `recto serve`.");
    }
    if (response.status === 204) return undefined;
    const data = parse(text);
    if (response.ok && data) return data;
    const message = data?.error ?? "The service sent a response that is not valid.";
    const retryAfter = Number(response.headers.get("Retry-After")) || 0;
    throw new RectoError(response.ok ? 502 : response.status, message, data?.hint ?? "", retryAfter);
  }
}

/** Yield the name and the data of each server-sent event. */
async function* readEvents(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  let part;
  do {
    part = await reader.read();
    const events = (text + (part.value ?? "")).split("\n\n");
    text = events.pop();
    yield* events.map(parseEvent).filter(Boolean);
  } while (!part.done);
}

function parseEvent(event) {
  const [, name, data] = /^event: (.*)\ndata: (.*)$/u.exec(event) ?? [];
  return name ? { name, data: JSON.parse(data) } : null;
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
