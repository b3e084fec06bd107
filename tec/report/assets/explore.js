// The explorer: what is typed is asked of the server when typing pauses; one question is under way at a time, and the last text wins.
"use strict";
const data = JSON.parse(document.getElementById("data").textContent), $ = id => document.getElementById(id);
const el = (tag, given = {}, ...children) => { const e = document.createElement(tag); for (const [k, v] of Object.entries(given)) k in e ? (e[k] = v) : e.setAttribute(k, v); e.append(...children); return e; };
const KINDS = [["ir", "loop IR"], ["llvm", "LLVM IR"], ["asm", "assembly"]];
const shown = { answer: null, part: 0, kind: "ir", side: innerWidth > 1300, error: 0, marked: [] };
const token = new URLSearchParams(location.search).get("token");

// ---- the program

function drawLines() {
  const n = $("code").value.split("\n").length;
  $("lines").replaceChildren(...Array.from({ length: n }, (_, i) => el("span", { textContent: i + 1, className: i + 1 === shown.error ? "bad" : shown.marked.includes(i + 1) ? "on" : "" })));
  $("lines").scrollTop = $("code").scrollTop;
}
function lineAt() { return $("code").value.slice(0, $("code").selectionStart).split("\n").length; }
function goTo(line) {
  const lines = $("code").value.split("\n"), from = lines.slice(0, line - 1).reduce((n, l) => n + l.length + 1, 0);
  $("code").focus(); $("code").setSelectionRange(from, from + (lines[line - 1] || "").length);
}
function drawError(e) {
  shown.error = e ? e.line : 0;
  $("error").hidden = !e;
  if (e) $("error").replaceChildren(...(e.line ? [el("button", { textContent: "line " + e.line, onclick: () => goTo(e.line) })] : []), e.message + (e.hint ? "\nhint: " + e.hint : ""));
  document.body.classList.toggle("stale", !!e);
  drawLines();
}

// ---- questions

let waiting = null, busy = false, again = false;
const target = () => $("other").value.trim() || $("target").value;
function soon() { shown.marked = []; drawLines(); if (!data.live) return; clearTimeout(waiting); waiting = setTimeout(ask, 350); $("status").textContent = "…"; }
async function ask() {
  if (!data.live) { const said = data.answers[target()]; if (said) take(said); return; }
  if (busy) { again = true; return; }
  busy = true; $("status").textContent = "compiling …";
  let said;
  try {
    const got = await fetch("explain", { method: "POST", headers: { "content-type": "application/json", "x-tec-token": token }, body: JSON.stringify({ code: $("code").value, target: target() }) });
    said = await got.json();
  } catch (error) { said = { error: { message: "the server does not answer: " + error.message, hint: "is tec explore still running?", line: 0 }, printed: "" }; }
  busy = false;
  if (again) { again = false; ask(); return; }
  take(said);
}
function take(said) {
  $("status").textContent = said.error ? (shown.answer ? data.live ? "not compiled; the right side is of the text before" : "not compiled for this target; the right side is of the one before" : "not compiled") : data.live ? `compiled in ${said.seconds.toFixed(2)} s` : "";
  $("printed").hidden = !said.printed; $("printed").textContent = said.printed || "";
  drawError(said.error);
  if (!said.answer) return;
  shown.answer = said.answer; shown.part = Math.min(shown.part, said.answer.parts.length - 1);
  drawAnswer();
}

// ---- the answer

