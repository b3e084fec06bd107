// The steps from top to bottom in the order in which they run. Who reads the step just above is joined straight; every other value has a lane of
// its own at the side, from its maker down to its last reader, with a dot where a reader takes it: lines that cross do not meet.
const BOX = { w: 250, h: 44, step: 60, pad: 16, lane: 9 };
const drawn = { rows: [], at: new Map(), folded: new Set(data.graph.repeats.length && nodes.length > 24 ? data.graph.repeats.keys() : []), scale: 1, boxes: [], links: [] };
const letters = document.createElement("canvas").getContext("2d");
letters.font = "12px system-ui, sans-serif";

function cut(text, width) {
  if (letters.measureText(text).width <= width) return text;
  let n = Math.max(1, Math.floor(text.length * width / letters.measureText(text).width));
  while (n > 1 && letters.measureText(text.slice(0, n) + "…").width > width) n--;
  return text.slice(0, n) + "…";
}

function rowsNow() {
  const rows = [], starts = new Map(data.graph.repeats.map((r, k) => [r.first, k]));
  for (let n = 0; n < nodes.length; n++) {
    const k = starts.get(n);
    if (k !== undefined && drawn.folded.has(k)) {
      const r = data.graph.repeats[k], length = r.period * r.count;
      rows.push({ repeat: k, nodes: Array.from({ length }, (_, i) => n + i) });
      n += length - 1;
    } else rows.push({ repeat: k, nodes: [n] });
  }
  return rows;
}

function layOut() {
  drawn.rows = rowsNow(); drawn.at = new Map();
  drawn.rows.forEach((r, i) => r.nodes.forEach(n => drawn.at.set(n, i)));
  const readers = new Map();
  for (const [a, b] of data.graph.edges) {
    const from = drawn.at.get(a), to = drawn.at.get(b);
    if (from !== to) readers.set(from, (readers.get(from) || new Set()).add(to));
  }
  const ends = [];  // the last row that each lane is used to
  drawn.links = [];
  for (const from of [...readers.keys()].sort((a, b) => a - b)) {
    const to = [...readers.get(from)].sort((a, b) => a - b), side = to.filter(t => t !== from + 1);
    let lane = -1;
    if (side.length) {
      lane = ends.findIndex(e => e < from);
      if (lane < 0) lane = ends.length;
      ends[lane] = side.at(-1);
    }
    drawn.links.push({ from, to, side, lane });
  }
  drawn.width = 2 * BOX.pad + BOX.w + (ends.length ? 14 + ends.length * BOX.lane : 0);
  drawn.height = drawn.rows.length * BOX.step + BOX.pad;
}
const top_ = row => BOX.pad + row * BOX.step;
const laneX = lane => BOX.pad + BOX.w + 14 + lane * BOX.lane;
// A value leaves a box low at its side and enters one high.
const leaves = row => top_(row) + BOX.h - 11, enters = row => top_(row) + 11;
function way(link, to) {
  if (to === link.from + 1) return `M${BOX.pad + BOX.w / 2} ${top_(link.from) + BOX.h}V${top_(to)}`;
  const x = laneX(link.lane), right = BOX.pad + BOX.w;
  return `M${right} ${leaves(link.from)}H${x - 4}q4 0 4 4V${enters(to) - 4}q0 4 -4 4H${right}`;
}

function drawGraph() {
  layOut();
  const graph = $("graph"), lines = svg("g", { class: "lines" }), boxes = svg("g");
  for (const link of drawn.links) {
    for (const to of link.to) {
      lines.append(svg("path", { class: "edge", d: way(link, to), "data-from": link.from, "data-to": to }));
      const side = to !== link.from + 1, x = side ? BOX.pad + BOX.w : BOX.pad + BOX.w / 2, y = side ? enters(to) : top_(to);
      lines.append(svg("path", { class: "edge end", d: side ? `M${x} ${y}l7 -4v8z` : `M${x} ${y}l-4 -7h8z` }));
      if (side && to !== link.side.at(-1)) lines.append(svg("circle", { class: "edge end", cx: laneX(link.lane), cy: enters(to) - 4, r: 2.4 }));
    }
  }
  drawn.boxes = drawn.rows.map((row, i) => { const b = box(row, i); boxes.append(b); return b; });
  graph.replaceChildren(boxes, lines, svg("g", { id: "hot", class: "lines" }));
  $("map").setAttribute("viewBox", `0 0 ${BOX.w + 2 * BOX.pad} ${drawn.height}`);
  scaleTo(drawn.scale); paint(); mark();
  $("fold").hidden = !data.graph.repeats.length;
  $("fold").textContent = drawn.folded.size ? "unfold all" : "fold layers";
}

