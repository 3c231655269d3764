// Charts as SVG. Lengths are shares of the width, so nothing is distorted on a phone or on paper; every chart is also said in words.

import { counted, h, svg } from "./dom.js";

const CELL = 12;
const PITCH = 15;
const PER_LINE = 18;
const share = (value) => `${(Math.min(1, Math.max(0, value)) * 100).toFixed(2)}%`;

/** A cosine similarity on a line from 0 to 1, with a tick at the noise floor; below it the bar is hollow. */
export function scoreBar(cosine, noise) {
  const below = noise !== null && cosine < noise;
  const said = noise === null
    ? `Cosine ${cosine.toFixed(3)}; the noise floor was not measured`
    : `Cosine ${cosine.toFixed(3)}, ${below ? "below" : "above"} the noise floor of ${noise.toFixed(3)}`;
  return svg("svg", { class: `score-bar${below ? " below" : ""}`, role: "img", "aria-label": said },
    svg("rect", { class: "track", x: 0, y: 5, width: "100%", height: 2 }),
    svg("rect", { class: "value", x: 0, y: 3.5, width: share(cosine), height: 5 }),
    noise !== null && svg("line", { class: "tick", x1: share(noise), x2: share(noise), y1: 0, y2: 12 }));
}

/** How many of how many, as a bar. */
export function shareBar(part, whole, said) {
  return svg("svg", { class: "share-bar", role: "img", "aria-label": said },
    svg("rect", { class: "track", x: 0, y: 2, width: "100%", height: 8 }),
    svg("rect", { class: part === whole ? "value" : "value part", x: 0, y: 2, width: share(whole ? part / whole : 0), height: 8 }));
}

export const STATES = {
  reached: "found by its own heading",
  shadowed: "another section comes first",
  duplicate: "the same text stands elsewhere",
  unreachable: "not found",
};

/** One cell for each section of a page; each state has a shape of its own. */
export function heatStrip(sections, said) {
  const lines = Math.ceil(sections.length / PER_LINE);
  const width = Math.min(sections.length, PER_LINE) * PITCH;
  return svg("svg", { class: "heat", role: "img", "aria-label": said, width, height: lines * PITCH },
    ...sections.map((section, place) => heatCell(section.state, (place % PER_LINE) * PITCH, Math.floor(place / PER_LINE) * PITCH, section.title)));
}

export function heatCell(state, x = 0, y = 0, title = "") {
  const [left, top, right, bottom] = [x + 3, y + 3, x + CELL - 3, y + CELL - 3];
  const shapes = {
    shadowed: svg("path", { class: "sign", d: `M${x + 1} ${y + CELL - 1}V${y + 1}H${x + CELL - 1}Z` }),
    duplicate: svg("path", { class: "sign line", d: `M${left} ${y + 4.5}H${right}M${left} ${y + 7.5}H${right}` }),
    unreachable: svg("path", { class: "sign line", d: `M${left} ${top}L${right} ${bottom}M${left} ${bottom}L${right} ${top}` }),
  };
  return svg("g", { class: `cell ${state}` },
    title && svg("title", {}, `${title}: ${STATES[state] ?? state}`),
    svg("rect", { x: x + 0.5, y: y + 0.5, width: CELL - 1, height: CELL - 1, rx: 1.5 }),
    shapes[state]);
}

/** The latest searches as bars, the newest on the right, with lines at the median and the 95th percentile. */
export function latencyChart({ recent, p50_ms: middle, p95_ms: slow }) {
  const height = 120;
  const top = Math.max(...recent, slow ?? 0) * 1.1 || 1;
  const y = (value) => height * (1 - value / top);
  const step = 100 / recent.length;
  const said = `The latest ${counted(recent.length, "search", "searches")}: half took at most ${milliseconds(middle)}, 95 of 100 at most ${milliseconds(slow)}`;
  const line = (value, name) => value !== null && [
    svg("line", { class: "level", x1: 0, x2: "100%", y1: y(value), y2: y(value) }),
    svg("text", { class: "level-name", x: 2, y: Math.max(10, y(value) - 4) }, `${name} ${milliseconds(value)}`),
  ];
  return svg("svg", { class: "latency", role: "img", "aria-label": said, height },
    ...recent.map((value, place) =>
      svg("rect", { class: "value", x: `${place * step}%`, width: `${Math.min(step * 0.7, 3)}%`, y: y(value), height: height - y(value) })),
    ...(line(slow, "95 of 100 within") || []),
    ...(line(middle, "half within") || []));
}

export function milliseconds(value) {
  if (value === null || value === undefined) return "unknown";
  return value >= 1000 ? `${(value / 1000).toFixed(1)} s` : `${value < 10 ? value.toFixed(1) : Math.round(value)} ms`;
}

/** What the shapes of the heat map mean. */
export function heatKey() {
  return h("ul", { class: "key" }, ...Object.entries(STATES).map(([state, words]) =>
    h("li", {}, svg("svg", { width: CELL, height: CELL, "aria-hidden": "true" }, heatCell(state)), ` ${state}: ${words}`)));
}
