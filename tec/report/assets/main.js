// Search, and the start of all parts.
function search() {
  const words = $("find").value.toLowerCase().split(/\s+/).filter(Boolean);
  if (!words.length) { state.hits = null; $("found").textContent = ""; mark(); drawTable(); return; }
  const has = text => words.every(w => text.toLowerCase().includes(w));
  state.hits = new Set([...nodes.keys()].filter(n => has([nodes[n].title, nodes[n].under, functionOf(n) || ""].join(" "))));
  const functions = new Set([...state.hits].map(functionOf));
  state.hitKernels = new Set(data.kernels.filter(k => functions.has(k.function) || has([k.name, ...k.ops, ...k.origins].join(" "))).map(k => k.name));
  $("found").textContent = `${state.hits.size} step${state.hits.size === 1 ? "" : "s"}`;
  mark(); drawTable();
}
function nextHit(back) {
  const hits = [...(state.hits || [])].sort((a, b) => (a - b) * (back ? -1 : 1));
  if (!hits.length) return;
  const at = state.node ?? (back ? Infinity : -1), next = hits.find(n => (back ? n < at : n > at)) ?? hits[0];
  if (functionOf(next)) chooseNode(next);
  bring(next);
}
$("find").oninput = search;
$("find").onkeydown = e => { if (e.key === "Enter") { e.preventDefault(); nextHit(e.shiftKey); } if (e.key === "Escape") { $("find").value = ""; search(); } };
document.addEventListener("keydown", e => { if (e.key === "/" && !/INPUT|SELECT|TEXTAREA/.test(document.activeElement.tagName)) { e.preventDefault(); $("find").focus(); } });
// Where all stands in one column, what was chosen is further down.
document.querySelectorAll("#graph, #roofplace, #kernels tbody, #timeplace, #bars, #idle").forEach(e => e.addEventListener("click", event => { if (innerWidth <= 1000 && event.target.closest(".step, .dot, tr, .slice, button")) $("detail").scrollIntoView(); }));

pairs($("about"), data.facts);
startGraph(); startTable(); startCode(); startRoofline(); startTimeline(); startSources(); startComparison();
const [wanted, at] = decodeURIComponent(location.hash.slice(1)).split("@");
const first = byName.has(wanted) ? wanted : [...data.kernels].sort((a, b) => (b.us || 0) - (a.us || 0) || b.flops - a.flops)[0]?.name;
choose(first, at !== undefined && functionOf(Number(at)) === byName.get(first)?.function ? Number(at) : null);
