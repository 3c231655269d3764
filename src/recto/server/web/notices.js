// Words for everything that is not a result: what is wrong, and what to do about it.

import { h } from "./dom.js";
import { inline } from "./markdown.js";
import { leads, state } from "./state.js";

const TITLES = {
  0: "The service does not answer.",
  400: "The service cannot use this question.",
  401: "This service wants a key.",
  404: "It is not there.",
  408: "The service takes too long to answer.",
  413: "That is too much text at once.",
  429: "Too many questions at once.",
  503: "The book cannot be searched at the moment.",
};

/** What a failed request looks like on the page, with a button to try again. */
export function problem(error, retry) {
  const title = TITLES[error.status] ?? "Something went wrong.";
  const said = [error.message, error.hint].filter((words) => words && words !== title).map(sentence);
  if (error.status === 401) said.splice(0, said.length, "Ask its operator for one; it is what RECTO_API_KEY was set to.");
  if (error.status === 404 && state().collection) said.splice(1); // the service's hint is for programs
  if (error.status === 429 && error.wait) said.push(`Wait ${error.wait} seconds.`);
  return notice(title, said, action(error, retry), "alert");
}

function action({ status }, retry) {
  // An address may name a book that is no longer served; trying again would not bring it back.
  if (status === 404 && state().collection) return h("a", { class: "button", ...leads({ collection: "", modules: [], url: "", page: "" }) }, "To the book that is served");
  return h("button", { type: "button", on: { click: retry } }, status === 401 ? "Enter the key" : "Try again");
}

export function notice(title, sentences, action = null, role = null) {
  const said = sentences.map((words) => h("p", {}, ...inline(words)));
  return h("div", { class: "notice", role }, h("p", { class: "notice-title" }, title), ...said, action);
}

function sentence(words) {
  return /[.!?]$/u.test(words) ? words : `${words}.`;
}
