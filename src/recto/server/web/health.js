// The health view: index, coverage, last evaluation suite, latency, and what to do.

import * as api from "./api.js";
import { pagesByModule } from "./book.js";
import { STATES, heatmap, heatmapLegend, latencyChart, milliseconds, shareBar } from "./charts.js";
import { byId, h } from "./dom.js";
import { announce, errorNotice } from "./messages.js";
import { NO_PAGE, NO_SEARCH, linkTo, state } from "./state.js";
import { formatDate, plural, withCode } from "./text.js";

const run = api.latestOnly();

export async function show(now, before) {
  const view = byId("health");
  view.hidden = now.view !== "health";
  if (view.hidden) {
    run(async () => undefined);
    return;
  }
  if (before?.view === "health" && before.collection === now.collection && view.hasChildNodes()) return;
  view.setAttribute("aria-busy", "true");
  if (!view.hasChildNodes()) view.append(header("Loading…"));
  try {
    const loaded = await run((signal) => Promise.all([api.health(now.collection, signal), outline(now)]));
    if (!loaded) return;
    const [health, book] = loaded;
    view.replaceChildren(...draw(health, book));
    announce(summary(health));
  } catch (error) {
    if (!(error instanceof api.ApiError)) throw error;
    view.replaceChildren(header(""), errorNotice(error, () => show(state(), null)));
  }
  view.removeAttribute("aria-busy");
  if (before) byId("health-title").focus();
}

/** Return the outline of the book; without it, modules are shown by their names. */
const outline = (now) => api.outline(now.collection).catch(() => ({ modules: [], pages: [] }));

const header = (text) => {
  const title = h("h2", { id: "health-title", tabindex: "-1" }, "Health");
  return h("header", {}, title, text && h("p", { class: "summary" }, text));
};
const section = (title, ...children) => h("section", {}, h("h3", {}, title), ...children);
const facts = (pairs) => {
  const row = ([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value));
  return h("dl", { class: "facts" }, ...pairs.filter(Boolean).map(row));
};

const todo = ({ index, advice }) => [...(index?.warnings ?? []), ...advice];

function summary(health) {
  const { validation, coverage, suite } = health;
  if (!validation.collection_exists) return "There is no index to search.";
  if (!validation.sample_search_works) return "A sample search finds nothing.";
  const failed = suite ? suite.total - suite.passed : 0;
  const unreached = coverage ? coverage.total - coverage.reached : 0;
  const things = todo(health).length;
  const problems = [
    failed > 0 && `${plural(failed, "question")} of the last suite failed.`,
    unreached > 0 && `${plural(unreached, "section")} cannot be found well.`,
    things > 0 && `${plural(things, "thing")} to do.`,
  ].filter(Boolean);
  return `A sample search works. ${problems.join(" ") || "Nothing is missing."}`;
}

function draw(health, book) {
  const advice = todo(health).map((text) => h("li", {}, ...withCode(text)));
  return [
    header(summary(health)),
    advice.length > 0 && section("To do", h("ul", { class: "advice" }, ...advice)),
    section("Index", indexFacts(health.validation, health.index)),
    section("Coverage", ...coverageParts(health.coverage, book)),
    section("Last suite", ...suiteParts(health.suite)),
    health.gaps && section("Gaps", ...gapParts(health.gaps)),
    section("Latency", ...latencyParts(health.latency)),
  ].filter(Boolean);
}

function indexFacts(validation, index) {
  const yes = (value) => (value ? "yes" : "no");
  return facts([
    ["Collection", index?.collection ?? (state().collection || "default")],
    ["Exists", yes(validation.collection_exists)],
    ["Passages", validation.vector_count.toLocaleString("en")],
    ["Sample search works", yes(validation.sample_search_works)],
    ["Last updated", formatDate(validation.last_updated)],
    index && ["Model", index.model ?? "unknown"],
    index && ["Noise floor", index.noise_floor === null ? "not measured" : index.noise_floor.toFixed(3)],
    index && index.auroc !== null && ["AUROC", index.auroc.toFixed(3)],
    index && ["Generation", h("code", {}, index.generation)],
    index && ["Made with Recto", index.recto_version ?? "unknown"],
  ]);
}

function madeAt({ made_at: date, current }) {
  return h("p", { class: "note" }, `${formatDate(date)}, for ${current ? "this" : "an older"} index`);
}

