// Build elements. Text becomes text nodes; of the service's HTML only known elements and attributes are kept.

const SVG = "http://www.w3.org/2000/svg";
const TAGS = new Set(
  ("a blockquote br code div em figcaption figure h1 h2 h3 h4 h5 h6 hr li ol p pre s span strong " +
    "table tbody td th thead tr ul").split(" "),
);
const ATTRIBUTES = ["aria-label", "class", "role", "scope", "start", "tabindex"];

/** Return the direction of a chunk's text, which can begin with a Latin word. */
export const directionOf = ({ language }) => (/^(ar|fa|he|ur)$/u.test(language) ? "rtl" : "auto");
export const byId = (id) => document.getElementById(id);
export const isWeb = (url) => /^https?:\/\//iu.test(url);

/** Return whether a link may have this URL: the web, or a state of this page. Other URLs could run code. */
function isSafe(url) {
  return isWeb(url) || url === "." || url.startsWith("?") || url.startsWith("#");
}

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === undefined || value === null || value === false) continue;
    if (name === "href" && !isSafe(value)) continue;
    element.setAttribute(name, value === true ? "" : String(value));
  }
  element.append(...children.flat().filter((child) => child || child === 0));
  return element;
}

export function h(tag, attributes, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

export function svg(tag, attributes, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

/** Return a link that opens the web in a new tab; other URLs are only text. */
export function externalLink(url, ...children) {
  if (!isWeb(url)) return h("span", {}, ...children);
  return h("a", { href: url, target: "_blank", rel: "noopener noreferrer" }, ...children);
}

/** Return the elements of the service's HTML; `link` makes an element from a URL and children. */
export function parseHtml(html, link = externalLink) {
  const parsed = new DOMParser().parseFromString(html, "text/html");
  const copy = (node) => {
    if (node.nodeType === Node.TEXT_NODE) return node.data;
    if (!TAGS.has(node.localName)) return h("span", {}, node.textContent);
    const children = [...node.childNodes].map(copy);
    if (node.localName === "a") return link(node.getAttribute("href") ?? "", ...children);
    const attributes = ATTRIBUTES.map((name) => [name, node.getAttribute(name)]);
    return h(node.localName, Object.fromEntries(attributes), ...children);
  };
  return [...parsed.body.children].map(copy);
}
