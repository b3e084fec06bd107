// GFLOP/s over FLOP per byte, both logarithmic. A filled dot stands over the bytes that the limiting level of memory gave (memory itself, where none
// limits), so it is under that level's roof by what the level has to spare; a ring, tied to it, stands over the bytes of the arguments.
const roofs = data.roofs;
const power = e => (e >= 0 && e <= 3 ? String(10 ** e) : e >= -3 && e < 0 ? String(Number((10 ** e).toPrecision(1))) : "10" + [...String(e)].map(c => (c === "-" ? "⁻" : "⁰¹²³⁴⁵⁶⁷⁸⁹"[c])).join(""));
const CHARACTER = 7;  // pixels of a character of the drawing's names, at most on the mean
const slopeOf = level => (level === "memory" || level === "" ? roofs.gbps : roofs.levels[level]);

function drawRoofline() {
  const place = $("roofplace"), w = Math.max(260, place.clientWidth);
  if (!roofs.gbps) { place.replaceChildren(el("p", { textContent: "No ceilings are known for this target." })); return; }
  const h = Math.round(Math.min(440, Math.max(300, w * 0.8))), left = 54, right = 18, head = 14, foot = 44;
  const top = Math.max(...Object.values(roofs.peaks));
  const points = data.kernels.filter(k => k.dots).map(k => {
    const ai = k.dots.traffic ?? k.dots.arguments;
    return { k, ai, args: k.dots.arguments, y: k.us ? k.flops / k.us / 1e3 : Math.min(top, ai * roofs.gbps) };
  });
  const log = Math.log10, xs = points.flatMap(p => [p.ai, p.args]), ys = points.map(p => p.y);
  const x0 = Math.floor(log(Math.min(...xs, 0.1))), x1 = Math.ceil(log(Math.max(...xs, 10 * top / roofs.gbps)));
  const y1 = Math.ceil(log(Math.max(top * 1.6, ...ys))), y0 = Math.min(Math.floor(log(Math.min(...ys, top / 100))), y1 - 2);
  const sx = v => left + (log(v) - x0) / (x1 - x0) * (w - left - right), sy = v => head + (y1 - log(v)) / (y1 - y0) * (h - head - foot);
  const g = svg("svg", { id: "roofline", width: w, height: h, viewBox: `0 0 ${w} ${h}`, role: "group", "aria-label": "roofline" });
  const every = Math.ceil((x1 - x0 + 1) * 34 / (w - left));  // labels that do not meet
  for (let e = x0; e <= x1; e++) {
    g.append(svg("line", { class: "grid", x1: sx(10 ** e), x2: sx(10 ** e), y1: head, y2: h - foot }));
    if ((e - x0) % every === 0) g.append(svg("text", { class: "tick", x: sx(10 ** e), y: h - foot + 17, "text-anchor": "middle" }, power(e)));
  }
  for (let e = y0; e <= y1; e++) g.append(svg("line", { class: "grid", x1: left, x2: w - right, y1: sy(10 ** e), y2: sy(10 ** e) }), svg("text", { class: "tick", x: left - 6, y: sy(10 ** e) + 4, "text-anchor": "end" }, power(e)));
  const chosen = byName.get(state.kernel), used = new Set(points.map(p => p.k.dots.level).filter(Boolean));
  drawRoofs(g, { sx, sy, x0, y0, top, w, right, limit: chosen?.limit, levels: Object.keys(roofs.levels).filter(l => used.has(l)) });
  const longest = Math.max(1e-9, ...points.map(p => p.k.us || 0));
  const last = points.filter(p => p.k === chosen), order = [...points.filter(p => p.k !== chosen).sort((a, b) => (b.k.us || 0) - (a.k.us || 0)), ...last];
  for (const p of order) {
    const on = p.k === chosen ? " on" : "", y = sy(Math.max(p.y, 10 ** y0)), r = 4 + 7 * Math.sqrt((p.k.us || 0) / longest);
    if (p.k.dots.traffic !== null) g.append(svg("line", { class: "tie" + on, x1: sx(p.args), x2: sx(p.ai), y1: y, y2: y }), svg("circle", { class: "args" + on, cx: sx(p.args), cy: y, r: 3.5 }));
    const c = svg("circle", { class: "dot" + on, "data-kernel": p.k.name, cx: sx(p.ai), cy: y, r, tabindex: 0 });
    c.append(svg("title", {}, `${p.k.name}\n${rate(p.y)}${p.k.us ? "" : " at most"}, ${number(p.ai)} FLOP per byte of ${p.k.dots.level || "arguments"}${p.k.dots.level ? `, ${number(p.args)} of arguments` : ""}${p.k.limit ? "\nlimited by " + limitText(p.k) : ""}`));
    c.onclick = () => choose(p.k.name);
    c.onkeydown = e => { if (e.key === "Enter") choose(p.k.name); };
    g.append(c);
  }
  g.append(svg("text", { class: "axis", x: (left + w - right) / 2, y: h - 6, "text-anchor": "middle" }, "FLOP per byte"), svg("text", { class: "axis", transform: `translate(13 ${(h - foot) / 2}) rotate(-90)`, "text-anchor": "middle" }, "GFLOP/s"));
  place.replaceChildren(g);
}
function drawRoofs(g, { sx, sy, x0, y0, top, w, right, limit, levels }) {
  // Names along the lines, above them; of lines that lie close together at the uppermost, without rates (which the note has, too).
  const slopes = [...new Set(["memory", ...levels])].map(l => [l, slopeOf(l)]).sort((a, b) => a[1] - b[1]);
  let named = [];
  slopes.forEach(([level, gbps], i) => {
    const low = Math.max(10 ** x0, 10 ** y0 / gbps), knee = top / gbps;
    g.append(svg("path", { class: `roof${level === "memory" ? "" : " level"}${limit === level ? " limits" : ""}`, d: `M${sx(low)} ${sy(low * gbps)}L${sx(knee)} ${sy(top)}` }));
    named.push(level);
    if (slopes[i + 1] && sy(gbps) - sy(slopes[i + 1][1]) < 18) return;
    const angle = Math.atan2(sy(top) - sy(low * gbps), sx(knee) - sx(low)) * 180 / Math.PI, from = 10 ** (Math.log10(low) + 0.08 * Math.log10(knee / low));
    g.append(svg("text", { transform: `translate(${sx(from)} ${sy(from * gbps) - 5}) rotate(${angle})` }, named.length > 1 ? named.join(", ") : `${level} ${number(gbps)} GB/s`));
    named = [];
  });
  const equal = new Map();  // one line for ceilings of the same height
  for (const [name, peak] of Object.entries(roofs.peaks)) equal.set(peak, [...(equal.get(peak) || []), name]);
  const peaks = [...equal].map(([peak, names]) => [names.join(", "), peak]).sort((a, b) => b[1] - a[1]);
  let before = -Infinity;
  for (const [name, peak] of peaks) {
    g.append(svg("path", { class: "roof" + (["matrix", "VALU", "arithmetic"].includes(limit) && name.includes(limit === "VALU" ? "vector" : limit === "matrix" ? "matrix" : "") ? " limits" : ""), d: `M${sx(peak / roofs.gbps)} ${sy(peak)}H${w - right}` }));
    // Above its ceiling; of one under others where that is longer than the ceiling and would lie over memory's roof, below it, in lines.
    const words = [...name.split(", ").map((x, i, all) => x + (i < all.length - 1 ? "," : "")), rate(peak)], room = peak === top ? w : w - right - 4 - sx(peak / roofs.gbps);
    const lines = [words[0]];
    for (const word of words.slice(1)) {
      if (CHARACTER * (lines[lines.length - 1].length + 1 + word.length) < room) lines[lines.length - 1] += " " + word; else lines.push(word);
    }
    const below = lines.length > 1 || sy(peak) - before < 18;
    lines.forEach((line, i) => {
      before = below ? sy(peak) + 14 + 13 * i : sy(peak) - 5;
      g.append(svg("text", { x: w - right - 4, y: before, "text-anchor": "end" }, line));
    });
  }
}
function startRoofline() {
  const none = data.kernels.filter(k => !k.dots).length, modelled = data.kernels.some(k => k.dots?.traffic);
  const used = Object.keys(roofs.levels || {}).filter(l => data.kernels.some(k => k.dots?.level === l)), rates = used.length ? ` (${["memory", ...used].map(l => `${l} ${number(slopeOf(l))}`).join(", ")} GB/s)` : "";
  $("roofnote").textContent = (roofs.source ? `Ceilings: ${roofs.source}${rates}. ` : "") + (timed ? "The area of a dot is its kernel's share of the time. " : "No times were taken: a dot stands where its roof is. ")
    + (modelled ? "Dots: by the bytes of the level that limits, memory's where none does; rings: by the bytes of the arguments. " : "By the bytes of the arguments. ") + (none ? `${none} kernel${none > 1 ? "s" : ""} without arithmetic ${none > 1 ? "are" : "is"} not shown.` : "");
  whenChosen(drawRoofline);
  if (!data.kernels.length) drawRoofline();
  let width = $("roofplace").clientWidth;  // it is drawn when the first kernel is chosen
  new ResizeObserver(() => { if ($("roofplace").clientWidth !== width) { width = $("roofplace").clientWidth; drawRoofline(); } }).observe($("roofplace"));
}
