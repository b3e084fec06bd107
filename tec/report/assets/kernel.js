"use strict";
const data = JSON.parse(document.getElementById("data").textContent);
const F = Object.fromEntries(data.fields.map((f, i) => [f, i]));
const $ = id => document.getElementById(id);
const el = (tag, text, cls) => { const e = document.createElement(tag); if (text !== undefined) e.textContent = text; if (cls) e.className = cls; return e; };
const count = n => n >= 1e10 ? (n / 1e9).toFixed(1) + "G" : n >= 1e7 ? (n / 1e6).toFixed(1) + "M" : n >= 1e5 ? (n / 1e3).toFixed(0) + "k" : String(n);
const bytes = n => { for (const u of ["B", "KiB", "MiB", "GiB"]) { if (n < 1024 || u === "GiB") return (u === "B" || n >= 100 ? n.toFixed(0) : n.toFixed(1)) + " " + u; n /= 1024; } };
const us = n => n >= 1000 ? (n / 1000).toPrecision(3) + " ms" : n.toPrecision(3) + " µs";
const rate = g => g >= 1e6 ? (g / 1e6).toPrecision(3) + " P" : g >= 1e3 ? (g / 1e3).toPrecision(3) + " T" : g.toPrecision(3) + " G";
const percent = x => (100 * x).toFixed(x && x < 0.0995 ? 1 : 0) + "%";

data.facts.forEach(([k, v]) => { const d = el("div"); d.append(el("dt", k), el("dd", v)); $("facts").append(d); });

// Time: what each resource is busy for, what waves wait for.
function bars(rows, most, text, marked) {
  const box = el("div", undefined, "bars");
  rows.forEach(([name, value]) => {
    const bar = el("div"), i = el("i", undefined, name === marked ? "limit" : ""); i.style.width = 100 * Math.min(1, value / most) + "%"; bar.append(i);
    box.append(el(name === marked ? "b" : "span", name), bar, el("span", text(value)));
  });
  return box;
}
const time = $("time");
time.append(el("h3", "busy, of " + us(data.time.us) + ", modelled"), bars(data.time.parts, data.time.us, v => us(v), data.time.limit));
if (data.time.waits.length) time.append(el("h3", "of the waves' time, waiting"), bars(data.time.waits, 1, percent));
time.append(el("p", `By the time model of ${data.facts[0][1]}; ${us(data.time.launch_us)} from one launch to the next besides.`, "note"));

// Occupancy: what each resource alone would let in.
const slots = el("table"); slots.append(el("tr"));
["", "", "waves per SIMD"].forEach(t => slots.firstChild.append(el("th", t)));
data.occupancy.rows.forEach(([name, what, waves]) => {
  const tr = el("tr", undefined, name === data.occupancy.limit || (name === "wave slots" && data.occupancy.limit === "waves") ? "limit" : "");
  tr.append(el("td", name), el("td", what), el("td", waves === null ? "" : String(Math.floor(100 * waves) / 100))); slots.append(tr);
});
$("occupancy").append(slots, el("p", `${data.occupancy.waves} of ${data.occupancy.slots} waves; limited by ${data.occupancy.limit === "waves" ? "wave slots" : data.occupancy.limit}.`, "note"));

