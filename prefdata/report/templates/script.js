"use strict";
(() => {
  const root = document.documentElement, by = (id) => document.getElementById(id);
  root.classList.remove("noscript");

  // -------------------------------------------------------------- theme, print, copy
  const dark = () => (root.dataset.theme || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light")) === "dark";
  const theme = by("theme"), name = () => { theme.textContent = dark() ? "Light theme" : "Dark theme"; };
  theme.addEventListener("click", () => { root.dataset.theme = dark() ? "light" : "dark"; name(); });
  name();
  addEventListener("beforeprint", () => document.querySelectorAll("details:not(.quiet)").forEach((d) => { d.open = true; }));
  by("copy")?.addEventListener("click", async () => {
    const facts = by("facts"), config = facts.querySelector("pre").textContent;
    const lines = [...facts.querySelectorAll("tr")].map((r) => [...r.cells].map((c) => c.textContent).join("\t"));
    facts.querySelectorAll("dt").forEach((t) => lines.push(`${t.textContent}: ${t.nextElementSibling.textContent}`));
    try { await navigator.clipboard.writeText(`${lines.join("\n")}\n\n${config}\n`); by("copy").textContent = "Copied"; }
    catch { getSelection().selectAllChildren(facts); by("copy").textContent = "Selected: press Ctrl+C"; }
  });
  const unfold = () => { // a stage that found nothing, or a word's meaning, may lie folded
    const at = location.hash.startsWith("#rows?") ? null : by(location.hash.slice(1));
    for (let e = at; e; e = e.parentElement) if (e.tagName === "DETAILS") e.open = true;
    if (at) at.scrollIntoView();
  };
  addEventListener("hashchange", unfold);
  if (location.hash) unfold();
  if (!by("data")) return;

  // -------------------------------------------------------------- rows: data and text
  const data = JSON.parse(by("data").textContent), rows = new Map(data.rows.map((r) => [r.row, r]));
  const PAGE = 10, FOLD = 600, TALL = 1400;
  const UNSEEN = /[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\u2800\u3164\ufeff\uffa0\ufff9-\ufffb\u{e0000}-\u{e007f}]|(?<=[\u0000-\u024f])[\u200c\u200d]/gu;
  const TOKEN = /[\p{Script=Han}\p{Script=Hiragana}\p{Script=Katakana}\p{Script=Thai}\p{Script=Lao}\p{Script=Khmer}\p{Script=Myanmar}]|[\p{L}\p{M}\p{N}_]+(?:['’]\p{L}+)*|\n|[^\S\n]+|[^]/gu;
  const count = (n) => n.toLocaleString("en-US");
  const short = (x) => (Number.isInteger(x) ? count(x) : String(Number(x.toPrecision(4))));

  function make(tag, cls, text) {
    const e = document.createElement(tag);
    if (cls) e.className = cls;
    if (text !== undefined) put(e, text);
    return e;
  }
  function put(e, text) { // text nodes only; unseen characters are spelled out
    let at = 0;
    for (const m of text.matchAll(UNSEEN)) {
      if (m.index > at) e.append(text.slice(at, m.index));
      const s = document.createElement("span");
      s.className = "ctl";
      s.textContent = `⟨U+${m[0].codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}⟩`;
      e.append(s);
      at = m.index + m[0].length;
    }
    e.append(text.slice(at));
  }

  // -------------------------------------------------------------- differing words, when a card comes into view
  function compare(a, b) { // [changes, share of words in common]; null when it takes too long
    const changes = Diff.diffArrays(a.match(TOKEN) || [], b.match(TOKEN) || [], { timeout: 500 });
    if (!changes) return null;
    let same = 0, all = 0;
    for (const c of changes) {
      const n = c.value.filter((t) => /[\p{L}\p{N}]/u.test(t)).length;
      all += n * (c.added || c.removed ? 1 : 2);
      if (!c.added && !c.removed) same += 2 * n;
    }
    return [changes, all ? same / all : 1];
  }
  function mark(box, changes, mine, tag) {
    box.replaceChildren();
    const here = changes.filter((c) => c[mine] || (!c.added && !c.removed));
    for (const [i, c] of here.entries()) {
      const text = c.value.join(""), gap = !c[mine] && text.trim() === "" && !text.includes("\n"); // a space inside a marked run
      if (c[mine] || (gap && i && i + 1 < here.length && here[i - 1][mine] && here[i + 1][mine])) box.append(make(tag, "", text.replace(/\n/g, "↵\n")));
      else put(box, text);
    }
  }
  const waiting = new WeakMap();
  const seen = new IntersectionObserver((entries) => {
    for (const e of entries) {
      if (!e.isIntersecting || !waiting.has(e.target)) continue;
      const jobs = waiting.get(e.target);
      waiting.delete(e.target);
      seen.unobserve(e.target);
      jobs.forEach((job) => job());
    }
  }, { rootMargin: "300px" });
  function pairUp(card, left, right, a, b, note) {
    waiting.set(card, [...(waiting.get(card) || []), () => {
      if (!a.trim() || !b.trim()) return;
      if (a === b) { note.textContent = "Identical."; return; }
      const got = compare(a, b);
      if (!got) note.textContent = "Too different to mark.";
      else if (got[1] < 0.12 && a.length + b.length > 300) note.textContent = "The texts share few words, so no differences are marked.";
      else { if (left) mark(left, got[0], "removed", "ins"); mark(right, got[0], "added", "del"); }
    }]);
  }

  // -------------------------------------------------------------- a text that a stage's card cuts
  document.querySelectorAll("button.whole").forEach((b) => b.addEventListener("click", () => {
    const box = b.previousElementSibling, r = rows.get(Number(b.dataset.row)), cut = r.lengths && r.lengths[b.dataset.side];
    box.replaceChildren();
    put(box, r[b.dataset.side]);
    if (cut) box.append(make("span", "more", ` … cut: the text has ${count(cut)} characters`));
    box.tabIndex = -1;
    box.focus();
    b.remove();
  }));

  // -------------------------------------------------------------- a card
  const place = (r) => `${r.pd_id === String(r.row) ? "" : `pd_id ${r.pd_id} · `}${r.file}${r.line === undefined ? "" : `:${r.line}`}${r.columns && r.columns.id ? ` · id ${r.columns.id}` : ""}`;
  // about how many lines a text takes in half a page: wide characters count twice
  const lines = (text) => text.split("\n").reduce((n, l) => n + 1 + Math.floor((l.length + (l.match(/[\u1100-\uffef]/g) || []).length) / 70), 0);
  function block(parent, label, r, side) {
    const text = r[side] || "", cut = r.lengths && r.lengths[side];
    parent.append(make("p", "label", label));
    const box = make("div", "text", text);
    box.dir = "auto";
    if (!text.trim()) box.prepend(make("span", "more", text ? "only white space" : "empty"));
    if (side !== "prompt" && (text.length > TALL || lines(text) > TALL / 70)) {
      box.classList.add("tall");
      box.tabIndex = 0;
      box.setAttribute("role", "group");
      box.setAttribute("aria-label", `${label} of row ${r.row}`);
    }
    if (side === "prompt" && text.length > FOLD) {
      const more = make("button", "fold", `Show all ${count(text.length)} characters`);
      more.type = "button";
      box.replaceChildren();
      put(box, `${text.slice(0, FOLD / 2)} `);
      box.append(make("span", "more", `… ${count(text.length - FOLD)} characters …`));
      put(box, ` ${text.slice(-FOLD / 2)}`); // the last turn of a conversation is the one that is answered
      more.addEventListener("click", () => { box.replaceChildren(); put(box, text); more.remove(); });
      parent.append(box, more);
    } else parent.append(box);
    if (cut) parent.append(make("p", "more", `Cut: the text has ${count(cut)} characters.`));
    return box;
  }
  function sides(parent, r) {
    const grid = make("div", "sides2"), c = make("div"), j = make("div");
    grid.append(c, j);
    parent.append(grid);
    return [block(c, "Chosen", r, "chosen"), block(j, "Rejected", r, "rejected")];
  }
  function card(r, marks) {
    const e = make("article", "card"), head = make("header");
    e.setAttribute("aria-label", `Row ${r.row}`);
    head.append(make("span", "id", `row ${count(r.row)}`), make("span", "muted", place(r)), make("span", `tag ${r.state}`, r.state));
    e.append(head);
    const list = make("ul", "marks"), passed = [];
    for (const m of r.marks || []) {
      const value = m.score === null ? "" : `value ${short(m.score)}${m.limit === null ? "" : `, limit ${short(m.limit)}`}`;
      if (!m.issue) { passed.push(`${m.stage} ${value}`); continue; }
      const li = make("li"), issue = data.issues[m.issue];
      li.append(make("code", "", issue.reason), ` ${m.action}${value && `, ${value}`}`, make("span", "muted", ` · ${issue.title}`));
      list.append(li);
    }
    if (passed.length) list.append(make("li", "muted", `no objection: ${passed.join(" · ")}`));
    if (list.children.length) e.append(list);
    if (r.detail) e.append(make("p", "detail", r.detail));
    if (r.state === "swapped") e.append(make("p", "muted", r.turned ? "Shown as it leaves, with the two sides swapped." : "Shown as read; the swap turns the two sides round."));
    if (r.raw !== undefined) { block(e, "Line as read", r, "raw"); return e; }
    block(e, "Prompt", r, "prompt");
    const [c, j] = sides(e, r), note = make("p", "muted");
    e.append(note);
    if (marks) pairUp(e, c, j, r.chosen || "", r.rejected || "", note);
    const peers = new Set((r.marks || []).map((m) => m.peer).filter((p) => p !== null && rows.has(p)));
    for (const p of [...peers].map((n) => rows.get(n))) {
      const box = make("div", "peer"), line = make("p"), said = make("p", "muted");
      line.append(make("b", "", "Beside "), `row ${count(p.row)} `, make("span", "muted", `${place(p)} `), make("span", `tag ${p.state}`, p.state));
      box.append(line);
      if (["prompt", "chosen", "rejected"].every((side) => (r[side] || "") === (p[side] || ""))) {
        line.append(" has the same three texts.");
        e.append(box);
        continue;
      }
      const prompt = block(box, "Prompt", p, "prompt"), [pc, pj] = sides(box, p);
      box.append(said);
      if (marks) {
        if ((p.prompt || "").length <= FOLD) pairUp(e, null, prompt, r.prompt || "", p.prompt || "", make("i"));
        pairUp(e, null, pc, r.chosen || "", p.chosen || "", make("i"));
        pairUp(e, null, pj, r.rejected || "", p.rejected || "", make("i"));
        said.textContent = "Struck through: words that differ from the same text of the row above.";
      }
      e.append(box);
    }
    const others = Object.entries(r.columns || {}).filter(([k]) => k !== "id");
    if (others.length) {
      const d = make("details"), dl = make("dl", "about");
      d.append(make("summary", "", "Other columns"), dl);
      for (const [k, v] of others) dl.append(make("dt", "", k), make("dd", "", v));
      e.append(d);
    }
    return e;
  }

  const watch = (c) => { if (waiting.has(c)) seen.observe(c); };
  window.prefdata = { data, rows, by, make, count, block, pairUp, card, watch }; // for the spot-check
  if (!by("filters")) return;

  // -------------------------------------------------------------- filter, sort, page; the address keeps them
  const form = by("filters"), KEYS = ["issue", "stage", "action", "group", "text", "sort", "finding", "row", "page"];
  const listed = data.rows.filter((r) => r.listed);
  const hay = new Map(listed.map((r) => [r.row, [r.pd_id, r.prompt, r.chosen, r.rejected, r.raw, r.detail, r.file, ...Object.values(r.columns || {})].join("\n").toLowerCase()]));
  const RANK = ["dropped", "swapped", "flagged", "kept"];
  let state = {};

  const of = (r) => (r.marks || []).filter((m) => (!state.issue || m.issue === state.issue) && (!state.stage || m.stage === state.stage));
  function matches(r) {
    if (state.row) return String(r.row) === state.row;
    if (state.issue && !of(r).length) return false;
    if (state.stage && !of(r).some((m) => m.action !== "keep" || ["high", "low"].includes(state.sort))) return false;
    if (state.action && r.state !== state.action) return false;
    if (state.group && !Object.entries(r.groups || {}).some(([k, v]) => `${k}:${v}` === state.group)) return false;
    if (state.finding && !(r.findings || []).includes(state.finding)) return false;
    return !state.text || hay.get(r.row).includes(state.text.toLowerCase());
  }
  function show() {
    for (const k of ["issue", "stage", "action", "group", "text", "sort"]) if (form.elements[k]) form.elements[k].value = state[k] || "";
    const scored = Boolean(state.issue || state.stage);
    for (const o of form.elements.sort.options) o.disabled = ["high", "low"].includes(o.value) && !scored;
    let found = listed.filter(matches);
    if (!state.sort) found.sort((a, b) => RANK.indexOf(a.state) - RANK.indexOf(b.state) || a.row - b.row);
    else if (state.sort !== "row" && scored) {
      const key = (r) => { const m = of(r).find((x) => x.score !== null); return m ? m.score : null; };
      const sign = state.sort === "high" ? -1 : 1;
      found = found.filter((r) => key(r) !== null).sort((a, b) => sign * (key(a) - key(b)) || a.row - b.row);
    }
    const pages = Math.max(1, Math.ceil(found.length / PAGE)), page = Math.min(Math.max(1, Number(state.page) || 1), pages);
    const part = found.slice((page - 1) * PAGE, page * PAGE), said = by("found");
    said.textContent = found.length
      ? `${count(found.length)} of ${count(listed.length)} rows match, showing ${(page - 1) * PAGE + 1}–${(page - 1) * PAGE + part.length}.`
      : "No row in this page matches.";
    const issue = data.issues[state.issue];
    if (issue && issue.rows > found.length) said.append(` The whole set has ${count(issue.rows)} with this issue.`);
    for (const k of ["row", "finding"]) {
      if (!state[k]) continue;
      const chip = make("button", "chip", `${k} ${state[k]} ✕`);
      chip.type = "button";
      chip.setAttribute("aria-label", `Remove the filter ${k} ${state[k]}`);
      chip.addEventListener("click", () => set({ [k]: "" }));
      said.append(chip);
    }
    by("cards").replaceChildren(...part.map((r) => card(r, form.elements.marks.checked)));
    by("cards").querySelectorAll(".card").forEach((c) => { if (waiting.has(c)) seen.observe(c); });
    by("page").textContent = `Page ${page} of ${pages}`;
    by("prev").disabled = page <= 1;
    by("next").disabled = page >= pages;
    by("pager").hidden = pages < 2;
    state.page = page > 1 ? String(page) : "";
  }
  function set(change, keep) {
    state = { ...state, ...(keep ? {} : { page: "" }), ...change };
    show();
    const query = new URLSearchParams(KEYS.filter((k) => state[k]).map((k) => [k, state[k]])).toString();
    try { history.replaceState(null, "", `#rows${query ? `?${query}` : ""}`); } catch { /* an address that may not be set */ }
  }
  function fromAddress() {
    const got = /^#rows(?:\?(.*))?$/.exec(location.hash);
    if (!got) return false;
    const query = new URLSearchParams(got[1] || "");
    state = Object.fromEntries(KEYS.map((k) => [k, query.get(k) || ""]));
    show();
    return Boolean(got[1]);
  }
  function go() { if (fromAddress()) { by("rows").scrollIntoView(); by("h-rows").focus({ preventScroll: true }); } }
  form.addEventListener("submit", (e) => e.preventDefault());
  form.addEventListener("reset", (e) => { e.preventDefault(); set(Object.fromEntries(KEYS.map((k) => [k, ""]))); });
  form.addEventListener("change", (e) => {
    if (e.target.name === "marks") show();
    else if (e.target.name !== "text") set({ row: "", finding: "", [e.target.name]: e.target.value });
  });
  let pause;
  form.elements.text.addEventListener("input", (e) => {
    clearTimeout(pause);
    pause = setTimeout(() => set({ row: "", text: e.target.value }), 150);
  });
  const turn = (by1) => { set({ page: String((Number(state.page) || 1) + by1) }, true); by("rows").scrollIntoView(); };
  by("prev").addEventListener("click", () => turn(-1));
  by("next").addEventListener("click", () => turn(1));
  addEventListener("hashchange", go);
  show();
  go();
})();
