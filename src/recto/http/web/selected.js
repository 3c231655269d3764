// Shows a selected text again where it stands, for a reader who comes by a shared link; nothing in the page is changed for it.

const NAME = "selected";

export function showSelected(root, selection) {
  if (!CSS.highlights) return;
  CSS.highlights.delete(NAME);
  const range = selection && find(root, selection);
  if (range) CSS.highlights.set(NAME, new Highlight(range));
}

/** Find a text in an element whatever white space is between its words. */
function find(root, wanted) {
  const walker = document.createTreeWalker(root, NodeFilter.SHOW_TEXT, (node) =>
    node.parentElement.closest(".found, button, .page-head") ? NodeFilter.FILTER_REJECT : NodeFilter.FILTER_ACCEPT);
  const places = [];
  let text = "";
  while (walker.nextNode()) {
    const node = walker.currentNode;
    for (let at = 0; at < node.length; at += 1) {
      if (/\s/u.test(node.data[at])) continue;
      places.push([node, at]);
      text += node.data[at];
    }
  }
  const bare = wanted.replace(/\s+/gu, "");
  const from = bare ? text.indexOf(bare) : -1;
  if (from < 0) return null;
  const range = new Range();
  range.setStart(...places[from]);
  const [node, at] = places[from + bare.length - 1];
  range.setEnd(node, at + 1);
  return range;
}