function coverageParts(coverage, { modules, pages: order }) {
  if (!coverage) return [h("p", {}, "The coverage was never measured.")];
  const { reached, total } = coverage;
  const label = `${reached} of ${plural(total, "section")} are found by their heading and first sentence`;
  const places = new Map(order.map(({ url }, place) => [url, place]));
  const place = ({ url }) => places.get(url) ?? places.size;
  const pages = coverage.pages.toSorted((one, other) => place(one) - place(other));
  const lists = pagesByModule({ modules, pages }).map(([module, own]) =>
    h("div", { class: "module-coverage" }, h("h4", {}, module), h("ul", {}, ...own.map(pageCoverage))));
  const head = [h("p", { class: "figure" }, label), shareBar(reached, total, label), madeAt(coverage)];
  return [...head, heatmapLegend(), ...lists];
}

function pageCoverage({ url, title, sections }) {
  const weak = sections.filter((one) => one.state !== "reached");
  const unreachable = weak.filter((one) => one.state === "unreachable");
  const count = `${sections.length - unreachable.length} of ${sections.length}`;
  const link = (anchor, text) => h("a", linkTo({ ...NO_PAGE, view: "", page: url, anchor }), text);
  const items = weak.map((one) =>
    h("li", {}, link(one.anchor, one.title || title), `: ${STATES[one.state] ?? one.state}`));
  const details = h("details", {},
    h("summary", {}, `${plural(weak.length, "section")} to check`), h("ul", {}, ...items));
  return h("li", { class: "page-coverage" },
    link("", title || url),
    h("span", { class: "count" }, count),
    heatmap(sections, `${count} sections found`),
    weak.length > 0 && details);
}

function suiteParts(suite) {
  if (!suite) return [h("p", {}, "No evaluation suite was run.")];
  const label = `${suite.passed} of ${plural(suite.total, "question")} passed`;
  const measures = Object.entries(suite.measures);
  const failed = suite.failed.map(({ query, reason }) =>
    h("li", {}, h("a", linkTo({ ...NO_SEARCH, q: query }), query), h("span", { class: "note" }, reason)));
  return [
    h("p", { class: "figure" }, `${label} in ${suite.name}`),
    shareBar(suite.passed, suite.total, label),
    madeAt(suite),
    facts(measures.map(([name, value]) => [name, value === null ? "not measured" : value.toFixed(3)])),
    failed.length > 0 && h("ul", { class: "failed" }, ...failed),
  ].filter(Boolean);
}

function gapParts(gaps) {
  const label = `${plural(gaps.total, "subject")} that the book does not answer, from ${plural(gaps.queries, "query", "queries")}`;
  const items = gaps.clusters.map((one) => {
    const facts = [
      `asked ${plural(one.count, "time")}`,
      `${Math.round(100 * one.unanswered)} % unanswered`,
      one.below_noise > 0 && `${one.below_noise} below the noise floor`,
      one.no_click !== null && `${one.no_click} without a click`,
      one.unknown_words.length > 0 && `not in the book: ${one.unknown_words.join(", ")}`,
      one.missing_words.length > 0 && `not in the nearest section: ${one.missing_words.join(", ")}`,
    ].filter(Boolean);
    return h("li", {}, h("a", linkTo({ ...NO_SEARCH, q: one.label }), one.label), h("span", { class: "note" }, facts.join("; ")));
  });
  return [h("p", { class: "figure" }, label), madeAt(gaps), items.length > 0 && h("ul", { class: "failed" }, ...items)]
    .filter(Boolean);
}

function latencyParts(latency) {
  if (!latency.recent.length) return [h("p", {}, "No searches since the service started.")];
  const both = ({ p50, p95 }) => `p50 ${milliseconds(p50)}, p95 ${milliseconds(p95)}`;
  const steps = Object.entries(latency.steps).filter(([, times]) => times.p50 !== null);
  return [
    latencyChart(latency),
    facts([
      ["Searches", latency.requests.toLocaleString("en")],
      ["p50", milliseconds(latency.p50_ms)],
      ["p95", milliseconds(latency.p95_ms)],
      ...steps.map(([name, times]) => [`Step: ${name}`, both(times)]),
    ]),
  ];
}
