"use strict";
// What the page shows, what is chosen, and small helpers. All parts are redrawn from here.
const data = JSON.parse(document.getElementById("data").textContent);
const $ = id => document.getElementById(id);
const byName = new Map(data.kernels.map(k => [k.name, k]));
const ofFunction = new Map();
for (const k of data.kernels) ofFunction.set(k.function, [...(ofFunction.get(k.function) || []), k]);
const totalUs = data.kernels.reduce((sum, k) => sum + (k.us || 0), 0);
const timed = data.kernels.some(k => k.us !== null);

// `node`: the chosen step among the graph's nodes, null where a kernel was chosen from a table or the roofline; `kernel`: its name.
const state = { node: null, kernel: null, hits: null };
const watchers = [];
const whenChosen = f => watchers.push(f);

function el(tag, given = {}, ...children) {
  const e = document.createElement(tag);
  for (const [k, v] of Object.entries(given)) k in e ? (e[k] = v) : e.setAttribute(k, v);
  e.append(...children);
  return e;
}
function svg(tag, given = {}, text = "") {
  const e = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [k, v] of Object.entries(given)) e.setAttribute(k, v);
  if (text !== "") e.textContent = text;
  return e;
}
function pairs(list, rows) { list.replaceChildren(...rows.map(([n, v]) => el("div", {}, el("dt", { textContent: n }), el("dd", { textContent: v })))); }

// ---- steps

const nodes = data.graph.nodes;
const functionOf = node => (nodes[node].kind === "step" ? data.steps[nodes[node].step].function : null);
const kernelsOf = node => ofFunction.get(functionOf(node)) || [];
const usOf = node => kernelsOf(node).reduce((sum, k) => sum + (k.us || 0) / Math.max(1, k.calls), 0);
const limitOf = node => kernelsOf(node).reduce((best, k) => (!best || (k.us || 0) > (best.us || 0) ? k : best), null)?.limit || "";

function choose(kernel, node = null) {
  if (!byName.has(kernel)) return;
  state.kernel = kernel; state.node = node;
  watchers.forEach(f => f());
  history.replaceState(null, "", "#" + encodeURIComponent(kernel) + (node === null ? "" : "@" + node));
}
function chooseNode(node) { const k = kernelsOf(node)[0]; if (k) choose(k.name, node); }

// ---- words

const number = (x, digits = 3) => Number(x.toPrecision(digits)).toLocaleString("en", { maximumFractionDigits: 3 });
const micros = us => (us >= 1000 ? number(us / 1000) + " ms" : number(us) + " us");
const rate = gflops => (gflops >= 1000 ? number(gflops / 1000) + " TFLOP/s" : number(gflops) + " GFLOP/s");
const limitText = k => (k.limit ? k.limit + (k.share === null || k.share === undefined ? "" : ` ${Math.round(100 * k.share)}%`) : "");
// One colour for each thing that limits, the same in every picture; hues a golden angle apart, so that neighbours differ.
const LIMITS = ["memory", "MALL", "L2", "L1", "caches", "LDS", "matrix", "VALU", "arithmetic", "scalar", "latency", "launch", "neither", "data"];
const limitColour = limit => { const k = LIMITS.indexOf(limit); return k < 0 ? "var(--step)" : `color-mix(in oklab, hsl(${(k * 137.5 + 215) % 360} 70% 55%) 50%, var(--step))`; };
