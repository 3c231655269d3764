// Messages to the reader: notices, errors with what to do, and announcements for screen readers.

import { byId, h } from "./dom.js";
import { NO_PAGE, linkTo, state } from "./state.js";
import { withCode } from "./text.js";

const DELAY = 100; // milliseconds: changes that happen together are announced together
const TITLES = {
  0: "The service does not answer.",
  400: "The service cannot process this query.",
  401: "An API key is required.",
  404: "Not found.",
  408: "The service did not answer in time.",
  413: "The text is too long.",
  429: "Too many requests.",
  503: "The book cannot be searched at the moment.",
};
let pending = [];
let timer;

/** Announce a change of the page to screen readers. */
export function announce(message) {
  const region = byId("live");
  pending.push(message);
  clearTimeout(timer);
  region.textContent = ""; // the same text twice in a row is only read again after a change
  timer = setTimeout(() => {
    region.textContent = pending.join(". ");
    pending = [];
  }, DELAY);
}

export function notice(title, sentences, action = null, role = null) {
  const paragraphs = sentences.filter(Boolean).map((sentence) => h("p", {}, ...withCode(sentence)));
  return h("div", { class: "notice", role }, h("p", { class: "notice-title" }, title), ...paragraphs, action);
}

/** Return a notice for a failed request, with a way to continue. */
export function errorNotice(error, retry) {
  const title = TITLES[error.status] ?? "Something went wrong.";
  let messages = [error.message, error.hint].filter(Boolean).map(asSentence).filter((text) => text !== title);
  const unknownBook = error.status === 404 && Boolean(state().collection);
  if (error.status === 401) messages = ["Ask the operator of this service for the value of RECTO_API_KEY."];
  if (unknownBook) messages = messages.slice(0, 1); // the service's hint is for programs
  if (error.status === 429 && error.retryAfter) messages.push(`Wait ${error.retryAfter} seconds.`);
  return notice(title, messages, unknownBook ? defaultBookLink() : retryButton(error.status, retry), "alert");
}

/** The URL may name a book that is no longer served: trying again would not help. */
function defaultBookLink() {
  const changes = { ...NO_PAGE, collection: "", modules: [], url: "" };
  return h("a", { class: "button", ...linkTo(changes) }, "Open the default book");
}

function retryButton(status, retry) {
  const button = h("button", { type: "button" }, status === 401 ? "Enter the key" : "Try again");
  button.addEventListener("click", retry);
  return button;
}

function asSentence(text) {
  return /[.!?]$/u.test(text) ? text : `${text}.`;
}
