(() => { // the spot-check: one pair at a time, verdicts in this browser, exported as files
  "use strict";
  const page = window.prefdata;
  if (!page || !page.by("judge")) return;
  const { data, rows, by, make, count, block, pairUp, card, watch } = page, sheet = data.sheet, sealed = Boolean(data.sealed);
  const DAYS = /^[\d:.TZ+-]{10,35}$/, COLUMNS = ["sheet", "row", "pd_id", "key", "mode", "verdict", "reviewer", "note", "time"];
  const ASKED = {
    open: [["accept", "a", "Yes, accept"], ["reject", "r", "No, reject"], ["unsure", "u", "Unsure"]],
    blind: [["left", "1", "Left"], ["right", "2", "Right"], ["same", "0", "Same"], ["both_bad", "b", "Both bad"]],
  };
  const SAID = { accept: "accepted", reject: "rejected", unsure: "unsure", left: "left is better", right: "right is better", same: "the same", both_bad: "both bad" };
  const inSheet = new Map(sheet.rows.map((r) => [r.row, r]));
  const group = (r) => (sheet.strata ? sheet.strata[r.stratum] : null), dropped = (r) => !sealed && group(r).state === "dropped";
  let mode = sealed ? "blind" : "open", pile = "", at = 0, name = "", given = {};

  // -------------------------------------------------------------- kept in this browser, by sheet and reviewer
  const LAST = "prefdata.reviewer", slot = () => `prefdata.verdicts.${sheet.id}.${sealed ? "blind." : ""}${name}`; // a blind page knows too little to keep open verdicts
  function trouble(text) { by("sc-trouble").hidden = !text; by("sc-trouble").textContent = text; }
  function read(key) {
    try { return localStorage.getItem(key); } catch { trouble("This browser keeps nothing for this page. Export your verdicts before you leave it."); return null; }
  }
  function write(key, value) {
    try { localStorage.setItem(key, value); } catch { trouble("This browser has no room for your verdicts. Export them before you leave the page."); }
  }
  function sound(v) { // a verdict as this page writes it, of this sheet
    const r = v && typeof v === "object" ? inSheet.get(v.row) : undefined;
    if (!r || v.sheet !== sheet.id || v.key !== r.key || !ASKED[v.mode] || (sealed && v.mode !== "blind")) return null;
    if (v.verdict !== null && !ASKED[v.mode].some(([word]) => word === v.verdict)) return null;
    return { verdict: v.verdict, mode: v.mode, note: String(v.note || "").slice(0, 2000), time: DAYS.test(v.time) ? v.time : "" };
  }
  const line = (row, v) => ({ sheet: sheet.id, row, pd_id: inSheet.get(row).pd_id, key: inSheet.get(row).key, mode: v.mode, verdict: v.verdict, reviewer: name, note: v.note, time: v.time });
  function stored() {
    const out = {};
    try {
      for (const v of JSON.parse(read(slot()) || "[]")) { const got = sound(v); if (got) out[v.row] = got; }
    } catch { /* not ours: begin anew */ }
    return out;
  }
  function keep(row, change) { // another tab may have judged other rows meanwhile
    if (name) given = { ...given, ...stored() };
    const before = given[row] || { verdict: null, mode, note: "", time: "" };
    given[row] = { ...before, ...change, time: new Date().toISOString().replace(/\.\d+/, "") };
    save();
  }
  const save = () => { if (name) write(slot(), JSON.stringify(sheet.rows.filter((r) => given[r.row]).map((r) => line(r.row, given[r.row])))); };
  const judged = (r) => Boolean(given[r.row] && given[r.row].verdict);
  function called(next) { // what was typed before a name was given becomes theirs
    const loose = name ? {} : given;
    name = next.trim();
    by("sc-name").value = name;
    write(LAST, name);
    given = name ? { ...loose, ...stored() } : {};
    if (Object.keys(loose).length) save();
  }

  // -------------------------------------------------------------- what was found so far
  function decided(r) { // true: good, false: bad, null: no answer
    const v = given[r.row] && given[r.row].verdict;
    if (v === "accept" || v === "reject") return v === "accept";
    if (v === "both_bad") return false;
    return v === "left" || v === "right" ? (v === "left") === (r.left === "chosen") : null;
  }
  const percent = (x) => `${(100 * x).toFixed(1)} %`;
  function share(hits, n) { // with its Wilson 95 % interval
    if (!n) return "–";
    const z = 1.959963984540054, p = hits / n, mid = (p + z * z / (2 * n)) / (1 + z * z / n);
    const half = z * Math.sqrt(p * (1 - p) / n + z * z / (4 * n * n)) / (1 + z * z / n);
    return `${count(hits)} of ${count(n)} = ${percent(p)} (95 % interval ${(100 * Math.max(0, mid - half)).toFixed(1)}–${percent(Math.min(1, mid + half))})`;
  }
  function tell() {
    const done = sheet.rows.filter(judged).length, here = by("sc-tally");
    here.textContent = `${count(done)} of ${count(sheet.rows.length)} pairs judged${name ? ` by ${name}` : ""}. `;
    if (sealed) return;
    const own = sheet.rows.filter((r) => r.base && decided(r) !== null), bad = own.filter((r) => !decided(r)).length;
    if (mode === "blind") { here.append("What you found is shown when the labels are."); return blank(); }
    here.append(own.length ? "Rejected in the sample: " : "The rejected share of the sample stands here once you have judged some.");
    const open = sheet.rows.filter((r) => r.base && judged(r)).length - own.length;
    if (own.length) here.append(make("b", "", share(bad, own.length)), open ? `, ${count(open)} unsure left out.` : ".");
    const FOUND = { kept: ["rejected", false], flagged: ["bad, as the flag says", false], swapped: ["rightly swapped", true], dropped: ["rightly dropped", true] };
    lines((g, all, cells) => {
      const [what, good] = FOUND[g.state], sure = all.filter((r) => decided(r) !== null);
      cells[0].textContent = count(all.filter(judged).length);
      cells[1].textContent = sure.length ? `${what}: ${share(sure.filter((r) => decided(r) === good).length, sure.length)}` : "–";
    });
  }
  const shown = sealed ? [] : sheet.strata.map((g, i) => [g, i]).filter(([g]) => g.base || g.extra);
  function lines(fill) {
    [...by("sc-groups").tBodies[0].rows].forEach((tr, k) => fill(shown[k][0], sheet.rows.filter((r) => r.stratum === shown[k][1]), [...tr.cells].slice(-2)));
  }
  const blank = () => lines((g, all, cells) => cells.forEach((c) => { c.textContent = "–"; }));

  // -------------------------------------------------------------- the pair
  const askable = () => sheet.rows.filter((r) => (mode === "open" ? pile === "" || r.stratum === Number(pile) : !dropped(r)));
  const other = (s) => (s === "chosen" ? "rejected" : s === "rejected" ? "chosen" : s);
  function turned(r) { // a swapped pair as it leaves
    if (r.state !== "swapped") return r;
    const lengths = Object.fromEntries(Object.entries(r.lengths || {}).map(([k, v]) => [other(k), v]));
    return { ...r, chosen: r.rejected, rejected: r.chosen, lengths, turned: true };
  }
  function unlabelled(s) { // only the texts, on the sides that the sheet says
    const r = rows.get(s.row);
    if (sealed) return r;
    const t = turned(r), cut = t.lengths || {}, right = other(s.left);
    return { row: r.row, prompt: r.prompt, left: t[s.left], right: t[right], lengths: { prompt: cut.prompt, left: cut[s.left], right: cut[right] } };
  }
  function blindCard(s) {
    const e = make("article", "card"), head = make("header"), r = unlabelled(s);
    e.setAttribute("aria-label", `Row ${s.row}`);
    head.append(make("span", "id", `row ${count(s.row)}`));
    e.append(head);
    block(e, "Prompt", r, "prompt");
    const grid = make("div", "sides2"), l = make("div"), j = make("div"), note = make("p", "muted");
    grid.append(l, j);
    e.append(grid, note);
    const left = block(l, "Left", r, "left"), right = block(j, "Right", r, "right");
    if (by("sc-marks").checked) pairUp(e, left, right, r.left || "", r.right || "", note);
    return e;
  }
  function buttons(s, v) { // the same ones as long as they will do: one may have the focus
    const box = by("sc-buttons"), kind = s ? `${mode} ${dropped(s)}` : "";
    if (box.dataset.kind !== kind) {
      box.dataset.kind = kind;
      box.replaceChildren(...(s ? ASKED[mode] : []).map(([word, key, text]) => {
        const b = make("button", "", `${dropped(s) && word === "reject" ? "No, it should stay" : text} `);
        b.type = "button";
        b.append(make("kbd", "", key));
        b.dataset.verdict = word;
        b.setAttribute("aria-keyshortcuts", key);
        b.addEventListener("click", () => judge(word));
        return b;
      }));
    }
    for (const b of box.children) b.setAttribute("aria-pressed", String(Boolean(v && v.mode === mode && v.verdict === b.dataset.verdict)));
  }
  function show() {
    const list = askable(), s = list[at], box = by("sc-card"), v = s && given[s.row];
    box.classList.toggle("hide", mode === "blind");
    tell();
    for (const id of ["sc-prev", "sc-next", "sc-open"]) by(id).disabled = !s;
    by("sc-at").textContent = s ? `${count(at + 1)} of ${count(list.length)}` : "";
    by("sc-note").value = v ? v.note : "";
    by("sc-note").disabled = !s;
    buttons(s, v);
    by("sc-question").textContent = "";
    if (!s) { box.replaceChildren(make("p", "muted", "No pair to judge here.")); return; }
    const made = mode === "blind" ? blindCard(s) : card(turned(rows.get(s.row)), by("sc-marks").checked);
    box.replaceChildren(made);
    watch(made);
    by("sc-prev").disabled = at === 0;
    by("sc-next").disabled = at + 1 >= list.length;
    by("sc-question").textContent = mode === "blind" ? "Which answer is better?"
      : dropped(s) ? "Was it right to drop this pair?" : "Is the chosen answer really the better one, and the pair fit to train on?";
    if (v && v.verdict && v.mode !== mode) by("sc-question").append(make("span", "muted", ` (judged ${v.mode}: ${SAID[v.verdict]})`));
  }
  function go(to, said) {
    const list = askable(), box = by("sc-card"), inside = by("judge").contains(document.activeElement);
    at = Math.max(0, Math.min(list.length - 1, to));
    show();
    if (inside && (document.activeElement === document.body || document.activeElement.disabled)) box.focus({ preventScroll: true });
    const top = box.getBoundingClientRect().top;
    if (top < 0 || top > innerHeight / 2) box.scrollIntoView();
    by("sc-said").textContent = said || (list.length ? `Row ${count(list[at].row)}, pair ${count(at + 1)} of ${count(list.length)}.` : "");
  }
  function unjudged() { // the next one after this, else the first from the start; -1 where all are judged
    const list = askable(), later = list.findIndex((r, i) => i > at && !judged(r));
    return later >= 0 ? later : list.findIndex((r) => !judged(r));
  }
  const first = () => Math.max(0, askable().findIndex((r) => !judged(r)));
  function judge(word) {
    const s = askable()[at];
    if (!s) return;
    if (!name) called(by("sc-name").value);
    if (!name) { by("sc-said").textContent = "Give your name first: verdicts are kept under it."; by("sc-name").focus(); return; }
    keep(s.row, { verdict: word, mode });
    const next = unjudged(), what = `Row ${count(s.row)}: ${SAID[word]}.`;
    if (next < 0) go(at, `${what} All pairs here are judged: export your verdicts.`);
    else go(next, `${what} Now row ${count(askable()[next].row)}.`);
  }

  // -------------------------------------------------------------- files
  function save_as(text, kind, type) {
    const a = make("a"), url = URL.createObjectURL(new Blob([text], { type }));
    a.href = url;
    a.download = `verdicts-${sheet.id}-${name.replace(/[^\p{L}\p{N}_-]+/gu, "_") || "nobody"}.${kind}`;
    a.click();
    setTimeout(() => URL.revokeObjectURL(url), 10000);
  }
  function export_as(kind) {
    const out = sheet.rows.filter(judged).map((r) => line(r.row, given[r.row]));
    if (!out.length) { by("sc-said").textContent = "Nothing to export yet: no pair is judged."; return; }
    if (kind === "jsonl") save_as(out.map((v) => `${JSON.stringify(v)}\n`).join(""), kind, "application/jsonl");
    else { // no cell is a formula to a spreadsheet
      const cell = (x) => `"${String(x).replace(/^[=+\-@\t\r]/, "'$&").replace(/"/g, '""')}"`;
      save_as(`\ufeff${[COLUMNS, ...out.map((v) => COLUMNS.map((c) => v[c]))].map((c) => c.map(cell).join(",")).join("\r\n")}\r\n`, kind, "text/csv");
    }
    by("sc-said").textContent = `Exported ${count(out.length)} verdict${out.length === 1 ? "" : "s"}.`;
  }
  async function load(file) {
    let found;
    try { found = (await file.text()).replace(/^\ufeff/, "").split("\n").filter((l) => l.trim()).map((l) => JSON.parse(l)); }
    catch { return "This is not a JSONL file of verdicts: choose one that this page exported."; }
    if (!found.length || found.some((v) => !v || typeof v !== "object")) return "There are no verdicts in this file.";
    if (found.some((v) => v.sheet !== sheet.id)) return `This file is of another sheet, not of ${sheet.id}. Nothing was loaded.`;
    const people = [...new Set(found.map((v) => v.reviewer))];
    if (people.length > 1 || typeof people[0] !== "string" || !people[0].trim() || people[0].length > 80) return "The file must hold the verdicts of one person. Nothing was loaded.";
    if (people[0] !== name) called(people[0]);
    let taken = 0;
    for (const v of found) {
      const got = sound(v);
      if (!got || !got.verdict) continue;
      taken += 1;
      if (!given[v.row] || !given[v.row].verdict || given[v.row].time <= got.time) given[v.row] = got;
    }
    save();
    at = first();
    show();
    return `Loaded ${count(taken)} verdict${taken === 1 ? "" : "s"} of ${name}${taken < found.length ? `; ${count(found.length - taken)} do not fit this sheet` : ""}.`;
  }

  // -------------------------------------------------------------- controls
  by("judge").addEventListener("keydown", (e) => {
    const into = e.target.matches("input, select, textarea");
    if (into && e.key === "Escape") { by("sc-card").focus(); return; }
    if (into || e.ctrlKey || e.altKey || e.metaKey || e.isComposing) return;
    const hit = ASKED[mode].find(([, key]) => key === e.key.toLowerCase());
    if (hit && !e.repeat) judge(hit[0]);
    else if (e.key.toLowerCase() === "n") by("sc-note").focus();
    else if (e.key === "ArrowLeft") go(at - 1);
    else if (e.key === "ArrowRight") go(at + 1);
    else return;
    e.preventDefault();
  });
  by("sc-name").addEventListener("change", (e) => { called(e.target.value); show(); }); // the pair stays: a click on its verdict may be under way
  by("sc-note").addEventListener("input", (e) => { const s = askable()[at]; if (s) keep(s.row, { note: e.target.value }); });
  by("sc-marks").addEventListener("change", show);
  by("sc-prev").addEventListener("click", () => go(at - 1));
  by("sc-next").addEventListener("click", () => go(at + 1));
  by("sc-open").addEventListener("click", () => { const next = unjudged(); if (next < 0) by("sc-said").textContent = "All pairs here are judged."; else go(next); });
  by("sc-jsonl").addEventListener("click", () => export_as("jsonl"));
  by("sc-csv").addEventListener("click", () => export_as("csv"));
  by("sc-pick").addEventListener("click", () => by("sc-file").click());
  by("sc-file").addEventListener("change", async (e) => {
    if (e.target.files.length) by("sc-said").textContent = await load(e.target.files[0]);
    e.target.value = "";
  });
  if (!sealed) {
    by("sc-group").addEventListener("change", (e) => { pile = e.target.value; go(first()); });
    document.querySelectorAll("[name=sc-mode]").forEach((r) => r.addEventListener("change", () => {
      mode = document.querySelector("[name=sc-mode]:checked").value;
      by("sc-group").disabled = mode === "blind"; // a group says what was thought of a pair
      go(first());
    }));
    by("sc-group").disabled = false;
    document.querySelector("[name=sc-mode][value=open]").checked = true; // a browser may remember a form
    by("sc-group").value = "";
  }
  called(read(LAST) || "");
  at = first();
  show();
})();
