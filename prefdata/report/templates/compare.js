"use strict";
(() => { // words that differ between two texts side by side, marked when they come into view
  const TOKEN = /[\p{Script=Han}\p{Script=Hiragana}\p{Script=Katakana}\p{Script=Thai}\p{Script=Lao}\p{Script=Khmer}\p{Script=Myanmar}]|[\p{L}\p{M}\p{N}_]+(?:['’]\p{L}+)*|\n|[^\S\n]+|[^]/gu;
  const WORD = /[\p{L}\p{N}]/u;
  function mark(box, changes, mine, tag) {
    const here = changes.filter((c) => c[mine] || (!c.added && !c.removed));
    box.replaceChildren(...here.map((c, i) => {
      const text = c.value.join(""), gap = text.trim() === "" && here[i - 1]?.[mine] && here[i + 1]?.[mine]; // a space inside a marked run
      if (!c[mine] && !(gap && !text.includes("\n"))) return text;
      const e = document.createElement(tag);
      e.textContent = text.replace(/\n/g, "↵\n");
      return e;
    }));
  }
  function compare(sides) {
    const [left, right] = sides.querySelectorAll(".text");
    const a = left.textContent, b = right.textContent;
    if (left.querySelector(".more") || right.querySelector(".more") || a === b) return;
    const changes = Diff.diffArrays(a.match(TOKEN) || [], b.match(TOKEN) || [], { timeout: 500 });
    if (!changes) return;
    const words = (c) => c.value.filter((t) => WORD.test(t)).length;
    const same = changes.filter((c) => !c.added && !c.removed).reduce((n, c) => n + 2 * words(c), 0);
    const all = changes.reduce((n, c) => n + words(c) * (c.added || c.removed ? 1 : 2), 0);
    const then = "then" in sides.dataset; // then beside now: gone words struck through, new ones underlined
    if (all && same / all < (then ? 0.12 : 0.5)) return; // two answers are marked where they are alike
    mark(left, changes, "removed", then ? "del" : "ins");
    mark(right, changes, "added", then ? "ins" : "del");
  }
  const seen = new IntersectionObserver((entries) => {
    for (const e of entries) {
      if (!e.isIntersecting) continue;
      seen.unobserve(e.target);
      compare(e.target);
    }
  }, { rootMargin: "300px" });
  document.querySelectorAll(".pair .sides2").forEach((s) => seen.observe(s));
  function open() { // a link to a folded list opens it
    const found = location.hash.startsWith("#compare-") && document.getElementById(location.hash.slice(1));
    if (found && found.tagName === "DETAILS") found.open = true;
  }
  addEventListener("hashchange", open);
  open();
})();