function words(row) {
  const first = nodes[row.nodes[0]];
  if (row.nodes.length === 1) return [first.title, first.under];
  const r = data.graph.repeats[row.repeat];
  const parts = row.nodes.slice(0, r.period).map(n => nodes[n].title);
  return [`${r.count} × ${r.period === 1 ? parts[0] : r.period + " steps"}`, r.period === 1 ? "▸ unfold" : "▸ " + parts.join(", ")];
}
function box(row, i) {
  const node = row.nodes[0], folded = row.nodes.length > 1, x = BOX.pad, y = top_(i), kind = folded ? "folded" : nodes[node].kind === "step" ? "step" : "port";
  const g = svg("g", { class: `box ${kind}`, tabindex: 0, role: "button", "data-row": i });
  if (kind === "step") { g.dataset.function = functionOf(node); g.dataset.node = node; }
  const [title, under] = words(row), us = row.nodes.reduce((sum, n) => sum + (kind === "port" ? 0 : usOf(n)), 0);
  if (folded) g.append(svg("rect", { x: x + 5, y: y + 5, width: BOX.w, height: BOX.h, rx: 7 }));
  g.append(svg("rect", { x, y, width: BOX.w, height: BOX.h, rx: 7 }));
  const time = us ? micros(us) : "", room = BOX.w - 20;
  g.append(svg("text", { x: x + 10, y: y + 18 }, cut(title, room - (time ? letters.measureText(time).width + 10 : 0))));
  if (time) g.append(svg("text", { class: "small", x: x + BOX.w - 10, y: y + 18, "text-anchor": "end" }, time));
  g.append(svg("text", { class: "small", x: x + 10, y: y + 35 }, cut(under, room - (row.repeat !== undefined && !folded ? 44 : 0))));
  if (row.repeat !== undefined && !folded) {
    const again = svg("text", { class: "small again", x: x + BOX.w - 10, y: y + 35, "text-anchor": "end" }, "▾ fold");
    again.onclick = e => { e.stopPropagation(); toggle(row.repeat); };
    g.append(again);
  }
  g.append(svg("title", {}, `${title}\n${under}${time ? "\n" + time : ""}${kind === "step" && limitOf(node) ? ", limited by " + limitOf(node) : ""}`));
  g.onclick = () => { if (drawn.pulled) return; if (folded) toggle(row.repeat); else if (kind === "step") chooseNode(node); };
  g.onkeydown = e => { if (e.key === "Enter") g.onclick(); };
  return g;
}
function toggle(k) { drawn.folded.has(k) ? drawn.folded.delete(k) : drawn.folded.add(k); drawGraph(); }

// ---- colours

function fill(row) {
  const by = $("colour").value, first = row.nodes[0];
  if (nodes[first].kind !== "step") return "var(--port)";
  if (by === "limit") { const most = row.nodes.reduce((a, b) => (usOf(b) > usOf(a) ? b : a)); return limitColour(limitOf(most)); }
  if (by === "none" || !totalUs) return "var(--step)";
  const us = row.nodes.reduce((sum, n) => sum + usOf(n), 0) / (row.nodes.length > 1 ? data.graph.repeats[row.repeat].count : 1);
  return `color-mix(in oklab, var(--heat) ${Math.round(90 * Math.sqrt(us / drawn.most))}%, var(--step))`;
}
function paint() {
  drawn.most = Math.max(1e-9, ...nodes.map((n, i) => (n.kind === "step" ? usOf(i) : 0)), ...drawn.rows.filter(r => r.nodes.length > 1).map(r => r.nodes.reduce((s, n) => s + usOf(n), 0) / data.graph.repeats[r.repeat].count));
  const small = drawn.rows.map((row, i) => {
    const colour = fill(row);
    drawn.boxes[i].querySelectorAll("rect").forEach(r => { r.style.fill = colour; });
    return svg("rect", { x: BOX.pad, y: top_(i), width: BOX.w, height: BOX.h, style: `fill:${colour}`, "data-row": i });
  });
  $("map").replaceChildren(...small, svg("rect", { class: "window" }));
  const by = $("colour").value, limits = [...new Set(data.kernels.map(k => k.limit))].filter(Boolean);
  const shown = by === "limit" ? limits.map(l => [limitColour(l), l]) : by === "time" && timed ? [["var(--step)", "no time"], ["var(--heat)", "most: " + micros(drawn.most)]] : [];
  $("legend").replaceChildren(...shown.map(([c, t]) => el("span", {}, el("i", { style: `background:${c}` }), t)));
  window_();
}

// ---- what is chosen and found

