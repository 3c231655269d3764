// The search dialog: a combobox that searches while the reader types.

import { RectoError } from "../client.js";
import { directionOf, h, svg } from "../dom.js";
import { makeAnswer } from "./answer.js";
import { breadcrumb, countOf, errorText, groupByPage, linkOf, sectionOf, snippetOf } from "./results.js";

const BURST = 50; // milliseconds: letters that arrive faster than this are one search
const THINKING_PAUSE = 150; // after this time without typing, search in the hybrid mode
const FAST = 40; // a hybrid search that takes no longer needs no lexical search before it
const SETTLED = 1500; // after this time without typing, the query is the one that the reader meant
const PAGES = 6;
const MAX_QUERY = 2000;
const MAX_RECENT = 5;
const MAX_CACHED = 50;
const RECENT = "recto-recent";

export function makeDialog({ t, client, rewrite, prefer }, openRelated) {
  const answer = makeAnswer({ t, client, rewrite, prefer }, () => element.close(), claimLog);
  const input = h("input", {
    dir: "auto",
    type: "text", role: "combobox", "aria-label": t("searchLabel"), "aria-autocomplete": "list",
    "aria-expanded": "false", "aria-controls": "results", placeholder: t("placeholder"), maxlength: MAX_QUERY,
    autocomplete: "off", autocapitalize: "off", spellcheck: "false", enterkeyhint: "go",
  });
  const close = h("button", { type: "button", class: "plain", "aria-label": t("close") }, "✕");
  const message = h("div", {});
  const list = h("div", { id: "results", role: "listbox", "aria-label": t("results"), hidden: true });
  const note = h("p", { class: "message note" }); // below the results, so that they do not move
  const status = h("div", { class: "sr", role: "status" });
  const element = h("dialog", { class: "search", "aria-label": t("searchLabel") },
    h("div", { class: "head" }, searchIcon(), input, close),
    h("div", { class: "body" }, answer.element, message, list, note), status, footer(t));
  const search = makeSearch(client, prefer);
  const opens = new WeakMap(); // the hits of options
  let selection = "";
  let retry = 0;
  let settling = 0;
  let unlogged = "";
  let logged = "";
  let hasMoved = false; // whether the reader has moved to one of the results

  /** Tell how far a static search has loaded its model, or that it cannot. */
  client.onstatus = ({ loaded, error }) => {
    note.textContent = error ? t("wordsOnly") : loaded < 1 ? t("loadingMeaning", { percent: Math.floor(100 * loaded) }) : "";
    if (error) status.textContent = `${status.textContent} ${note.textContent}`;
  };

  /** Search once more for the query that the reader settled on, to log it. */
  const settle = () => {
    clearTimeout(settling);
    if (unlogged && unlogged !== logged) {
      logged = unlogged;
      client.search(logged, { top_k: PAGES, group_by: "page", prefer: prefer(), keepalive: true }).catch(ignore);
    }
    unlogged = "";
  };

  /** Return whether a question must be logged; then its search is not. */
  function claimLog({ query, query_log: hasLog }) {
    const isNew = hasLog && query !== logged;
    if (isNew) logged = query;
    return isNew;
  }

  const reportOpened = (option) => {
    const hit = opens.get(option);
    settle();
    if (hit && logged && logged === input.value.trim()) client.click(logged, hit.url, hit.rank).catch(ignore);
  };

  const show = (messages, options, announced = "") => {
    message.replaceChildren(...messages);
    list.replaceChildren(...options);
    const isEmpty = !list.querySelector("[role=option]");
    list.hidden = isEmpty;
    input.setAttribute("aria-expanded", String(!isEmpty));
    select(list.querySelector("[role=option]"));
    hasMoved = false;
    if (announced !== status.textContent) status.textContent = announced;
  };

  const select = (option) => {
    for (const one of list.querySelectorAll("[aria-selected=true]")) one.setAttribute("aria-selected", "false");
    option?.setAttribute("aria-selected", "true");
    if (option) input.setAttribute("aria-activedescendant", option.id);
    else input.removeAttribute("aria-activedescendant");
    option?.scrollIntoView({ block: "nearest" });
  };

  const selected = () => list.querySelector("[aria-selected=true]");

  const move = (step) => {
    const options = [...list.querySelectorAll("[role=option]")];
    const index = options.indexOf(selected()) + step;
    hasMoved = true;
    select(options[(index + options.length) % options.length]);
  };

  /** Show what a reader can do before typing. */
  const showStart = () => {
    const options = [];
    if (selection) {
      const text = h("span", { class: "snippet" }, selection.slice(0, 200));
      const option = makeOption(null, [h("span", { class: "section" }, t("relatedTo")), text]);
      option.addEventListener("click", () => {
        element.close();
        openRelated(selection);
      });
      options.push(h("div", { class: "group", role: "group", "aria-label": t("selection") }, option));
    }
    const recent = readRecent();
    if (recent.length) options.push(recentGroup(recent));
    show(recent.length ? [recentHead()] : [], options);
  };

  const recentHead = () => {
    const forget = h("button", { type: "button", class: "plain" }, t("clearRecent"));
    forget.addEventListener("click", () => {
      writeRecent([]);
      showStart();
      input.focus();
    });
    return h("p", { class: "message" }, t("recent"), forget);
  };

  const recentGroup = (recent) => {
    const options = recent.map((query) => {
      const option = makeOption(null, [h("span", { class: "section" }, query)]);
      option.addEventListener("click", () => {
        input.value = query;
        input.focus();
        onInput();
      });
      return option;
    });
    return h("div", { class: "group", role: "group", "aria-label": t("recent") }, ...options);
  };

  const showResponse = (response, isFinal) => {
    const pages = groupByPage(response);
    if (isFinal) answer.offer(response);
    if (response.query_log) {
      unlogged = response.query;
      clearTimeout(settling);
      if (isFinal) settling = setTimeout(settle, SETTLED);
    }
    const messages = Object.entries(response.corrections).map(([word, meant]) =>
      h("p", { class: "message" }, t("corrected", { word, meant: meant.map((one) => `“${one}”`).join(", ") })));
    if (!pages.length) {
      if (!isFinal) return; // the hybrid search may find something
      const text = t("nothing", { query: response.query });
      show([...messages, h("p", { class: "message" }, h("strong", {}, text))], [], text);
      return;
    }
    const isCovered = response.covered || !isFinal;
    if (!isCovered) {
      messages.push(h("p", { class: "message" }, h("strong", {}, t("notCovered")), t("nearest")));
    }
    const announced = [!isCovered && t("notCovered"), countOf(pages, t)].filter(Boolean).join(" ");
    show(messages, pages.map((hits, index) => pageGroup(hits, index, isCovered)), announced);
  };

  const pageGroup = (hits, index, isCovered) => {
    const [{ title, module_title: module }] = hits;
    const id = `page-${index}`;
    const head = h("div", { class: "page", id, role: "presentation" },
      ...breadcrumb([module !== title && module, h("strong", {}, title || "…")]));
    const className = isCovered ? "group" : "group weak";
    return h("div", { class: className, role: "group", "aria-labelledby": id }, head, ...hits.map(hitOption));
  };

  const hitOption = (hit) => {
    const { section, above } = sectionOf(hit);
    const link = linkOf(hit, rewrite);
    const path = above.length > 0 && h("span", { class: "trail" }, ...breadcrumb(above));
    const heading = h("span", { class: "section", dir: directionOf(hit) }, section || hit.title);
    const option = makeOption(link, [path, heading, snippetOf(hit)]);
    if (!link) heading.append(` (${t("unpublished")})`);
    opens.set(option, hit);
    option.addEventListener("auxclick", () => reportOpened(option));
    option.addEventListener("click", (event) => {
      reportOpened(option);
      addRecent(input.value.trim());
      if (!event.ctrlKey && !event.metaKey && !event.shiftKey && !event.button) element.close();
    });
    return option;
  };

  const makeOption = (href, children) => {
    const id = `option-${(optionNumber += 1)}`;
    const attributes = { id, class: "option", role: "option", "aria-selected": "false", tabindex: "-1" };
    const option = href ? h("a", { ...attributes, href }, ...children) : h("div", attributes, ...children);
    option.addEventListener("pointermove", () => {
      hasMoved = true;
      if (option !== selected()) select(option);
    });
    return option;
  };
  let optionNumber = 0;

  const showError = (error, query, hasResults) => {
    if (error.status === 429) retry = setTimeout(() => find(query), 1000 * Math.min(error.retryAfter || 5, 60));
    if (error.status === 429 && hasResults) return; // the reader keeps the results of the lexical search
    const text = errorText(error, t);
    const again = h("button", { type: "button", class: "plain" }, t("tryAgain"));
    again.addEventListener("click", () => {
      input.focus();
      find(query);
    });
    const isTransient = ![400, 401, 403, 404, 413, 429].includes(error.status);
    show([h("p", { class: "message" }, text, isTransient && again)], [], text);
  };

  const find = async (query) => {
    clearTimeout(retry);
    element.classList.add("busy");
    let hasResults = false;
    try {
      for await (const { response, isFinal, isBetter } of search(query)) {
        if (isFinal) element.classList.remove("busy");
        if (isBetter && hasMoved) continue;
        showResponse(response, isFinal);
        hasResults = response.results.length > 0;
      }
    } catch (error) {
      if (error.name === "AbortError") return; // a later search is running
      if (!(error instanceof RectoError)) throw error;
      showError(error, query, hasResults);
    }
    element.classList.remove("busy");
  };

  const onInput = () => {
    const query = input.value.trim();
    clearTimeout(settling);
    unlogged = "";
    answer.reset();
    if (query) {
      find(query);
    } else {
      stop();
      showStart();
    }
  };

  const stop = () => {
    clearTimeout(retry);
    search.cancel();
    element.classList.remove("busy");
  };

  input.addEventListener("input", onInput);
  input.addEventListener("keydown", (event) => {
    if (event.isComposing) return;
    if (event.key === "ArrowDown" || event.key === "ArrowUp") move(event.key === "ArrowDown" ? 1 : -1);
    else if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) openInTab(selected(), reportOpened);
    else if (event.key === "Enter") selected()?.click();
    else return;
    event.preventDefault();
  });
  close.addEventListener("click", () => element.close());
  element.addEventListener("click", (event) => {
    if (event.target === element && isOutside(event, element)) element.close(); // the backdrop
  });
  element.addEventListener("close", () => {
    settle();
    stop();
    note.textContent = "";
    answer.reset();
    answer.forget();
  });

  const open = (query, selectedText) => {
    if (element.open) return;
    selection = selectedText;
    if (query) input.value = query;
    element.showModal();
    input.focus();
    input.select();
    onInput();
  };
  return { element, open };
}

