// The steps one after the other along time (along their order where no times were taken), and under them what lies where in the working memory.
const TRACKS = { left: 62, right: 12, steps: 34, gap: 26, memory: 150, foot: 22 };
const line_ = { zoom: 1, begins: [] };
const bytesText = n => (n >= 1 << 30 ? number(n / (1 << 30)) + " GiB" : n >= 1 << 20 ? number(n / (1 << 20)) + " MiB" : n >= 1024 ? number(n / 1024) + " KiB" : n + " B");

// Where each step begins, and the end: microseconds, or steps.
function beginsOf() {
  const out = [0];
  data.steps.forEach((s, k) => out.push(out[k] + (timed ? (ofFunction.get(s.function) || []).reduce((sum, o) => sum + (o.us || 0) / Math.max(1, o.calls), 0) : 1)));
  return out;
}
// Round distances between marks.
function roundStep(most, marks) { const raw = most / marks, p = 10 ** Math.floor(Math.log10(raw)); return [1, 2, 5, 10].find(m => m * p >= raw) * p; }

function drawTimeline() {
  const place = $("timeplace"), inner = Math.max(220, place.clientWidth) * line_.zoom, at = line_.begins, end = at[at.length - 1] || 1;
  const { left, right, steps, gap, memory, foot } = TRACKS, m = data.memory, h = steps + gap + (m ? memory + foot : 0);
  const x = v => left + v / end * (inner - left - right);
  const g = svg("svg", { id: "timeline", width: inner, height: h, viewBox: `0 0 ${inner} ${h}`, role: "group", "aria-label": "timeline of the steps" });
  const firstNode = nodes.findIndex(n => n.kind === "step");
  g.append(svg("text", { class: "axis", x: left - 6, y: 21, "text-anchor": "end" }, "steps"));
  data.steps.forEach((s, k) => {
    const all = ofFunction.get(s.function) || [], limit = all[0]?.limit || "";
    const r = svg("rect", { class: "slice", "data-node": firstNode + k, x: x(at[k]), y: 4, width: Math.max(0.6, x(at[k + 1]) - x(at[k]) - 0.3), height: steps - 8 });
    r.style.fill = limitColour(limit);
    r.append(svg("title", {}, `${k}: ${s.function}${s.origin ? "\n" + s.origin : ""}${timed ? "\n" + micros(at[k + 1] - at[k]) : ""}${limit ? ", limited by " + limit : ""}`));
    r.onclick = () => chooseNode(firstNode + k);
    g.append(r);
  });
  const mark = roundStep(end, Math.max(2, inner / 130));
  for (let v = 0; v <= end * 1.0001; v += mark) {
    g.append(svg("line", { class: "grid", x1: x(v), x2: x(v), y1: steps, y2: h - (m ? foot : gap) }), svg("text", { class: "tick", x: x(v), y: steps + 15, "text-anchor": x(v) > inner - 50 ? "end" : "middle" }, timed ? micros(v) : "step " + v));
  }
  if (m) drawMemory(g, m, x, steps + gap, memory, inner);
  place.replaceChildren(g);
  markTimeline();
}
function drawMemory(g, m, x, top, height, inner) {
  const at = line_.begins, y = bytes => top + height - bytes / m.bytes * height, end = at.length - 1;
  const b = TRACKS.left - 6;
  g.append(svg("text", { class: "tick", x: b, y: top + 10, "text-anchor": "end" }, bytesText(m.bytes)), svg("text", { class: "tick", x: b, y: top + height, "text-anchor": "end" }, "0"));
  for (const [name, type, offset, bytes, first, last] of m.blocks) {
    const x0 = x(at[Math.min(first, end)]), x1 = x(at[Math.min(last + 1, end)]);
    const r = svg("rect", { class: "block", x: x0, y: y(offset + bytes), width: Math.max(0.8, x1 - x0), height: Math.max(0.8, y(offset) - y(offset + bytes)) });
    r.append(svg("title", {}, `${name}: ${type}\n${bytesText(bytes)} from byte ${offset.toLocaleString("en")}, steps ${first} to ${last}`));
    g.append(r);
  }
  // What lives at each step, as a line.
  const change = new Map();
  for (const [, , , bytes, first, last] of m.blocks) { change.set(first, (change.get(first) || 0) + bytes); change.set(last + 1, (change.get(last + 1) || 0) - bytes); }
  let now = 0, d = `M${TRACKS.left} ${y(0)}`;
  for (const step of [...change.keys()].sort((a, b) => a - b)) { d += `H${x(at[Math.min(step, end)])}`; now += change.get(step); d += `V${y(now)}`; }
  g.append(svg("path", { class: "live", d: d + `H${inner - TRACKS.right}` }), svg("text", { class: "axis", x: TRACKS.left, y: top + height + 16 }, (inner < 480 ? "" : "working memory: ") + "blocks where they lie; line: bytes in use"));  // a phone has room for the second half
}
function markTimeline() {
  const of = state.kernel && byName.get(state.kernel).function;
  document.querySelectorAll("#timeline .slice").forEach(r => { const n = Number(r.dataset.node); r.classList.toggle("on", n === state.node); r.classList.toggle("same", functionOf(n) === of); });
}
function startTimeline() {
  line_.begins = beginsOf();
  const limits = [...new Set(data.steps.map(s => ofFunction.get(s.function)?.[0]?.limit))].filter(Boolean);
  $("timelegend").replaceChildren(...limits.map(l => el("span", {}, el("i", { style: `background:${limitColour(l)}` }), l)));
  $("timenote").textContent = (timed ? `${data.steps.length} steps, ${micros(line_.begins.at(-1))} of kernels one after the other. ` : "No times were taken: steps are of equal length. ")
    + (data.memory ? `Working memory ${bytesText(data.memory.bytes)}, of which ${bytesText(data.memory.bound)} are in use at once.` : "");
  const to = f => { line_.zoom = Math.min(32, Math.max(1, line_.zoom * f)); drawTimeline(); };
  $("timein").onclick = () => to(2);
  $("timeout").onclick = () => to(0.5);
  let width = $("timeplace").clientWidth;
  new ResizeObserver(() => { if ($("timeplace").clientWidth !== width) { width = $("timeplace").clientWidth; drawTimeline(); } }).observe($("timeplace"));
  whenChosen(markTimeline);
  drawTimeline();
}
