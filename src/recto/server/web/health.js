// The health view: index, coverage, last evaluation suite, latency, and what to do.

import { announce } from "./announce.js";
import * as api from "./api.js";
import { STATES, heatKey, heatStrip, latencyChart, milliseconds, shareBar } from "./charts.js";
import { byId, counted, day, h } from "./dom.js";
import { inline } from "./markdown.js";
import { problem } from "./notices.js";
import { leads, state } from "./state.js";

const run = api.lane();

export async function show(now, before) {
  const view = byId("health");
  view.hidden = now.view !== "health";
  if (view.hidden) {
    run(async () => undefined);
    return;
  }
  if (before?.view === "health" && before.collection === now.collection && view.hasChildNodes()) return;
  view.setAttribute("aria-busy", "true");
  if (!view.hasChildNodes()) view.append(title("Looking…"));
  try {
    const facts = await run((signal) => api.health(now.collection, signal));
    if (!facts) return;
    view.replaceChildren(...draw(facts));
    announce(verdict(facts));
  } catch (error) {
    if (!(error instanceof api.ApiError)) throw error;
    view.replaceChildren(title(""), problem(error, () => show(state(), null)));
  }
  view.removeAttribute("aria-busy");
  if (before) byId("health-title").focus();
}

const title = (words) => h("header", {}, h("h2", { id: "health-title", tabindex: "-1" }, "Health"), words && h("p", { class: "verdict" }, words));
const part = (name, ...children) => h("section", {}, h("h3", {}, name), ...children);
const facts = (pairs) => h("dl", { class: "facts" }, ...pairs.filter(Boolean).map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value))));

function verdict({ validation, advice, index, coverage: covered, suite: ran }) {
  if (!validation.collection_exists) return "There is no index to search.";
  if (!validation.sample_search_works) return "A sample search finds nothing.";
  const open = [
    ran && ran.passed < ran.total && `${counted(ran.total - ran.passed, "question")} of the last suite failed.`,
    covered && covered.reached < covered.total && `${counted(covered.total - covered.reached, "section")} cannot be found well.`,
    advice.length + (index?.warnings.length ?? 0) > 0 && `${counted(advice.length + (index?.warnings.length ?? 0), "thing")} to do.`,
  ].filter(Boolean);
  return `A sample search works. ${open.join(" ") || "Nothing is missing."}`;
}

function draw(all) {
  const notes = [...(all.index?.warnings ?? []), ...all.advice];
  return [
    title(verdict(all)),
    notes.length > 0 && part("To do", h("ul", { class: "advice" }, ...notes.map((words) => h("li", {}, ...inline(words))))),
    part("Index", indexFacts(all.validation, all.index)),
    part("Coverage", ...coverage(all.coverage)),
    part("Last suite", ...suite(all.suite)),
    part("Latency", ...latency(all.latency)),
  ].filter(Boolean);
}

function indexFacts(validation, index) {
  const yes = (value) => (value ? "yes" : "no");
  return facts([
    ["Collection", index?.collection ?? (state().collection || "default")],
    ["Exists", yes(validation.collection_exists)],
    ["Passages", validation.vector_count.toLocaleString("en")],
    ["Sample search works", yes(validation.sample_search_works)],
    ["Last updated", day(validation.last_updated)],
    index && ["Model", index.model ?? "unknown"],
    index && ["Noise floor", index.noise_floor === null ? "not measured" : index.noise_floor.toFixed(3)],
    index && index.auroc !== null && ["AUROC", index.auroc.toFixed(3)],
    index && ["Generation", h("code", {}, index.generation)],
    index && ["Made with Recto", index.recto_version ?? "unknown"],
  ]);
}

const made = (one) => h("p", { class: "note" }, `${day(one.made_at)}, ${one.current ? "for this index" : "for an older index"}`);

function coverage(one) {
  if (!one) return [h("p", {}, "The coverage was never measured.")];
  const said = `${one.reached} of ${counted(one.total, "section")} are found by their heading and first sentence`;
  const modules = [...Map.groupBy(one.pages, (page) => page.module)];
  return [
    h("p", { class: "figure" }, said), shareBar(one.reached, one.total, said), made(one), heatKey(),
    ...modules.map(([module, pages]) => h("div", { class: "heat-module" }, h("h4", {}, module || "Pages"), h("ul", {}, ...pages.map(coveredPage)))),
  ];
}

function coveredPage(page) {
  const odd = page.sections.filter((section) => section.state !== "reached");
  const lost = odd.filter((section) => section.state === "unreachable");
  const count = `${page.sections.length - lost.length} of ${page.sections.length}`;
  const to = (anchor) => leads({ view: "", page: page.url, anchor, passage: null, selection: "" });
  return h("li", { class: "covered" },
    h("a", to(""), page.title || page.url),
    h("span", { class: "count" }, count),
    heatStrip(page.sections, `${count} sections found`),
    odd.length > 0 && h("details", {}, h("summary", {}, counted(odd.length, "section"), " to look at"),
      h("ul", {}, ...odd.map((section) => h("li", {}, h("a", to(section.anchor), section.title || page.title), `: ${STATES[section.state] ?? section.state}`)))));
}

function suite(one) {
  if (!one) return [h("p", {}, "No evaluation suite was run.")];
  const said = `${one.passed} of ${counted(one.total, "question")} passed`;
  const ask = (query) => leads({ view: "", q: query, modules: [], url: "", page: "", anchor: "", passage: null, selection: "", ask: false, limit: 10 });
  return [
    h("p", { class: "figure" }, `${said} in ${one.name}`), shareBar(one.passed, one.total, said), made(one),
    facts(Object.entries(one.measures).map(([name, value]) => [name, value === null ? "not measured" : value.toFixed(3)])),
    one.failed.length > 0 && h("ul", { class: "failed" }, ...one.failed.map(({ query, reason }) =>
      h("li", {}, h("a", ask(query), query), h("span", { class: "note" }, reason)))),
  ].filter(Boolean);
}

function latency(one) {
  if (!one.requests || !one.recent.length) return [h("p", {}, "No searches since the service started.")];
  const steps = Object.entries(one.steps).filter(([, times]) => times.p50 !== null);
  return [
    latencyChart(one),
    facts([
      ["Searches", one.requests.toLocaleString("en")],
      ["p50", milliseconds(one.p50_ms)],
      ["p95", milliseconds(one.p95_ms)],
      ...steps.map(([name, times]) => [`Step: ${name}`, `p50 ${milliseconds(times.p50)}, p95 ${milliseconds(times.p95)}`]),
    ]),
  ];
}