function ignore() {
  // A reader need not know that the query log misses something.
}

function openInTab(option, onOpen) {
  if (!option?.href) return;
  window.open(option.href, "_blank", "noopener");
  onOpen(option);
}

function isOutside({ clientX: x, clientY: y }, element) {
  const { left, right, top, bottom } = element.getBoundingClientRect();
  return x < left || x > right || y < top || y > bottom;
}

/** Return a function that yields the responses to a query, first a preliminary one if hybrid mode is slow. */
function makeSearch(client, prefer) {
  const cache = new Map();
  let controller = new AbortController();
  let isFast = false;
  let last = 0;

  const request = async (query, mode, signal) => {
    const key = `${mode} ${prefer()} ${query}`;
    if (cache.has(key)) return cache.get(key);
    const began = performance.now();
    const options = { mode, top_k: PAGES, group_by: "page", prefer: prefer(), log: false, signal };
    const response = await client.search(query, options);
    if (response.improved) return response; // it is not cached: a better one follows
    if (mode === "hybrid") isFast = performance.now() - began <= FAST;
    if (cache.size >= MAX_CACHED || [...cache.values()].some(({ generation }) => generation !== response.generation)) {
      cache.clear(); // a new index answers from now on
    }
    cache.set(key, response);
    return response;
  };

  async function* search(query) {
    controller.abort();
    controller = new AbortController();
    const { signal } = controller;
    const now = performance.now();
    const isBurst = now - last < BURST;
    last = now;
    if (isBurst) await pause(BURST, signal);
    if (!isFast && !cache.has(`hybrid ${prefer()} ${query}`)) {
      const began = performance.now();
      yield { response: await request(query, "lexical", signal), isFinal: false };
      await pause(THINKING_PAUSE - (performance.now() - began), signal);
    }
    const response = await request(query, "hybrid", signal);
    yield { response, isFinal: true };
    if (!response.improved) return;
    const better = await response.improved;
    signal.throwIfAborted();
    if (better.mode === "hybrid") yield { response: better, isFinal: true, isBetter: true };
  }
  search.cancel = () => controller.abort();
  return search;
}

