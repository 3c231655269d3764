// The answer that the service streams from the owner's language model. All of it becomes text nodes.

import { RectoError } from "../client.js";
import { h } from "../dom.js";
import { breadcrumb, linkOf, sectionOf } from "./results.js";

const BLOCK = /```[\s\S]*?(?:\n```|$)|(?:(?!\n\s*\n|```)[\s\S])+/gu;
const INLINE = /`([^`\n]+)`|\*\*([^*\n]+)\*\*|\[(\d{1,3})\]/gu;
const TURNS = 3; // earlier questions that the service accepts
const TURN_ANSWER = 1000; // characters of an earlier answer that the service sends to the model
const SOON = 300; // seconds: a longer wait means that today's answers are used up

/** Return the element of the answer, and functions that offer one or remove it; `onAsk` returns whether to log it. */
export function makeAnswer({ t, client, rewrite, prefer }, onOpen, onAsk) {
  const element = h("section", { class: "answer", "aria-label": t("answer"), hidden: true });
  let controller = new AbortController();
  let turns = []; // what was answered since the reader opened the panel

  /** Forget the conversation. */
  const forget = () => (turns = []);

  const reset = () => {
    controller.abort();
    controller = new AbortController();
    element.hidden = true;
    element.replaceChildren();
  };

  const offer = (response) => {
    reset();
    if (!response.answers) return;
    const button = h("button", { type: "button", class: "action" }, t("askModel"));
    button.addEventListener("click", () => ask(response));
    element.replaceChildren(button);
    element.hidden = false;
  };

  const ask = async (response) => {
    controller = new AbortController();
    const own = controller;
    const stop = h("button", { type: "button", class: "plain" }, t("stop"));
    const title = h("strong", { tabindex: "-1" }, t("answer"));
    const state = h("span", { class: "state", role: "status" }, t("answering"));
    const text = h("div", { class: "text", "aria-live": "polite", "aria-busy": "true" });
    const foot = h("div", { class: "after" });
    element.replaceChildren(h("div", { class: "top" }, title, state, stop), text, foot);
    stop.addEventListener("click", () => own.abort());
    stop.focus();
    let message = "";
    try {
      await show(response, own.signal, text, foot);
    } catch (error) {
      if (own.signal.aborted) message = t("stopped");
      else if (error instanceof RectoError) message = showError(error, response, foot);
      else throw error;
    } finally {
      text.setAttribute("aria-busy", "false");
      state.textContent = message;
      if (stop.matches(":focus")) title.focus();
      stop.remove();
    }
  };

  /** Draw the events of an answer; throw an error unless it arrives whole. */
  const show = async (response, signal, text, foot) => {
    let sections = [];
    let written = "";
    const draw = makeDrawing(text, (number) => citation(sections.find((one) => one.number === number)));
    const options = { prefer: prefer(), signal, log: onAsk(response), turns };
    for await (const { name, data } of client.answer(response.query, options)) {
      if (name === "sections") {
        sections = data.sections;
        if (data.covered) continue;
        text.replaceChildren(h("p", {}, h("strong", {}, t("notCovered"))));
        foot.replaceChildren(sources(t("nearest"), sections));
        return;
      }
      if (name === "text") draw((written += data.text));
      if (name === "error") throw new RectoError(502, data.error, data.hint);
      if (name === "end") {
        const cited = sections.filter(({ number }) => data.cited.includes(number));
        turns = [...turns, { query: response.query, answer: [...written].slice(0, TURN_ANSWER).join("") }].slice(-TURNS);
        foot.replaceChildren(cited.length ? sources(t("sources"), cited) : "", note(response));
        return;
      }
    }
    throw new RectoError(0, "The answer broke off.");
  };

  const showError = (error, response, foot) => {
    if (error.status === 429) {
      return error.retryAfter > SOON ? t("answersSpent") : t("answersLimited", { seconds: error.retryAfter || 5 });
    }
    console.warn(`Recto: ${error.message} ${error.hint ?? ""}`.trim());
    const again = h("button", { type: "button", class: "plain" }, t("tryAgain"));
    again.addEventListener("click", () => ask(response));
    foot.replaceChildren(h("p", { class: "note" }, again));
    return t("answerFailed");
  };

  const linkTo = (section, attributes, ...children) => {
    const href = linkOf({ ...section, text: "", matches: [] }, rewrite);
    const link = h(href ? "a" : "span", { ...attributes, href: href || null }, ...children);
    link.addEventListener("click", (event) => {
      if (href && !event.ctrlKey && !event.metaKey && !event.shiftKey) onOpen();
    });
    return link;
  };

  const nameOf = (section) => sectionOf(section).section || section.title;

  const citation = (section) => {
    if (!section) return null;
    const label = t("source", { number: section.number, title: nameOf(section) });
    return linkTo(section, { class: "cite", title: label }, h("span", { class: "sr" }, `${label} `), h("span", { "aria-hidden": "true" }, section.number));
  };

  const sources = (title, sections) => h("div", {}, h("p", { class: "note" }, title),
    h("ol", { class: "sources", role: "list" }, ...sections.map((section) => {
      const name = nameOf(section);
      const steps = [name !== section.title && section.title, name];
      return h("li", { value: section.number }, linkTo(section, {}, ...breadcrumb(steps)));
    })));

  /** Say who wrote the answer, and ask whether it helped if queries are logged. */
  const note = ({ query, query_log: isLogged }) => {
    const line = h("p", { class: "note" }, t("answerNote"));
    const thumbs = isLogged ? [["👍", "helpful"], ["👎", "notHelpful"]] : [];
    for (const [icon, name] of thumbs) {
      const button = h("button", { type: "button", class: "plain", "aria-label": t(name), "aria-pressed": "false" }, icon);
      button.addEventListener("click", () => {
        client.feedback(query, name === "helpful").catch(() => undefined);
        for (const one of line.querySelectorAll("button")) one.setAttribute("aria-pressed", String(one === button));
      });
      line.append(button);
    }
    return line;
  };

  return { element, offer, reset, forget };
}

/** Return a function that draws a text that grows; unchanged blocks keep the focus. */
function makeDrawing(parent, cite) {
  const drawn = [];
  return (text) => {
    const blocks = (text.match(BLOCK) ?? []).map((block) => block.trim()).filter(Boolean);
    for (const [index, block] of blocks.entries()) {
      if (drawn[index] === block) continue;
      drawn[index] = block;
      const element = drawBlock(block, cite);
      if (parent.children[index]) parent.children[index].replaceWith(element);
      else parent.append(element);
    }
  };
}

function drawBlock(block, cite) {
  if (block.startsWith("```")) {
    const code = block.replace(/^```[^\n]*\n?/u, "").replace(/\n?```$/u, "");
    return h("pre", { tabindex: "0" }, h("code", {}, code));
  }
  const text = block.replace(/^#+ /gmu, "").replace(/^[-*] /gmu, "• ");
  const nodes = [];
  let end = 0;
  for (const match of text.matchAll(INLINE)) {
    const [whole, code, strong, number] = match;
    nodes.push(text.slice(end, match.index));
    if (code) nodes.push(h("code", {}, code));
    else if (strong) nodes.push(h("strong", {}, strong));
    else nodes.push(cite(Number(number)) ?? whole);
    end = match.index + whole.length;
  }
  return h("p", {}, ...nodes, text.slice(end));
}
