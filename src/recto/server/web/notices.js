// Messages for everything that is not a result: what happened, and what to do.

import { h } from "./dom.js";
import { inline } from "./markdown.js";
import { leads, state } from "./state.js";

const TITLES = {
  0: "The service does not answer.",
  400: "The service cannot process this query.",
  401: "An API key is required.",
  404: "Not found.",
  408: "The service takes too long to answer.",
  413: "The text is too long.",
  429: "Too many requests.",
  503: "The book cannot be searched at the moment.",
};

/** Show a failed request, with a button to try again. */
export function problem(error, retry) {
  const title = TITLES[error.status] ?? "Something went wrong.";
  const said = [error.message, error.hint].filter((words) => words && words !== title).map(sentence);
  if (error.status === 401) said.splice(0, said.length, "Ask the operator of this service for the value of RECTO_API_KEY.");
  if (error.status === 404 && state().collection) said.splice(1); // the hint of the service is for programs
  if (error.status === 429 && error.wait) said.push(`Wait ${error.wait} seconds.`);
  return notice(title, said, action(error, retry), "alert");
}

function action({ status }, retry) {
  // The URL may name a book that is no longer served; trying again would not help.
  if (status === 404 && state().collection) return h("a", { class: "button", ...leads({ collection: "", modules: [], url: "", page: "" }) }, "Open the default book");
  return h("button", { type: "button", on: { click: retry } }, status === 401 ? "Enter the key" : "Try again");
}

export function notice(title, sentences, action = null, role = null) {
  const said = sentences.map((words) => h("p", {}, ...inline(words)));
  return h("div", { class: "notice", role }, h("p", { class: "notice-title" }, title), ...said, action);
}

function sentence(words) {
  return /[.!?]$/u.test(words) ? words : `${words}.`;
}