function mark() {
  const chosen = state.node === null ? null : drawn.at.get(state.node), of = state.kernel && byName.get(state.kernel).function;
  drawn.boxes.forEach((b, i) => {
    const mine = drawn.rows[i].nodes.some(n => functionOf(n) === of), hit = state.hits && drawn.rows[i].nodes.some(n => state.hits.has(n));
    b.classList.toggle("on", i === chosen);
    b.classList.toggle("same", mine && i !== chosen);
    b.classList.toggle("hit", !!hit);
    b.classList.toggle("miss", !!state.hits && !hit);
  });
  const hot = chosen === null ? [] : drawn.links.flatMap(l => l.to.filter(t => l.from === chosen || t === chosen).map(t => svg("path", { class: "hot " + (t === chosen ? "reads" : "feeds"), d: way(l, t) })));
  $("hot").replaceChildren(...hot);
  $("graph").classList.toggle("busy", hot.length > 0);
}
whenChosen(mark);

function bring(node) {
  const row = drawn.rows[drawn.at.get(node)];
  if (row.nodes.length > 1) { drawn.folded.delete(row.repeat); drawGraph(); }
  const s = $("scroll"), y = (top_(drawn.at.get(node)) + BOX.h / 2) * drawn.scale;
  s.scrollTop = y - s.clientHeight / 2;
}

// ---- zoom, pan, map

function scaleTo(scale, at = null) {
  const s = $("scroll"), old = drawn.scale, y = at === null ? s.clientHeight / 2 : at;
  const middle = (s.scrollTop + y) / old;
  drawn.scale = Math.min(2.5, Math.max(0.05, scale));
  const g = $("graph");
  g.setAttribute("viewBox", `0 0 ${drawn.width} ${drawn.height}`);
  g.setAttribute("width", drawn.width * drawn.scale); g.setAttribute("height", drawn.height * drawn.scale);
  g.classList.toggle("far", drawn.scale < 0.999);  // letters below 12 pixels are left out
  s.scrollTop = middle * drawn.scale - y;
  window_();
}
function window_() {
  const w = document.querySelector("#map .window"), s = $("scroll");
  if (!w) return;
  w.setAttribute("x", 0); w.setAttribute("width", BOX.w + 2 * BOX.pad);
  w.setAttribute("y", s.scrollTop / drawn.scale); w.setAttribute("height", Math.min(drawn.height, s.clientHeight / drawn.scale));
}
function startGraph() {
  const s = $("scroll"), map = $("map");
  $("in").onclick = () => scaleTo(drawn.scale * 1.25);
  $("out").onclick = () => scaleTo(drawn.scale / 1.25);
  $("fit").onclick = () => { const whole = Math.min(s.clientHeight / drawn.height, s.clientWidth / drawn.width); scaleTo(drawn.scale === 1 ? Math.min(1, whole) : 1); $("fit").textContent = drawn.scale === 1 ? "whole" : "100%"; };
  $("fold").onclick = () => { drawn.folded = new Set(drawn.folded.size ? [] : data.graph.repeats.keys()); drawGraph(); };
  $("colour").onchange = paint;
  s.addEventListener("scroll", window_);
  s.addEventListener("wheel", e => { if (e.ctrlKey || e.metaKey) { e.preventDefault(); scaleTo(drawn.scale * Math.exp(-e.deltaY / 300), e.clientY - s.getBoundingClientRect().top); } }, { passive: false });
  let from = null;
  s.addEventListener("pointerdown", e => { drawn.pulled = false; if (e.pointerType === "mouse" && e.button === 0) from = [e.clientX + s.scrollLeft, e.clientY + s.scrollTop, e.clientX, e.clientY]; });
  window.addEventListener("pointermove", e => {
    if (!from) return;
    if (Math.hypot(e.clientX - from[2], e.clientY - from[3]) > 4) { drawn.pulled = true; s.classList.add("pulled"); }
    if (drawn.pulled) { s.scrollLeft = from[0] - e.clientX; s.scrollTop = from[1] - e.clientY; }
  });
  window.addEventListener("pointerup", () => { from = null; s.classList.remove("pulled"); setTimeout(() => { drawn.pulled = false; }); });
  const jump = e => { const b = map.getBoundingClientRect(); s.scrollTop = (e.clientY - b.top) / b.height * drawn.height * drawn.scale - s.clientHeight / 2; };
  map.addEventListener("pointerdown", e => { map.setPointerCapture(e.pointerId); jump(e); });
  map.addEventListener("pointermove", e => { if (e.buttons) jump(e); });
  new ResizeObserver(window_).observe(s);
  if (!timed) $("colour").value = "none";
  drawGraph();
}
