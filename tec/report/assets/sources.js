// Time by what the model says: its operators, its layers, its nodes. And kernels that leave much of the chip idle.
const BARS = 24;
// A layer of a node's name: up to its first part with a number, or the name without its number.
function layerOf(origin, main) {
  if (!origin) return main || "(no name)";
  const parts = origin.split(/[/.]/).filter(Boolean), n = parts.findIndex(p => /\d/.test(p));
  if (n >= 0 && n < parts.length - 1) { const numbered = /^\d+$/.test(parts[n]) || n > 0 ? n + 1 : 1; return parts.slice(0, numbered).join("."); }
  return parts.length > 1 ? parts.slice(0, -1).join(".") : origin.replace(/[_\d]+$/, "") || origin;
}
const BY = { operator: s => s.main || s.function, fused: s => (ofFunction.get(s.function)?.[0]?.ops || []).join(" → ") || s.function, layer: s => layerOf(s.origin, s.main), node: s => s.origin || s.function };
function drawSources() {
  const by = BY[$("by").value], sums = new Map(), at = line_.begins, unit = timed ? micros : n => `${n} step${n === 1 ? "" : "s"}`;
  data.steps.forEach((s, k) => { const key = by(s), row = sums.get(key) || { key, sum: 0, steps: [] }; row.sum += at[k + 1] - at[k]; row.steps.push(k); sums.set(key, row); });
  const rows = [...sums.values()].sort((a, b) => b.sum - a.sum), most = rows[0]?.sum || 1, all = at.at(-1) || 1, firstNode = nodes.findIndex(n => n.kind === "step");
  $("bars").replaceChildren(...rows.slice(0, BARS).map(r => {
    const longest = r.steps.reduce((a, b) => (at[b + 1] - at[b] > at[a + 1] - at[a] ? b : a));
    const button = el("button", { title: `${r.key}: ${r.steps.length} steps` }, el("span", { className: "key", textContent: r.key }), el("span", { className: "sum", textContent: `${unit(r.sum)}, ${(100 * r.sum / all).toFixed(1)}%` }), el("i", { style: `width:${100 * r.sum / most}%` }));
    button.onclick = () => { chooseNode(firstNode + longest); bring(firstNode + longest); };
    return el("li", {}, button);
  }));
  const rest = rows.slice(BARS);
  $("barsnote").textContent = rest.length ? `${rest.length} more: ${unit(rest.reduce((sum, r) => sum + r.sum, 0))}.` : "";
}
// A kernel whose work-groups leave more than half of the units without one, and what that costs.
function drawIdle() {
  const some = data.units ? data.kernels.filter(k => k.busy !== null && k.busy < 0.5 && k.calls).sort((a, b) => (b.us || 0) * (1 - b.busy) - (a.us || 0) * (1 - a.busy)) : [];
  $("idle").hidden = !some.length;
  if (!some.length) return;
  const us = some.reduce((sum, k) => sum + (k.us || 0), 0);
  const names = some.slice(0, 6).map(k => { const b = el("button", { textContent: `${k.name.replace(/_kernel0$/, "")}: ${k.groups} of ${data.units.units}` }); b.onclick = () => choose(k.name); return b; });
  $("idle").replaceChildren(el("b", { textContent: `${some.length} of ${data.kernels.length} kernels leave more than half of the ${data.units.units} ${data.units.word} without a work-group` }), timed ? ` (${(100 * us / totalUs).toFixed(0)}% of the time): ` : ": ", ...names, some.length > 6 ? ` and ${some.length - 6} more` : "");
}
function startSources() {
  if (data.steps.every(s => !s.origin)) [...$("by").options].filter(o => /layer|node/.test(o.value)).forEach(o => o.remove());
  $("sourcestitle").textContent = timed ? "Time by the model" : "Steps by the model";
  $("by").onchange = drawSources;
  drawSources(); drawIdle();
}
