// The kernels as a table: columns are chosen, rows sorted and filtered by what is searched for. It scrolls; nothing is cut.
const COLUMNS = [
  // title, key to sort by, text, shown at first
  ["kernel", k => k.name, k => k.name.replace(/_kernel0$/, ""), true],
  ["time, us", k => k.us, k => (k.us === null ? "" : k.us.toFixed(2)), true],
  ["share", k => k.us, k => (k.us && totalUs ? (100 * k.us / totalUs).toFixed(1) + "%" : ""), true],
  ["work-groups", k => k.groups, k => (k.groups ?? ""), true],
  ["units busy", k => k.busy, k => (k.busy === null || k.busy === undefined ? "" : k.busy >= 0.01 || !k.busy ? Math.round(100 * k.busy) + "%" : "< 1%"), true],
  ["limited by", k => k.limit, limitText, true],
  ["calls", k => k.calls, k => k.calls, true],
  ["MFLOP", k => k.flops, k => (k.flops / 1e6).toFixed(2), true],
  ["GFLOP/s", k => (k.us ? k.flops / k.us : null), k => (k.us ? (k.flops / k.us / 1e3).toFixed(1) : ""), false],
  ["MB of arguments", k => k.bytes, k => (k.bytes / 1e6).toFixed(3), false],
  ["MB of memory", k => k.traffic.memory ?? null, k => (k.traffic.memory === undefined ? "" : (k.traffic.memory / 1e6).toFixed(3)), false],
  ["VGPR", k => k.vgprs, k => k.vgprs ?? "", false],
  ["LDS", k => k.lds, k => k.lds ?? "", false],
  ["waves", k => k.waves, k => k.waves ?? "", false],
  ["operators", k => k.ops.join(" "), k => k.ops.join(" → "), false],
].filter(([, key]) => data.kernels.some(k => { const v = key(k); return v !== null && v !== undefined && v !== ""; }));
const table = { shown: new Set(COLUMNS.filter(c => c[3]).map(c => c[0])), by: timed ? "time, us" : "MFLOP", down: true };

// Rows of a table that sorts by its heads.
function rowsInto(place, columns, list, sorting, again, rowOf) {
  const head = el("tr");
  columns.forEach(([title]) => {
    const th = el("th", { textContent: title + (sorting.by === title ? (sorting.down ? " ↓" : " ↑") : ""), tabIndex: 0 });
    th.onclick = () => { sorting.down = sorting.by === title ? !sorting.down : true; sorting.by = title; again(); };
    th.onkeydown = e => { if (e.key === "Enter") th.onclick(); };
    head.append(th);
  });
  place.querySelector("thead").replaceChildren(head);
  const key = (columns.find(c => c[0] === sorting.by) || columns[0])[1], sign = sorting.down ? -1 : 1;
  const low = v => (v === null || v === undefined ? -Infinity : v);
  const sorted = [...list].sort((a, b) => { const x = low(key(a)), y = low(key(b)); return (x > y ? 1 : x < y ? -1 : 0) * sign; });
  place.querySelector("tbody").replaceChildren(...sorted.map(item => {
    const tr = el("tr");
    columns.forEach(([title, , text]) => tr.append(el("td", { textContent: text(item), title: title === "kernel" ? item.name : "" })));
    rowOf(tr, item);
    return tr;
  }));
}
function drawTable() {
  const columns = COLUMNS.filter(c => table.shown.has(c[0]));
  const list = state.hits ? data.kernels.filter(k => state.hitKernels.has(k.name)) : data.kernels;
  rowsInto($("kernels"), columns, list, table, drawTable, (tr, k) => {
    tr.dataset.kernel = k.name; tr.tabIndex = 0;
    tr.onclick = () => choose(k.name);
    const place = columns.findIndex(c => c[0] === "units busy");
    if (place >= 0 && k.busy !== null && k.busy < 0.5) { tr.children[place].className = "idle"; tr.children[place].style.setProperty("--busy", `${100 * k.busy}%`); }
    tr.onkeydown = e => { if (e.key === "Enter") choose(k.name); };
  });
  markTable();
}
function markTable() { document.querySelectorAll("#kernels tbody tr").forEach(r => r.classList.toggle("on", r.dataset.kernel === state.kernel)); }
whenChosen(markTable);
function startTable() {
  $("columns").querySelector("div").append(...COLUMNS.slice(1).map(([title]) => {
    const box = el("input", { type: "checkbox", checked: table.shown.has(title) });
    box.onchange = () => { box.checked ? table.shown.add(title) : table.shown.delete(title); drawTable(); };
    return el("label", {}, box, " " + title);
  }));
  document.addEventListener("click", e => { if (!$("columns").contains(e.target)) $("columns").open = false; });
  drawTable();
}