// Roofline.
function roofline(r, limit) {
  const W = 520, H = 310, L = 46, R = 20, T = 30, B = 34, NS = "http://www.w3.org/2000/svg", svg = document.createElementNS(NS, "svg");
  const add = (tag, attrs, text) => { const e = document.createElementNS(NS, tag); for (const k in attrs) e.setAttribute(k, attrs[k]); if (text) e.textContent = text; svg.append(e); return e; };
  svg.setAttribute("viewBox", `0 0 ${W} ${H}`); svg.setAttribute("role", "img"); svg.setAttribute("aria-label", "roofline");
  const top = Math.max(...Object.values(r.peaks)), xs = r.points.map(p => p[1]), ys = r.points.map(p => p[2]);
  const x0 = Math.floor(Math.log10(Math.min(0.1, ...xs))), x1 = Math.ceil(Math.log10(Math.max(1000, ...xs)));
  const y1 = Math.ceil(Math.log10(top)), y0 = Math.floor(Math.log10(Math.min(top / 1e3, ...ys)));
  const X = v => L + (Math.log10(v) - x0) / (x1 - x0) * (W - L - R), Y = v => H - B - (Math.log10(v) - y0) / (y1 - y0) * (H - T - B);
  for (let k = x0; k <= x1; k++) { add("line", { x1: X(10 ** k), x2: X(10 ** k), y1: T, y2: H - B, class: "grid" }); add("text", { x: X(10 ** k), y: H - B + 14, "text-anchor": "middle", class: "soft" }, String(+(10 ** k).toPrecision(1))); }
  for (let k = y0; k <= y1; k++) { add("line", { x1: L, x2: W - R, y1: Y(10 ** k), y2: Y(10 ** k), class: "grid" }); add("text", { x: L - 5, y: Y(10 ** k) + 4, "text-anchor": "end", class: "soft" }, rate(10 ** k).replace(/\.0+ | /, "")); }
  add("text", { x: (L + W - R) / 2, y: H - 4, "text-anchor": "middle", class: "soft" }, "FLOP per byte"); add("text", { x: 4, y: 11, class: "soft" }, "FLOP/s");
  // Levels whose lines end side by side share a name.
  const names = []; Object.entries(r.levels).sort((a, b) => b[1] - a[1]).forEach(([name, gbps]) => {
    const limits = name === limit ? " limits" : "";
    const from = Math.max(10 ** x0, 10 ** y0 / gbps), to = Math.min(10 ** x1, top / gbps);
    if (from >= to) return;
    add("line", { x1: X(from), y1: Y(from * gbps), x2: X(to), y2: Y(to * gbps), class: "roof" + (name === "memory" ? "" : " level") + limits });
    if (name === "memory") return void add("text", { x: X(from * 6) + 8, y: Y(from * 6 * gbps) + 8, class: "soft" }, name);
    const before = names[names.length - 1];
    if (before && X(to) - before.x < 30) before.node.textContent += ", " + name;
    else names.push({ x: X(to), node: add("text", { x: X(to), y: Y(to * gbps) - 18, "text-anchor": "middle", class: "soft" }, name) });
  });
  const memory = r.levels.memory || Math.min(...Object.values(r.levels));
  let last = -99;
  Object.entries(r.peaks).sort((a, b) => b[1] - a[1]).forEach(([name, peak]) => {
    add("line", { x1: X(Math.min(10 ** x1, peak / memory)), x2: W - R, y1: Y(peak), y2: Y(peak), class: "roof" });
    const y = Math.max(Y(peak) - 5, last + 12); last = y; add("text", { x: W - R, y, "text-anchor": "end", class: "soft" }, name);
  });
  // Points of levels that give the same bytes lie on each other, and share a name, too.
  const groups = [];
  [...r.points].sort((a, b) => a[1] - b[1]).forEach(([name, x, y]) => {
    const large = name === (limit in r.levels ? limit : "memory");
    const c = add("circle", { cx: X(x), cy: Y(y), r: large ? 6 : 4 }); const t = document.createElementNS(NS, "title"); t.textContent = `${name}: ${x.toPrecision(3)} FLOP per byte, ${rate(y)}FLOP/s`; c.append(t);
    const last = groups[groups.length - 1];
    if (last && X(x) - last.x < 12) last.names.push(name); else groups.push({ x: X(x), y: Y(y), names: [name] });
  });
  // Names below and to the right of their points: the roofs are above and to the left.
  let end = -99, down = 0;
  groups.forEach(({ x, y, names }) => {
    const text = names.join(", "), wide = 7 * text.length, from = Math.min(x + 4, W - wide); down = from < end ? (down + 1) % 3 : 0; end = from + wide;
    add("text", { x: from, y: y + 17 + 13 * down, class: "soft halo" }, text);
  });
  return svg;
}
if (data.roofline) {
  const best = Math.min(...data.roofline.points.filter(p => p[0] === "memory").map(p => p[1] * data.roofline.levels.memory), Math.max(...Object.values(data.roofline.peaks))), got = data.roofline.points[0][2];
  $("roofline").append(roofline(data.roofline, data.time.limit), el("p", `${rate(got)}FLOP/s, ${percent(got / best)} of what its bytes of memory allow (${rate(best)}FLOP/s). A point for the bytes of each level. ${data.time.limit in data.roofline.levels ? `Limited by what ${data.time.limit} gives.` : data.time.limit === "latency" ? "No resource is busy for half of the time: waiting limits it." : data.time.limit === "launch" ? "It takes less than a launch." : `Limited by ${data.time.limit}.`}`, "note"));
} else $("roofline").append(el("p", "The kernel does no floating point arithmetic.", "note"));

