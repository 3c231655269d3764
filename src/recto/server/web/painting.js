// Paints over the text of a page of the book: a question's words in the passage found, and a selected text where it stands.
// Nothing in the page is changed for it, so a reader can select across what is painted.

/** Paint what a pattern finds within an element, or nothing. */
export function paintWords(element, pattern) {
  const ranges = [];
  for (const node of element && pattern ? texts(element) : []) {
    for (const found of node.data.matchAll(pattern)) ranges.push(range(node, found.index, node, found.index + found[0].length));
  }
  paint("words", ranges);
}

/** Paint a selected text where it stands; returns its place, or null if it is not there. */
export function paintSelected(root, selection) {
  const found = selection ? find(root, selection) : null;
  paint("selected", found ? [found] : []);
  return found;
}

function paint(name, ranges) {
  if (!CSS.highlights) return;
  if (ranges.length) CSS.highlights.set(name, new Highlight(...ranges));
  else CSS.highlights.delete(name);
}

function texts(root) {
  const walker = document.createTreeWalker(root, NodeFilter.SHOW_TEXT, (node) =>
    node.parentElement.closest(".found, .relate") ? NodeFilter.FILTER_REJECT : NodeFilter.FILTER_ACCEPT);
  const found = [];
  while (walker.nextNode()) found.push(walker.currentNode);
  return found;
}

function range(start, from, end, to) {
  const made = new Range();
  made.setStart(start, from);
  made.setEnd(end, to);
  return made;
}

/** Find a text in an element, whatever white space is between its words. */
function find(root, wanted) {
  const places = [];
  let text = "";
  for (const node of texts(root)) {
    for (let at = 0; at < node.length; at += 1) {
      if (/\s/u.test(node.data[at])) continue;
      places.push([node, at]);
      text += node.data[at];
    }
  }
  const bare = wanted.replace(/\s+/gu, "");
  const from = bare ? text.indexOf(bare) : -1;
  if (from < 0) return null;
  const [last, at] = places[from + bare.length - 1];
  return range(...places[from], last, at + 1);
}
