// Lines of loop IR, LLVM IR and assembly, coloured by their words.
const WORDS = {
  ir: /(#[^\n]*)|("[^"\n]*"|'[^'\n]*')|\b(def|for|in|range|parallel|vectorized|unrolled|thread|if|else|while|with|as|alloc|view|assert|launch_index|barrier|pass)\b|\b(\d[\w.]*)\b/g,
  llvm: /(;[^\n]*)|("[^"\n]*")|\b(define|declare|call|load|store|br|ret|phi|getelementptr|inbounds|add|sub|mul|udiv|sdiv|urem|srem|fadd|fsub|fmul|fdiv|icmp|fcmp|select|alloca|switch|zext|sext|trunc|bitcast|insertelement|extractelement|shufflevector|fence|label|to|and|or|xor|shl|lshr|ashr|tail|unreachable|nsw|nuw)\b|([%@][\w.$]+)|\b(\d[\w.]*)\b/g,
  asm: /((?:;|\/\/|#)[^\n]*)|("[^"\n]*")|(^\s+(?:@!?%\w+ )?[a-z][\w.]*)|(%[\w.]+|\b(?:[vsa](?:\d+\b|\[\d+:\d+\])|vcc(?:_lo|_hi)?|exec(?:_lo|_hi)?|scc|m0)\b)|(\$?-?\b(?:0x[\da-f]+|\d+)\b)/g,
};
const TAGS = { ir: ["i", "q", "b", "u"], llvm: ["i", "q", "b", "s", "u"], asm: ["i", "q", "b", "s", "u"] };
const escaped = t => t.replace(/[&<>]/g, c => ({ "&": "&amp;", "<": "&lt;", ">": "&gt;" })[c]);
function coloured(kind, line) {
  let out = "", at = 0;
  for (const m of line.matchAll(WORDS[kind])) {
    const tag = TAGS[kind][m.slice(1).findIndex(x => x !== undefined)];
    out += escaped(line.slice(at, m.index)) + `<${tag}>${escaped(m[0])}</${tag}>`;
    at = m.index + m[0].length;
  }
  return out + escaped(line.slice(at));
}
