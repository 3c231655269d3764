// Put the dialog, the button for selected text and the side panel into the page.

import { RectoClient } from "../client.js";
import { h } from "../dom.js";
import { makeDialog } from "./dialog.js";
import { makePanel } from "./panel.js";
import { editionOf } from "./results.js";
import { textsFor, translator } from "./strings.js";
import { sheet } from "./style.js";

/** Return the functions that the loader calls. */
export async function mount({ root, options }) {
  const context = {
    t: translator(options.strings, await textsFor(document.documentElement.lang)),
    client: new RectoClient(options),
    rewrite: options.rewrite,
    prefer: () => editionOf(options),
    root,
  };
  root.adoptedStyleSheets = [...root.adoptedStyleSheets, sheet()];
  const panel = makePanel(context);
  const dialog = makeDialog(context, (selection) => panel.open(selection));
  const relatedButton = makeRelatedButton(context.t, panel);
  root.append(relatedButton.element, panel.element, dialog.element);
  return {
    openSearch(query, selection) {
      relatedButton.hide();
      dialog.open(query, options.related ? selection : "");
    },
    offerRelated(text) {
      if (text) relatedButton.show(text);
      else relatedButton.hide();
    },
  };
}

/** The button below the selected text; it keeps the selection when it is pressed. */
function makeRelatedButton(t, panel) {
  const element = h("button", { type: "button", class: "related", hidden: true }, t("related"));
  let text = "";
  const hide = () => {
    element.hidden = true;
  };
  element.addEventListener("pointerdown", (event) => event.preventDefault());
  element.addEventListener("click", () => {
    hide();
    panel.open(text);
  });
  const show = (selected) => {
    text = selected;
    element.hidden = false;
    place(element, endOfSelection());
  };
  return { element, show, hide };
}

/** Return the rectangle of the last selected line. */
function endOfSelection() {
  const range = document.getSelection().getRangeAt(0);
  return [...range.getClientRects()].findLast(({ width }) => width > 0) ?? range.getBoundingClientRect();
}

/** Put an element below a rectangle, within the window. */
function place(element, { left, right, bottom }) {
  const { clientWidth, clientHeight } = document.documentElement;
  const { width, height } = element.getBoundingClientRect();
  const isRtl = getComputedStyle(element).direction === "rtl";
  const x = Math.max(8, Math.min((isRtl ? left : right - width), clientWidth - width - 8));
  const y = Math.max(8, Math.min(bottom + 8, clientHeight - height - 8));
  element.style.setProperty("left", `${x + scrollX}px`);
  element.style.setProperty("top", `${y + scrollY}px`);
}
