// The judging page: grade the pooled results of a suite's questions, by keyboard. Each grade is saved at once.

import { byId, externalLink, h, parseHtml, plural } from "./dom.js";
import { markMatches, matchPattern } from "./highlight.js";

const GRADES = ["not relevant", "partly relevant", "relevant"];
const RETRY_MS = 3000;
const TOKEN = "recto-judge-token";

const token = readToken();
const loaded = new Map(); // the questions, as promises, by number
const skipped = new Set(); // candidates
const unsaved = []; // grades that the service has not confirmed, oldest first
let suite = { name: "", file: "", questions: [] };
let number = 0; // of the question
let active = 0; // the position of the candidate
let candidates = [];
let work = Promise.resolve(); // keys are handled one after the other
let saving = null;
let retry = 0;

/** Return the token of the URL, and remove it from there; this tab keeps it for reloads. */
function readToken() {
  const given = location.hash.slice(1);
  try {
    if (given) sessionStorage.setItem(TOKEN, given);
    history.replaceState(null, "", location.pathname);
    return given || sessionStorage.getItem(TOKEN) || "";
  } catch {
    return given; // storage may be forbidden
  }
}

async function call(path, body) {
  const options = { headers: { Authorization: `Bearer ${token}` } };
  if (body) {
    options.method = "POST";
    options.headers["Content-Type"] = "application/json";
    options.body = JSON.stringify(body);
  }
  let response;
  try {
    response = await fetch(path, options);
  } catch {
    throw new Error("The service does not answer. Is `recto judge` still running?");
  }
  if (response.status === 401) throw new Error("Open the address that `recto judge` has printed.");
  const data = await response.json();
  if (!response.ok) throw new Error([data.error, data.hint].filter(Boolean).join(". "));
  return data;
}

function load(question) {
  if (!loaded.has(question)) {
    const loading = call(`judge/questions/${question}`);
    loaded.set(question, loading);
    loading.catch(() => loaded.delete(question));
  }
  return loaded.get(question);
}

/** Show a result of a question, and load the next question. */
async function show(question, position) {
  candidates = (await load(question)).candidates;
  number = question;
  active = Math.min(position, Math.max(0, candidates.length - 1));
  if (question + 1 < suite.questions.length) load(question + 1).catch(() => {});
  byId("summary").hidden = true;
  byId("question").hidden = false;
  draw();
  byId("candidate").focus({ preventScroll: true });
  window.scrollTo(0, 0);
}

function draw() {
  const { query } = suite.questions[number];
  byId("position").textContent = `Question ${number + 1} of ${suite.questions.length}`;
  byId("query").textContent = query;
  byId("candidates").replaceChildren(...candidates.map(listItem));
  byId("candidate").replaceChildren(...(candidates.length ? section(candidates[active]) : empty()));
  for (const button of byId("actions").querySelectorAll("[data-key='0'], [data-key='1'], [data-key='2']")) {
    button.disabled = !candidates.length;
    button.setAttribute("aria-pressed", String(candidates[active]?.grade === Number(button.dataset.key)));
  }
  drawProgress();
}

function drawProgress() {
  const total = suite.questions.reduce((sum, one) => sum + one.total, 0);
  const judged = suite.questions.reduce((sum, one) => sum + one.judged, 0);
  byId("bar").max = Math.max(1, total);
  byId("bar").value = judged;
  byId("counts").textContent = `${judged} judged, ${total - judged} left`;
}

function listItem(candidate, position) {
  const { grade, section: title } = candidate;
  const label = grade === null ? (skipped.has(candidate) ? "skipped" : "not judged") : GRADES[grade];
  const button = h("button", { type: "button", "aria-current": position === active && "true" },
    h("span", { class: "number" }, position + 1),
    h("span", { class: "title" }, title),
    h("span", { class: grade === null ? "grade open" : "grade", "data-grade": grade },
      h("span", { "aria-hidden": "true" }, grade ?? (skipped.has(candidate) ? "–" : "")),
      h("span", { class: "visually-hidden" }, label)));
  button.addEventListener("click", () => enqueue(() => show(number, position)));
  return h("li", {}, button);
}