// Compared with an earlier page.
if (data.against) {
  $("compared").hidden = false;
  const table = $("compared").querySelector("table"), old = data.against, head = el("tr");
  ["", "before", "now", ""].forEach(t => head.append(el("th", t))); table.append(head);
  const sum = (d, f) => d.lines.reduce((s, x) => s + x[F[f]], 0);
  const rows = [["time, modelled", old.time.us, data.time.us, us], ["instructions, by waves", sum(old, "executed"), sum(data, "executed"), count], ["instructions in the code", old.lines.length, data.lines.length, count],
    ["bytes asked for", sum(old, "bytes"), sum(data, "bytes"), bytes], ["bytes of cache lines", sum(old, "line_bytes"), sum(data, "line_bytes"), bytes], ["LDS clocks", sum(old, "lds_clocks"), sum(data, "lds_clocks"), count],
    ["bank conflict clocks", sum(old, "conflict_clocks"), sum(data, "conflict_clocks"), count], ...data.time.parts.map(([n, v]) => ["busy: " + n, new Map(old.time.parts).get(n) || 0, v, us])];
  rows.forEach(([name, a, b, text]) => {
    const tr = el("tr"), change = a ? b / a : 0;
    tr.append(el("td", name), el("td", text(a)), el("td", text(b)), el("td", !a || a === b ? "" : (change < 1 ? "−" : "+") + percent(Math.abs(change - 1)), a === b ? "" : b < a ? "better" : "worse")); table.append(tr);
  });
  const words = new Map(old.facts);
  data.facts.forEach(([k, v]) => { if (k !== "time, modelled" && words.has(k) && words.get(k) !== v) { const tr = el("tr"); tr.append(el("td", k), el("td", words.get(k)), el("td", v), el("td", "")); table.append(tr); } });
  $("compared").querySelector(".note").textContent = "Below, instructions that are new are green, those that are gone are red; a small figure is the one before. Lines pair by their mnemonics.";
}

// Instructions, and the source beside them.
const columns = [["waited", "wait", x => x ? percent(x) : ""], ["executed", "runs", count], ["lanes", "lanes", x => x ? percent(x / data.wave) : ""], ["bytes", "bytes", x => x ? bytes(x) : ""],
  ["line_bytes", "of lines", (x, row) => x ? percent(Math.min(9.99, row[F.bytes] / x)) : ""], ["lds_clocks", "LDS clk", x => x ? count(x) : ""], ["conflict_clocks", "conflicts", x => x ? count(x) : ""]];
const titles = { waited: "share of the waves' time that they wait here, by the time model", executed: "times that a wave runs it", lanes: "mean of lanes that are on", bytes: "bytes that lanes ask for", line_bytes: "bytes asked for, of those of the cache lines touched",
  lds_clocks: "clocks of LDS banks", conflict_clocks: "of them, bank conflicts" };