function pause(milliseconds, signal) {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(resolve, milliseconds);
    signal.addEventListener("abort", () => {
      clearTimeout(timer);
      reject(signal.reason);
    }, { once: true });
  });
}

function readRecent() {
  try {
    const stored = JSON.parse(localStorage.getItem(RECENT) ?? "[]");
    return stored.filter((query) => typeof query === "string").slice(0, MAX_RECENT);
  } catch {
    return []; // storage may be forbidden, or another script may have written something else
  }
}

function writeRecent(queries) {
  try {
    if (queries.length) localStorage.setItem(RECENT, JSON.stringify(queries.slice(0, MAX_RECENT)));
    else localStorage.removeItem(RECENT);
  } catch {
    // Then there are no recent searches.
  }
}

function addRecent(query) {
  if (query) writeRecent([query, ...readRecent().filter((one) => one !== query)]);
}

function searchIcon() {
  return svg("svg", { class: "icon", viewBox: "0 0 20 20", "aria-hidden": "true" },
    svg("circle", { cx: 8.5, cy: 8.5, r: 5.5 }), svg("path", { d: "M13 13l4.5 4.5" }));
}

function footer(t) {
  const hint = (keys, text) => h("span", {}, ...keys.map((key) => h("kbd", {}, key)), text);
  return h("div", { class: "foot", "aria-hidden": "true" },
    hint(["↑", "↓"], t("hintMove")), hint(["↵"], t("hintOpen")), hint(["Esc"], t("hintClose")));
}
