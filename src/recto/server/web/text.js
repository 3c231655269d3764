// Text of the web page: messages with code, counts and dates.

import { h } from "./dom.js";

/** Return the nodes of a message, with the text between backticks as code. */
export function withCode(message) {
  return message.split("`").map((part, index) => (index % 2 ? h("code", {}, part) : part));
}

export function plural(number, one, many = `${one}s`) {
  return `${number.toLocaleString("en")} ${number === 1 ? one : many}`;
}

export function formatDate(iso) {
  const date = new Date(iso ?? "");
  if (Number.isNaN(date.getTime())) return "unknown";
  return date.toLocaleString("en-GB", { dateStyle: "medium", timeStyle: "short" });
}
