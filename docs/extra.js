// What scrolls sideways is reached by the keyboard (WCAG 2.1.1): code blocks, and the frames that the theme puts around tables.
function reachable() {
  for (const e of document.querySelectorAll(".md-typeset pre > code, .md-typeset__scrollwrap, .plot"))
    if (e.scrollWidth > e.clientWidth) e.tabIndex = 0;
}
addEventListener("load", () => setTimeout(reachable, 0));
addEventListener("resize", reachable);
