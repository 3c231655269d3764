// The side panel: what else the book says about a selected text.

import { RectoError } from "../client.js";
import { h } from "../dom.js";
import { breadcrumb, errorText, linkOf, sectionOf, snippetOf } from "./results.js";

const HITS = 6;
const MAX_QUESTION = 2000;

export function makePanel({ t, client, rewrite, prefer }) {
  const title = h("h2", { id: "panel-title", tabindex: "-1" }, t("related"));
  const close = h("button", { type: "button", class: "plain", "aria-label": t("close") }, "✕");
  const quote = h("blockquote", {});
  const input = h("input", {
    type: "text", "aria-label": t("question"), placeholder: t("question"), maxlength: MAX_QUESTION, autocomplete: "off",
  });
  const form = h("form", { class: "ask" }, input, h("button", { type: "submit" }, t("ask")));
  const message = h("div", { role: "status" });
  const list = h("ol", { class: "hits", role: "list" });
  const element = h("aside", { class: "panel", "aria-labelledby": "panel-title", hidden: true },
    h("header", {}, title, close), h("div", { class: "body" }, quote, form, message, list));
  let selection = "";
  let logged = ""; // the question, if the service keeps a query log
  let controller = new AbortController();
  let opener = null;

  const show = (text, hits, isStrong = false) => {
    message.replaceChildren(text ? h("p", { class: "message" }, isStrong ? h("strong", {}, text) : text) : "");
    list.replaceChildren(...hits.map((hit) => entry(hit)));
  };

  const entry = (hit) => {
    const { section, above } = sectionOf(hit);
    const link = linkOf(hit, rewrite);
    const module = hit.module_title !== hit.title && hit.module_title;
    const steps = [module, section && hit.title, ...above];
    const parts = [
      h("span", { class: "trail" }, ...breadcrumb(steps)),
      h("span", { class: "section" }, section || hit.title),
      snippetOf(hit),
    ];
    if (!link) return h("li", {}, h("div", { class: "hit" }, ...parts));
    const opener = h("a", { class: "hit", href: link }, ...parts);
    for (const type of ["click", "auxclick"]) {
      opener.addEventListener(type, () => logged && client.click(logged, hit.url, hit.rank).catch(() => undefined));
    }
    return h("li", {}, opener);
  };

  const showResponse = (response, question) => {
    if (!response.results.length) show(t("nothingRelated"), []);
    else if (question && !response.covered) show(t("notCovered"), response.results, true);
    else show("", response.results);
  };

  const find = async () => {
    controller.abort();
    controller = new AbortController();
    const { signal } = controller;
    const question = input.value.trim() || null;
    element.classList.add("busy");
    try {
      const response = await client.related(selection, { question, top_k: HITS, prefer: prefer(), signal });
      logged = response.query_log && question ? question : "";
      showResponse(response, question);
      element.classList.remove("busy");
      const better = await response.improved; // of a static search that is still loading its model
      signal.throwIfAborted();
      const isInUse = list.matches(":hover, :focus-within");
      if (better?.mode === "hybrid" && !isInUse) showResponse(better, question);
    } catch (error) {
      if (error.name === "AbortError") return;
      if (!(error instanceof RectoError)) throw error;
      show(errorText(error, t), []);
    }
    element.classList.remove("busy");
  };

  const hide = () => {
    controller.abort();
    element.hidden = true;
    if (opener?.isConnected) opener.focus();
  };

  form.addEventListener("submit", (event) => {
    event.preventDefault();
    find();
  });
  close.addEventListener("click", hide);
  element.addEventListener("keydown", (event) => {
    if (event.key !== "Escape" || event.isComposing) return;
    event.stopPropagation();
    hide();
  });

  const open = (text) => {
    if (element.hidden) opener = document.activeElement;
    selection = text;
    quote.textContent = text;
    input.value = "";
    show("", []);
    element.hidden = false;
    title.focus();
    find();
  };
  return { element, open };
}
