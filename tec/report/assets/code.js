// Loop IR, LLVM IR and assembly. A click on a line marks what it became, and what it came from; beside the assembly of AMD GPUs stand the
// vector registers in use and the share of the waves' time that they wait there.
const pane = kind => document.querySelector(`#codes [data-kind=${kind}] .code`);
const linked = { links: null };

// Sets of lines by line, from each text to each other: assembly <-> LLVM IR <-> loop IR.
function linksOf(k) {
  const up = (list, n) => (list.length ? list[n - 1] || 0 : 0);
  const back = list => { const m = new Map(); list.forEach((to, i) => { if (to) m.set(to, (m.get(to) || []).concat(i + 1)); }); return m; };
  const llvmOfIr = back(k.of_llvm), asmOfLlvm = back(k.of_asm);
  return {
    asm: n => { const l = up(k.of_asm, n); return { llvm: l ? [l] : [], ir: [up(k.of_llvm, l)].filter(Boolean) }; },
    llvm: n => ({ asm: asmOfLlvm.get(n) || [], ir: [up(k.of_llvm, n)].filter(Boolean) }),
    ir: n => { const some = llvmOfIr.get(n) || []; return { llvm: some, asm: some.flatMap(l => asmOfLlvm.get(l) || []).sort((a, b) => a - b) }; },
  };
}
function showLinks(kind, n) {
  makeRest();
  document.querySelectorAll(".code li.on, .code li.near").forEach(l => l.classList.remove("on", "near"));
  const others = linked.links[kind](n), line = (k, i) => pane(k).querySelector("ol")?.children[i - 1];
  line(kind, n)?.classList.add("on");
  for (const [other, lines] of Object.entries(others)) {
    lines.forEach(i => line(other, i)?.classList.add(lines.length > 1 ? "near" : "on"));
    const first = lines[0] && line(other, lines[0]);
    if (first) { const p = pane(other); p.scrollTop += first.getBoundingClientRect().top - p.getBoundingClientRect().top - p.clientHeight / 3; }
  }
}
const LINE = 18;  // pixels of a line of code (page.css)
const AT_ONCE = 400;  // lines that are made in one go: some screens of them, and some ten milliseconds
// The lines that are not made yet: of each pane, what makes the next ones and says whether there are more.
let rest = [];
function makeRest() { rest.forEach(more => { while (more()); }); rest = []; }
function makeMore() {
  rest = rest.filter(more => more());
  if (rest.length) setTimeout(makeMore);
}
// Fills a pane, its first lines at once; returns how far it is to be scrolled.
function fillCode(k, kind) {
  const p = pane(kind), text = k[kind];
  if (!text) { p.textContent = "(none)"; return 0; }
  const ranks = linked.links[kind], live = kind === "asm" && k.live, held = kind === "asm" && k.held, most = Math.max(1, ...(held || []));
  const lines = text.split("\n"), row = (line, i) => {
    const to = ranks(i + 1), any = Object.values(to).some(l => l.length);
    const beside = live ? `<em>${live[i] || ""}</em>${held.length ? (held[i] ? `<em class="stall" style="--s:${Math.round(80 * held[i] / most)}">${(held[i] / 10).toFixed(1)}%</em>` : "<em></em>") : ""}` : "";
    return `<li${any ? ' class="linked"' : ""}><span>${i + 1}</span>${beside}<code>${coloured(kind, line)}</code></li>`;
  };
  const rows = (from, to) => lines.slice(from, to).map((line, i) => row(line, from + i)).join("");
  // It begins where the function does.
  const begin = kind === "ir" ? 0 : lines.findIndex(line => (kind === "llvm" ? /^define /.test(line) : line === k.name + ":" || /\.entry/.test(line)));
  let made = Math.max(0, begin) + AT_ONCE;
  p.innerHTML = "<ol>" + rows(0, made) + "</ol>";
  const list = p.firstChild;
  if (made < lines.length) rest.push(() => { list.insertAdjacentHTML("beforeend", rows(made, made + AT_ONCE)); made += AT_ONCE; return made < lines.length; });
  return Math.max(0, begin * LINE - 4);
}
function drawDetail() {
  const k = byName.get(state.kernel), node = state.node === null ? null : nodes[state.node];
  $("name").textContent = k.name;
  $("ops").textContent = k.ops.join(" → ");
  const origin = node ? data.steps[node.step].origin : "";
  $("from").textContent = (origin ? `this step: ${origin}; ` : "") + (k.origins.length ? "from " + k.origins.join(", ") : "");
  const all = ofFunction.get(k.function);
  $("others").replaceChildren(...(all.length > 1 ? all.map(o => el("button", { textContent: o.name, className: o === k ? "on" : "", onclick: () => choose(o.name, state.node) })) : []));
  pairs($("facts"), [...(k.limit ? [["limited by", limitText(k)]] : []), ...k.facts]);
  $("source").textContent = k.source;
  drawConsidered(k);
  linked.links = linksOf(k);
  rest = [];
  const from = ["ir", "llvm", "asm"].map(kind => [kind, fillCode(k, kind)]);
  from.forEach(([kind, top]) => { pane(kind).scrollTop = top; });  // when all are filled: each asks for the page's layout
  if (rest.length) setTimeout(makeMore);
  const some = [k.of_asm.length || k.of_llvm.length ? "A click on a line shows what it became and what it came from." : "", k.live ? "Beside the assembly: vector registers in use" + (k.held.length ? ", and the share of the waves' time that they wait there." : ".") : ""];
  $("codenote").textContent = some.filter(Boolean).join(" ");
}
// What stood against what was chosen, by the estimates of the templates' sketches.
function drawConsidered(k) {
  const c = k.considered;
  $("choices").hidden = !c;
  if (!c) return;
  $("why").textContent = c.why;
  $("considered").querySelector("tbody").replaceChildren(...c.rows.map(r => el("tr", { className: r.chosen ? "on" : "" },
    ...[r.template, r.us === null ? "?" : r.us.toFixed(2), r.limit, r.choice, r.chosen ? "chosen" : r.refused ? "refused at " + r.refused : ""].map(t => el("td", { textContent: t, title: t })))));
}
function startCode() {
  document.querySelectorAll("#codes .code").forEach(p => p.addEventListener("click", e => {
    const li = e.target.closest("li");
    if (li && !getSelection().toString()) showLinks(p.parentNode.dataset.kind, [...li.parentNode.children].indexOf(li) + 1);
  }));
  document.querySelectorAll("#codes button").forEach(b => { b.onclick = () => {
    const codes = $("codes"), mine = b.closest("div"), wide = codes.classList.toggle("wide");
    codes.querySelectorAll(":scope > div").forEach(d => d.classList.toggle("hidden", wide && d !== mine));
    b.textContent = wide ? "side by side" : "widen";
  }; });
  whenChosen(drawDetail);
}
