// Highlight matching words in results and on a page, and choose the excerpt of a result.

import { h } from "./dom.js";

const MAX_EXCERPT = 400; // characters
// Scripts without spaces between words, and Korean: a match is a part of a run of letters.
const UNSPACED = /[\p{Script=Han}\p{Script=Hiragana}\p{Script=Katakana}\p{Script=Hangul}\p{Script=Thai}\p{Script=Lao}\p{Script=Khmer}\p{Script=Myanmar}]/u;

/** Return a pattern for the words that the service says match, or null if there are none. */
export function matchPattern(words) {
  const bare = words.map((word) => word.replace(/^_+|_+$/gu, "")).filter(Boolean); // without emphasis
  if (!bare.length) return null;
  bare.sort((one, other) => other.length - one.length);
  const escaped = bare.map((word) => word.replace(/[.*+?^${}()|[\]\\/]/gu, "\\$&"));
  const inRuns = escaped.filter((word) => UNSPACED.test(word));
  const whole = escaped.filter((word) => !UNSPACED.test(word));
  const letter = /[^\0-\x7f]/u.test(whole) ? "[\\p{L}\\p{N}\\p{M}]" : "[a-z0-9à-ɏ]"; // it compiles faster
  const bounded = whole.length ? [`(?<!${letter})_*(?:${whole.join("|")})_*(?!${letter})`] : [];
  return new RegExp([...bounded, ...inRuns].join("|"), "giu");
}

/** Put the matches of a pattern into `mark` elements. */
export function markMatches(root, pattern) {
  for (const node of pattern ? textNodes(root) : []) {
    const pieces = [];
    let end = 0;
    for (const match of node.data.matchAll(pattern)) {
      pieces.push(node.data.slice(end, match.index), h("mark", {}, match[0]));
      end = match.index + match[0].length;
    }
    if (end) node.replaceWith(...pieces, node.data.slice(end));
  }
}

/** Choose the blocks to show first: from the one with the most different matches. */
export function excerpt(blocks, pattern) {
  const isHeading = (block) => /^H\d$/u.test(block?.tagName);
  const matches = (block) => [...block.textContent.matchAll(pattern ?? /(?!)/gu)];
  const variety = (block) => new Set(matches(block).map(([word]) => word.toLowerCase().slice(0, 4))).size;
  const counts = blocks.map(variety);
  let first = Math.max(0, counts.indexOf(Math.max(...counts)));
  if (isHeading(blocks[first - 1])) first -= 1;
  let last = first;
  let length = 0;
  const fits = (block) => length + block.textContent.length <= MAX_EXCERPT || isHeading(blocks[last - 1]);
  while (last < blocks.length && (last === first || fits(blocks[last]))) {
    length += blocks[last].textContent.length;
    last += 1;
  }
  return { shown: blocks.slice(first, last), before: first > 0, after: last < blocks.length };
}

/** Highlight the matches of a pattern in an element without changing it. */
export function highlightWords(element, pattern) {
  const ranges = [];
  for (const node of element && pattern ? textNodes(element) : []) {
    for (const match of node.data.matchAll(pattern)) {
      ranges.push(makeRange(node, match.index, node, match.index + match[0].length));
    }
  }
  setHighlight("words", ranges);
}

/** Highlight a selected text; return its range, or null if the element does not contain it. */
export function highlightSelection(root, selection) {
  const range = selection ? findText(root, selection) : null;
  setHighlight("selected", range ? [range] : []);
  return range;
}

function setHighlight(name, ranges) {
  if (!CSS.highlights) return;
  if (ranges.length) CSS.highlights.set(name, new Highlight(...ranges));
  else CSS.highlights.delete(name);
}

/** Return the text nodes of an element, except in controls. */
function textNodes(root) {
  const walker = document.createTreeWalker(root, NodeFilter.SHOW_TEXT);
  const nodes = [];
  while (walker.nextNode()) nodes.push(walker.currentNode);
  return nodes.filter((node) => !node.parentElement?.closest(".chunk-label, .related-button"));
}

function makeRange(startNode, start, endNode, end) {
  const range = new Range();
  range.setStart(startNode, start);
  range.setEnd(endNode, end);
  return range;
}

/** Find a text in an element, ignoring white space. */
function findText(root, wanted) {
  const positions = [];
  let text = "";
  for (const node of textNodes(root)) {
    for (let index = 0; index < node.length; index += 1) {
      if (/\s/u.test(node.data[index])) continue;
      positions.push([node, index]);
      text += node.data[index];
    }
  }
  const bare = wanted.replace(/\s+/gu, "");
  const start = bare ? text.indexOf(bare) : -1;
  if (start < 0) return null;
  const [endNode, end] = positions[start + bare.length - 1];
  return makeRange(...positions[start], endNode, end + 1);
}
