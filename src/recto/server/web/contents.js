// The book's table of contents, shown while there is no question.

import { counted, h } from "./dom.js";
import { notice } from "./notices.js";
import { leads } from "./state.js";

const MANY = 80; // pages, beyond which modules are folded

export function drawContents({ modules, pages }) {
  if (!pages.length) return [notice("The book is empty.", ["Index it with `recto index PATH`, then reload this page."])];
  const passages = modules.reduce((sum, module) => sum + module.chunks, 0);
  const counts = `${counted(passages, "passage")} on ${counted(pages.length, "page")} in ${counted(modules.length, "module")}`;
  const groups = [...Map.groupBy(pages, (page) => page.module)];
  return [
    h("p", { class: "colophon" }, counts),
    h("div", { class: "contents" }, ...groups.map(([module, own]) => chapter(module, own, pages.length > MANY))),
  ];
}

function chapter(module, pages, folded) {
  const listed = h("ol", {}, ...pages.map((page) =>
    h("li", {}, h("a", { ...leads({ page: page.url, anchor: "", passage: null, selection: "" }) }, page.title || page.url))));
  const title = h("h3", {}, module || "Pages");
  return folded ? h("details", {}, h("summary", {}, title, h("span", { class: "count" }, String(pages.length))), listed) : h("section", {}, title, listed);
}
