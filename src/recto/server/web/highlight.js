// Marks the words of a passage that match a query, and chooses the part of the passage that shows most of them.

import { h } from "./dom.js";

const COMMON = new Set(
  ("a about after all also am an and any are as at be because been before being between both but by can could did do does doing down " +
    "each few for from further had has have having he her here how i if in into is it its just me more most my no nor not of off on " +
    "once only or other our out over own same she should so some such than that the their them then there these they this those to too " +
    "under until up use used using very was we were what when where which while who whom why will with would you your").split(" "),
);
const WORD = /[\p{L}\p{N}_]+/gu;
const MOST = 400; // characters of an excerpt, beyond which no further block is taken

/** A pattern that finds the words that the service says match, as they are written; null if there are none. */
export function matching(words) {
  const bare = words.map((word) => word.replace(/^_+|_+$/gu, "")).filter(Boolean); // Markdown's emphasis is not shown
  if (!bare.length) return null;
  const pattern = bare.sort((one, other) => other.length - one.length).map((word) => word.replace(/[.*+?^${}()|[\]\\/]/gu, "\\$&")).join("|");
  return new RegExp(`(?<![\\p{L}\\p{N}])_*(?:${pattern})_*(?![\\p{L}\\p{N}])`, "giu");
}

/** A pattern that finds a question's telling words in a page, in their other forms too; null if it has none. */
export function telling(question) {
  const words = question.toLowerCase().match(WORD) ?? [];
  const parts = words.flatMap((word, place) => {
    if (word.length < 2 || COMMON.has(word)) return [];
    const stem = word.replace(/(?<=.{4})(?:ations?|ing|ed|es|s|e)$/u, "");
    const number = words[place + 1]?.length === 1 && !COMMON.has(words[place + 1]) ? `(?:[ -]${words[place + 1]})?` : ""; // as in "ROS 2"
    return [stem.length > 3 ? `${stem}[\\p{L}\\p{N}]{0,5}${number}` : `${stem}s?${number}`];
  });
  const pattern = [...new Set(parts)].slice(0, 24).join("|");
  return pattern ? new RegExp(`(?<![\\p{L}\\p{N}_])(?:${pattern})(?![\\p{L}\\p{N}_])`, "giu") : null;
}

/** Put what a pattern finds in an element into `mark`s. */
export function mark(root, pattern) {
  if (!pattern) return;
  const texts = [];
  const walker = document.createTreeWalker(root, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) texts.push(walker.currentNode);
  for (const node of texts) {
    const pieces = [];
    let end = 0;
    for (const found of node.data.matchAll(pattern)) {
      pieces.push(node.data.slice(end, found.index), h("mark", {}, found[0]));
      end = found.index + found[0].length;
    }
    if (end) node.replaceWith(...pieces, node.data.slice(end));
  }
}

/** Choose the blocks to show first: from the one with most of the words on. Says whether there is more before and after. */
export function excerpt(blocks, pattern) {
  const richness = (block) => new Set([...block.text.matchAll(pattern ?? /(?!)/gu)].map(([word]) => word.toLowerCase().slice(0, 4))).size;
  let first = 0;
  let best = -1;
  blocks.forEach((block, place) => {
    const rich = richness(block);
    if (rich > best) [first, best] = [place, rich];
  });
  if (blocks[first - 1]?.kind === "heading") first -= 1;
  let last = first;
  let length = 0;
  while (last < blocks.length && (last === first || length + blocks[last].text.length <= MOST || blocks[last - 1].kind === "heading")) {
    length += blocks[last].text.length;
    last += 1;
  }
  return { shown: blocks.slice(first, last), before: first > 0, after: last < blocks.length };
}