const pairs = (list, rows) => list.replaceChildren(...rows.map(([n, v]) => el("div", {}, el("dt", { textContent: n }), el("dd", { textContent: v }))));
function drawAnswer() {
  const a = shown.answer, part = a.parts[shown.part], e = a.estimate, m = a.model;
  pairs($("times"), [
    ...(m && m.text ? [[`time, by the model of the ${a.machine}`, m.text]] : []),
    ...(m && m.text ? [] : e ? [[`estimate of its loops${a.machine ? ", " + a.machine : ""}`, `${e.text}, limited by ${e.limit}${e.guessed ? " (trips are guessed)" : ""}`]] : [["estimate", "sizes are not known"]]),
    ["compiled for", a.target],
  ]);
  const bar = ([n, x]) => el("div", { className: "row" }, el("span", { textContent: n }), el("i", { style: `width:${100 * Math.min(1, x)}%` }), el("span", { textContent: Math.round(100 * x) + "%" }));
  $("model").replaceChildren(...(m && m.why ? [el("p", { className: "note", textContent: "no modelled time: " + m.why })] : []),
    ...(m && m.busy && m.busy.length ? [el("p", { className: "note", textContent: "busy, of the time" }), ...m.busy.map(bar)] : []), ...(m && m.waits && m.waits.length ? [el("p", { className: "note", textContent: "waves wait, of their time" }), ...m.waits.map(bar)] : []));
  pairs($("facts"), [...(e && m && m.text ? [["estimate from the loops alone", `${e.text}, ${e.limit}`]] : []), ...a.footprint, ...part.facts]);
  $("nest").innerHTML = a.nest; $("threads").innerHTML = a.threads;
  $("choosers").replaceChildren(...(a.parts.length > 1 ? a.parts.map((p, i) => el("button", { textContent: p.name, onclick: () => { shown.part = i; drawAnswer(); } })) : []));
  drawCodes(part);
}
function drawCodes(part) {
  const panes = document.querySelector(".panes");
  document.querySelector(".tabs").replaceChildren(...KINDS.map(([kind, title]) => el("button", { role: "tab", textContent: title, id: "tab-" + kind, "aria-selected": String(shown.side || kind === shown.kind), onclick: () => { shown.kind = kind; shown.side = false; drawCodes(part); } })),
    el("button", { textContent: "side by side", role: "tab", "aria-selected": String(shown.side), onclick: () => { shown.side = !shown.side; drawCodes(part); } }));
  $("codes").classList.toggle("side", shown.side);
  panes.replaceChildren(...KINDS.map(([kind, title]) => {
    const box = el("div", { className: "code" + (kind === shown.kind ? " shown" : ""), tabindex: 0, role: "group", "aria-label": title });
    box.dataset.kind = kind;
    box.innerHTML = "<ol>" + part[kind].split("\n").map((line, i) => `<li class="linked"><span>${i + 1}</span><code>${coloured(kind, line)}</code></li>`).join("") + "</ol>";
    box.onclick = event => { const li = event.target.closest("li"); if (li && !getSelection().toString()) mark(kind, [...li.parentNode.children].indexOf(li) + 1); };
    return box;
  }));
}

// ---- lines that belong together: program <-> loop IR <-> LLVM IR <-> assembly

const CHAIN = ["code", "ir", "llvm", "asm"];
function mark(kind, n) {
  const part = shown.answer.parts[shown.part], of = { ir: part.of_ir, llvm: part.of_llvm, asm: part.of_asm };
  const sets = { [kind]: new Set([n]) };
  for (let k = CHAIN.indexOf(kind); k > 0; k--) sets[CHAIN[k - 1]] = new Set([...sets[CHAIN[k]]].map(i => of[CHAIN[k]][i - 1]).filter(Boolean));
  for (let k = CHAIN.indexOf(kind); k < 3; k++) { const next = CHAIN[k + 1], mine = sets[CHAIN[k]]; sets[next] = new Set(of[next].map((to, i) => (mine.has(to) ? i + 1 : 0)).filter(Boolean)); }
  document.querySelectorAll(".code li.on, .code li.near").forEach(l => l.classList.remove("on", "near"));
  for (const k of CHAIN.slice(1)) {
    const box = document.querySelector(`.code[data-kind=${k}]`), lines = [...sets[k]], list = box.querySelector("ol").children;
    lines.forEach(i => list[i - 1]?.classList.add(k === kind || lines.length === 1 ? "on" : "near"));
    const first = k !== kind && lines.length && list[Math.min(...lines) - 1];
    if (first) box.scrollTop += first.getBoundingClientRect().top - box.getBoundingClientRect().top - box.clientHeight / 3;
  }
  shown.marked = [...sets.code]; drawLines();
}

// ---- start

$("code").value = data.code;
$("target").replaceChildren(...data.targets.map(t => el("option", { value: t.text, textContent: t.name })));
if (data.targets.some(t => t.text === data.target)) $("target").value = data.target; else $("other").value = data.target;
$("otherbox").hidden = !data.live; $("code").readOnly = !data.live;
$("target").onchange = () => { $("other").value = ""; ask(); };
$("other").onchange = () => ask();
$("code").oninput = soon;
$("code").onscroll = () => { $("lines").scrollTop = $("code").scrollTop; };
$("code").onclick = () => { if (shown.answer && !document.body.classList.contains("stale")) mark("code", lineAt()); };
$("code").onkeydown = e => { if (e.key === "Enter" && (e.ctrlKey || e.metaKey)) { e.preventDefault(); clearTimeout(waiting); ask(); } };
drawLines(); ask();
