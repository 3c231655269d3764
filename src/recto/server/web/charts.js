// SVG charts. Widths are percentages, so that nothing is distorted on a phone; each chart has a text label.

import { h, svg } from "./dom.js";
import { plural } from "./text.js";

const CELL = 12; // pixels
const PITCH = 15;
const CELLS_PER_ROW = 18;
const percent = (share) => `${(Math.min(1, Math.max(0, share)) * 100).toFixed(2)}%`;

/** Draw a score from 0 to 1, with a tick at the noise floor; below it the bar is hollow. */
export function scoreBar(score, noiseFloor) {
  const isWeak = noiseFloor !== null && score < noiseFloor;
  const side = isWeak ? "below" : "above";
  const floor = noiseFloor === null ? "; the noise floor was not measured"
    : `, ${side} the noise floor of ${noiseFloor.toFixed(3)}`;
  const label = `Score ${score.toFixed(3)}${floor}`;
  const tick = { class: "tick", x1: percent(noiseFloor), x2: percent(noiseFloor), y1: 0, y2: 12 };
  return svg("svg", { class: `score-bar${isWeak ? " weak" : ""}`, role: "img", "aria-label": label },
    svg("rect", { class: "track", x: 0, y: 5, width: "100%", height: 2 }),
    svg("rect", { class: "value", x: 0, y: 3.5, width: percent(score), height: 5 }),
    noiseFloor !== null && svg("line", tick));
}

/** Draw how many of how many. */
export function shareBar(part, total, label) {
  return svg("svg", { class: "share-bar", role: "img", "aria-label": label },
    svg("rect", { class: "track", x: 0, y: 2, width: "100%", height: 8 }),
    svg("rect", { class: "value", x: 0, y: 2, width: percent(total ? part / total : 0), height: 8 }));
}

export const STATES = {
  reached: "found by its own heading",
  shadowed: "outranked by another section",
  duplicate: "the same text as another section",
  unreachable: "not found",
};

/** Draw a cell for each section of a page; each state has its own shape. */
export function heatmap(sections, label) {
  const rows = Math.ceil(sections.length / CELLS_PER_ROW);
  const width = Math.min(sections.length, CELLS_PER_ROW) * PITCH;
  const cells = sections.map(({ state, title }, index) =>
    heatmapCell(state, (index % CELLS_PER_ROW) * PITCH, Math.floor(index / CELLS_PER_ROW) * PITCH, title));
  const size = { width, height: rows * PITCH };
  return svg("svg", { class: "heatmap", role: "img", "aria-label": label, ...size }, ...cells);
}

function heatmapCell(state, x = 0, y = 0, title = "") {
  const [left, top, right, bottom] = [x + 3, y + 3, x + CELL - 3, y + CELL - 3];
  const shapes = {
    shadowed: ["sign", `M${x + 1} ${y + CELL - 1}V${y + 1}H${x + CELL - 1}Z`],
    duplicate: ["sign line", `M${left} ${y + 4.5}H${right}M${left} ${y + 7.5}H${right}`],
    unreachable: ["sign line", `M${left} ${top}L${right} ${bottom}M${left} ${bottom}L${right} ${top}`],
  };
  const [name, path] = shapes[state] ?? [];
  return svg("g", { class: `cell ${state}` },
    title && svg("title", {}, `${title}: ${STATES[state] ?? state}`),
    svg("rect", { x: x + 0.5, y: y + 0.5, width: CELL - 1, height: CELL - 1, rx: 1.5 }),
    path && svg("path", { class: name, d: path }));
}

/** Explain the shapes of the heatmap. */
export function heatmapLegend() {
  const items = Object.entries(STATES).map(([state, meaning]) => {
    const icon = svg("svg", { width: CELL, height: CELL, "aria-hidden": "true" }, heatmapCell(state));
    return h("li", {}, icon, ` ${state}: ${meaning}`);
  });
  return h("ul", { class: "legend" }, ...items);
}

/** Draw the latest searches as bars, the newest on the right, with lines at p50 and p95. */
export function latencyChart({ recent, p50_ms: p50, p95_ms: p95 }) {
  const height = 120;
  const top = Math.max(...recent, p95 ?? 0) * 1.1 || 1;
  const y = (value) => height * (1 - value / top);
  const step = 100 / recent.length;
  const bars = recent.map((value, index) => {
    const [x, width] = [`${index * step}%`, `${Math.min(step * 0.7, 3)}%`];
    return svg("rect", { class: "value", x, width, y: y(value), height: height - y(value) });
  });
  const level = (value, name) => value !== null && [
    svg("line", { class: "level", x1: 0, x2: "100%", y1: y(value), y2: y(value) }),
    svg("text", { class: "level-name", x: 2, y: Math.max(10, y(value) - 4) },
      `${name} ${milliseconds(value)}`),
  ];
  const searches = plural(recent.length, "search", "searches");
  const label = `The latest ${searches}: p50 ${milliseconds(p50)}, p95 ${milliseconds(p95)}`;
  return svg("svg", { class: "latency", role: "img", "aria-label": label, height },
    ...bars, level(p95, "p95"), level(p50, "p50"));
}

export function milliseconds(value) {
  if (value === null || value === undefined) return "unknown";
  if (value >= 1000) return `${(value / 1000).toFixed(1)} s`;
  return `${value < 10 ? value.toFixed(1) : Math.round(value)} ms`;
}