function section(candidate) {
  const { section: title, headings, module_title: module, url, html, matches, grade } = candidate;
  const above = headings.slice(0, -1);
  const pattern = matchPattern(matches);
  const blocks = parseHtml(html).map(asSmallHeading);
  if (blocks[0]?.className === "small-heading" && blocks[0].textContent === title) blocks.shift();
  for (const block of blocks) markMatches(block, pattern);
  const separator = () => h("span", { class: "separator", "aria-hidden": "true" }, "›");
  return [
    grade !== null && h("span", { class: "state" }, `Judged: ${GRADES[grade]}`),
    h("p", { class: "path" }, module, ...above.flatMap((heading) => [separator(), heading])),
    h("h3", { id: "candidate-title" }, title),
    h("div", { class: "section-text" }, ...blocks),
    h("p", { class: "source" }, externalLink(url, url)),
  ].filter(Boolean);
}

function empty() {
  return [h("h3", { id: "candidate-title" }, "No results"),
    h("p", {}, "No configuration has found anything for this question.")];
}

/** Headings in a section are not headings of this page. */
function asSmallHeading(block) {
  return /^H\d$/u.test(block.tagName) ? h("p", { class: "small-heading" }, ...block.childNodes) : block;
}

function announce(text) {
  byId("live").textContent = text;
}

async function giveGrade(grade) {
  const candidate = candidates[active];
  if (!candidate) return;
  unsaved.push({ question: number, candidate: active, grade, before: candidate.grade });
  setGrade(number, candidate, grade);
  skipped.delete(candidate);
  save();
  announce(`${candidate.section}: ${GRADES[grade]}`);
  await advance();
}

function setGrade(question, candidate, grade) {
  const counts = suite.questions[question];
  counts.judged += Number(grade !== null) - Number(candidate.grade !== null);
  candidate.grade = grade;
}

async function skip() {
  if (candidates.length) skipped.add(candidates[active]);
  await advance();
}

/** Go to the next result that is neither judged nor skipped: in this question first, then in those after it. */
async function advance() {
  const count = suite.questions.length;
  for (let step = 0; step < count; step += 1) {
    const question = (number + step) % count;
    if (suite.questions[question].judged === suite.questions[question].total) continue;
    const open = (await load(question)).candidates
      .map((one, position) => (one.grade === null && !skipped.has(one) ? position : -1))
      .filter((position) => position >= 0);
    const after = step === 0 ? open.find((position) => position > active) : undefined;
    if (open.length) return show(question, after ?? open[0]);
  }
  return showSummary();
}

async function move(step) {
  const position = active + step;
  if (position >= 0 && position < candidates.length) await show(number, position);
}

async function goTo(question) {
  if (question >= suite.questions.length) await showSummary();
  else if (question >= 0) await show(question, 0);
}

async function undo() {
  await save();
  const last = unsaved.pop() ?? await call("judge/undo", {});
  const { candidates: all } = await load(last.question);
  setGrade(last.question, all[last.candidate], "before" in last ? last.before : last.grade);
  if (!unsaved.length) byId("message").replaceChildren();
  announce("The last grade is undone.");
  await show(last.question, last.candidate);
}

/** Send all grades that are not saved; if that fails, say so, keep them, and try again later. */
function save() {
  clearTimeout(retry);
  saving ??= sendAll().finally(() => { saving = null; });
  return saving;
}

async function sendAll() {
  while (unsaved.length) {
    const { question, candidate, grade } = unsaved[0];
    try {
      await call("judge/grades", { question, candidate, grade });
    } catch (error) {
      const kept = `${plural(unsaved.length, "grade")} not saved. This page keeps trying; do not close it.`;
      showError(kept, error.message);
      retry = setTimeout(save, RETRY_MS);
      return;
    }
    unsaved.shift();
    if (!unsaved.length) byId("message").replaceChildren();
  }
}

