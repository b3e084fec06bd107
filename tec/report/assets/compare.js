// Two reports beside each other: kernels that compute the same, by their operators and shapes, with both times.
function matched(here, there) {
  const waiting = new Map();
  there.forEach(k => waiting.set(k.key, [...(waiting.get(k.key) || []), k]));
  const rows = here.map(k => ({ name: k.name, a: k, b: waiting.get(k.key)?.shift() || null }));
  for (const rest of waiting.values()) rest.forEach(k => rows.push({ name: k.name, a: null, b: k }));
  return rows;
}
const change = r => (r.a?.us && r.b?.us ? r.a.us / r.b.us : null);
const COMPARED = [
  ["kernel", r => r.name, r => r.name.replace(/_kernel0$/, "")],
  ["here, us", r => r.a?.us ?? null, r => (r.a ? (r.a.us ?? NaN).toFixed(2).replace("NaN", "?") : "not here")],
  ["there, us", r => r.b?.us ?? null, r => (r.b ? (r.b.us ?? NaN).toFixed(2).replace("NaN", "?") : "not there")],
  ["here / there", change, r => (change(r) === null ? "" : change(r).toFixed(2))],
  ["difference, us", r => (r.a?.us || 0) - (r.b?.us || 0), r => ((r.a?.us || 0) - (r.b?.us || 0)).toFixed(2)],
  ["limited, here", r => r.a?.limit || "", r => r.a?.limit || ""],
  ["there", r => r.b?.limit || "", r => r.b?.limit || ""],
  ["VGPR", r => r.a?.vgprs ?? null, r => (r.a?.vgprs != null || r.b?.vgprs != null ? `${r.a?.vgprs ?? "–"} / ${r.b?.vgprs ?? "–"}` : "")],
];
const comparing = { by: "difference, us", down: true };
function drawComparison(other) {
  const rows = matched(data.kernels, other.kernels), sum = list => list.reduce((s, k) => s + (k.us || 0), 0), here = sum(data.kernels), there = sum(other.kernels);
  const only = [rows.filter(r => !r.b).length, rows.filter(r => !r.a).length], both = rows.length - only[0] - only[1];
  $("comparison").hidden = false;
  $("compared").replaceChildren(`there: ${other.title}, ${other.where || "not measured"}. `,
    ...(here && there ? [`In all ${micros(here)} here, ${micros(there)} there: `, el("b", { className: here <= there ? "better" : "worse", textContent: (here / there).toFixed(2) }), ". "] : []),
    `${both} kernels are of both, ${only[0]} only of this, ${only[1]} only of the other.`);
  const again = () => rowsInto($("changes"), COMPARED, rows, comparing, again, (tr, r) => {
    const x = change(r);
    if (x !== null && Math.abs(x - 1) > 0.03) tr.children[3].className = x < 1 ? "better" : "worse";
    if (r.a) tr.onclick = () => choose(r.a.name);
  });
  again();
}
function readReport(text) {
  const found = text.match(/<script type="application\/json" id="data">(.*?)<\/script>/s);
  const other = found && JSON.parse(found[1]);
  if (!other || !other.kernels || !other.graph) throw new Error("not a report of this version");
  return other;
}
function startComparison() {
  $("other").onchange = async e => {
    const file = e.target.files[0];
    if (!file) return;
    try { drawComparison(readReport(await file.text())); $("comparison").scrollIntoView(); } catch (error) { $("comparison").hidden = false; $("compared").textContent = `${file.name}: ${error.message}`; }
    e.target.value = "";
  };
  $("apart").onclick = () => { $("comparison").hidden = true; };
  if (data.against) drawComparison(data.against);
}
