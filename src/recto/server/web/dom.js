// Makes elements from data. Text becomes text nodes, so nothing that a book or a person wrote is ever read as markup.

const SVG = "http://www.w3.org/2000/svg";

export const byId = (id) => document.getElementById(id);

export function isWeb(address) {
  return /^https?:\/\//i.test(address);
}

/** Whether a link may lead there: the web, or a state of this page. Anything else could run code. */
function mayLead(address) {
  return isWeb(address) || address === "." || address.startsWith("?") || address.startsWith("#");
}

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === undefined || value === null || value === false) continue;
    if (name === "on") {
      for (const [event, listener] of Object.entries(value)) element.addEventListener(event, listener);
    } else if (name === "href" && !mayLead(value)) {
      continue;
    } else {
      element.setAttribute(name, value === true ? "" : String(value));
    }
  }
  element.append(...children.flat().filter((child) => child !== undefined && child !== null && child !== false && child !== ""));
  return element;
}

export function h(tag, attributes, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

export function svg(tag, attributes, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

/** A link to the web, in a tab of its own; what is not on the web stays text. */
export function outward(address, ...children) {
  if (!isWeb(address)) return h("span", {}, ...children);
  return h("a", { href: address, target: "_blank", rel: "noopener noreferrer", class: "outward" }, ...children);
}

export function counted(number, one, many = `${one}s`) {
  return `${number.toLocaleString("en")} ${number === 1 ? one : many}`;
}

export function day(iso) {
  const when = new Date(iso ?? "");
  return Number.isNaN(when.getTime()) ? "unknown" : when.toLocaleString("en-GB", { dateStyle: "medium", timeStyle: "short" });
}