const shown = columns.filter(([f]) => ["waited", "executed", "lanes"].includes(f) || data.lines.some(r => r[F[f]]));
const most = Math.max(1e-9, ...data.lines.map(r => r[F.waited]));
const body = el("tbody"), asm = el("table"), head = el("tr"), rowsOf = new Map(), ofRow = new Map();
shown.forEach(([f, t]) => { const th = el("th", t); th.title = titles[f]; head.append(th); }); head.append(el("th", "line"), el("th", "instruction", "text"));
const thead = el("thead"); thead.append(head); asm.append(thead, body);
function line(row, before, cls) {
  row[F.labels].forEach(l => { const tr = el("tr", undefined, "label"), td = el("td", l + ":"); td.colSpan = shown.length + 2; tr.append(td); body.append(tr); });
  const tr = el("tr", undefined, "line " + cls + (row[F.executed] ? "" : " never"));
  shown.forEach(([f, , text]) => {
    const td = el("td", text(row[F[f]], row), f === "waited" ? "wait" : row[F[f]] ? "" : "zero");
    if (f === "waited") td.style.setProperty("--s", 100 * row[F.waited] / most);
    if (before && f !== "lanes" && text(before[F[f]], before) !== td.textContent) td.append(el("span", " (" + (text(before[F[f]], before) || "0") + ")", "was"));
    tr.append(td);
  });
  tr.append(el("td", row[F.line], "n"), el("td", row[F.text], "text"));
  if (cls !== "gone") { const w = row[F.where]; ofRow.set(tr, w); if (w) { if (!rowsOf.has(w)) rowsOf.set(w, []); rowsOf.get(w).push(tr); } tr.onclick = () => choose(w, tr); }
  body.append(tr); return tr;
}
const trs = [];
(data.rows || data.lines.map((_, i) => [i, -2])).forEach(([a, b]) => {
  if (a < 0) line(data.against.lines[b], null, "gone");
  else trs[a] = line(data.lines[a], b >= 0 ? data.against.lines[b] : null, b === -1 ? "new" : "");
});
$("asm").append(asm);

const sourceRow = new Map();
data.sources.forEach(s => {
  const table = el("table"); $("source").append(el("h3", s.file + (s.text ? "" : " (not here)")), table);
  const sums = new Map(); data.lines.forEach(r => { if (r[F.where]) { const t = sums.get(r[F.where]) || [0, 0]; t[0] += r[F.waited]; t[1] += r[F.executed]; sums.set(r[F.where], t); } });
  const top = Math.max(1e-9, ...[...sums.values()].map(t => t[0]));
  (s.text || s.lines).forEach((text, i) => {
    const number = s.text ? s.first + i : text, where = s.file + ":" + number, t = sums.get(where), tr = el("tr", undefined, t ? "line" : "");
    const wait = el("td", t && t[0] ? percent(t[0]) : "", "wait"); wait.style.setProperty("--s", t ? 100 * t[0] / top : 0);
    tr.append(wait, el("td", t ? count(t[1]) : "", "n"), el("td", number, "n"), el("td", s.text ? text : "", "text"));
    if (t) { tr.onclick = () => choose(where, null); sourceRow.set(where, tr); }
    table.append(tr);
  });
});
if (!data.sources.length) $("panes").classList.add("alone");
function into(box, row) { const head = box.querySelector("thead"), top = row.offsetTop - (head ? head.offsetHeight : 0); if (top < box.scrollTop || row.offsetTop + row.offsetHeight > box.scrollTop + box.clientHeight) box.scrollTop = Math.max(0, top - box.clientHeight / 3); }
function choose(where, tr) {
  document.querySelectorAll("#panes tr.on, #panes tr.near").forEach(e => e.classList.remove("on", "near"));
  const mine = rowsOf.get(where) || [], source = sourceRow.get(where);
  mine.forEach(e => e.classList.add("near")); if (tr) tr.classList.add("on"); else if (mine[0]) { mine.forEach(e => e.classList.add("on")); into($("asm"), mine[0]); }
  if (source) { source.classList.add("on"); into($("source"), source); }
}
const hot = data.lines.map((r, i) => [r[F.waited], i]).filter(x => x[0] > 0).sort((a, b) => b[0] - a[0]).slice(0, 12); let next = 0;
$("hottest").onclick = () => { const i = hot[next++ % hot.length][1]; into($("asm"), trs[i]); choose(data.lines[i][F.where], trs[i]); };
$("hottest").hidden = !hot.length;
$("hint").textContent = data.sources.length ? "a line of the source marks its instructions, and an instruction its line" : "a build with line tables (-gline-tables-only) has the source beside it";
if (hot.length) { choose(data.lines[hot[0][1]][F.where], trs[hot[0][1]]); into($("asm"), trs[hot[0][1]]); }