function showError(title, text) {
  byId("message").replaceChildren(
    h("div", { class: "notice" }, h("p", { class: "notice-title" }, title), h("p", {}, text)));
}

async function showSummary() {
  await save();
  const { configurations } = await call("judge/summary");
  const left = suite.questions.reduce((sum, one) => sum + one.total - one.judged, 0);
  const measures = Object.keys(configurations[0].measures);
  const format = (value) => (value === null ? "–" : value.toFixed(3));
  const back = h("button", { type: "button" }, left ? "Judge the results that are left" : "Back to the questions");
  back.addEventListener("click", () => enqueue(() => resume()));
  byId("summary").replaceChildren(
    h("h2", { id: "summary-title", tabindex: "-1" }, left ? `${plural(left, "result")} left` : "All results are judged"),
    h("p", {}, "The grades are in ", h("code", {}, suite.file), "."),
    h("div", { class: "table", tabindex: "0", role: "group", "aria-label": "Configurations" },
      h("table", {},
        h("caption", {}, "The mean over the questions with grades"),
        h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "Configuration"),
          ...measures.map((measure) => h("th", { scope: "col" }, measure)))),
        h("tbody", {}, ...configurations.map((one) => h("tr", {}, h("th", { scope: "row" }, one.name),
          ...measures.map((measure) => h("td", {}, format(one.measures[measure])))))))),
    h("p", { class: "note" }, "Compare nDCG only where most results are judged: it counts the others as not relevant."),
    h("p", { class: "more" }, back));
  byId("question").hidden = true;
  byId("summary").hidden = false;
  number = suite.questions.length;
  drawProgress();
  byId("summary-title").focus({ preventScroll: true });
  window.scrollTo(0, 0);
}

/** Go to the first result that is not judged, or to the first question. */
async function resume() {
  skipped.clear();
  const open = suite.questions.findIndex((one) => one.judged < one.total);
  if (open < 0) return show(0, 0);
  const position = (await load(open)).candidates.findIndex((one) => one.grade === null);
  return show(open, Math.max(0, position));
}

const KEYS = {
  0: () => giveGrade(0),
  1: () => giveGrade(1),
  2: () => giveGrade(2),
  s: skip,
  u: undo,
  j: () => move(1),
  ArrowDown: () => move(1),
  k: () => move(-1),
  ArrowUp: () => move(-1),
  n: () => goTo(number + 1),
  p: () => goTo(number - 1),
};
const IN_SUMMARY = new Set(["u", "p"]);
const NOT_REPEATED = new Set(["0", "1", "2", "s", "u"]);

/** Do something when everything before it is done. */
function enqueue(action) {
  work = work.then(action).catch((error) => showError("That did not work", error.message));
  return work;
}

function press(key) {
  enqueue(() => {
    if (!suite.questions.length) return undefined; // nothing is loaded
    return byId("summary").hidden || IN_SUMMARY.has(key) ? KEYS[key]() : undefined;
  });
}

document.addEventListener("keydown", (event) => {
  const { key } = event;
  if (event.defaultPrevented || event.isComposing || event.ctrlKey || event.metaKey || event.altKey) return;
  if (document.querySelector("dialog[open]") || !byId("single-keys").checked) return;
  if (key === "?") byId("help").showModal();
  else if (!Object.hasOwn(KEYS, key)) return;
  else if (!(event.repeat && NOT_REPEATED.has(key))) press(key);
  event.preventDefault();
});
byId("help-button").addEventListener("click", () => byId("help").showModal());
byId("actions").addEventListener("click", (event) => {
  const key = event.target.closest("button")?.dataset.key;
  if (key) press(key);
});
window.addEventListener("beforeunload", (event) => {
  if (unsaved.length) event.preventDefault();
});

enqueue(async () => {
  suite = await call("judge/questions");
  byId("suite-name").textContent = suite.name;
  document.title = `${suite.name} · Judge · Recto`;
  drawProgress();
  const isDone = suite.questions.every((one) => one.judged === one.total);
  await (isDone ? showSummary() : resume());
});
