"""``train.html``: whatever a run leaves makes a page that says what happened, and does nothing else."""

import html
import json
import re
import shutil

import pytest

from prefdata.training import page

EVIL = "<script>document.title='owned'</script><img src=x onerror=alert(1)>\u202e"
CHECKS = [
    {"word": "fp16_weights", "status": "fail", "evidence": "290 tensors are float16", "remedy": "Train float32.", "rows": []},
    {"word": "implausible_beta", "status": "warn", "evidence": "beta 9", "remedy": "0.1 is usual.", "rows": [EVIL]},
    {"word": "rows_lost", "status": "ok", "evidence": "none of 96", "remedy": "", "rows": []},
]  # fmt: skip
ALARM = {"word": "loss_spike", "step": 20, "evidence": "loss 9 against 0.5", "action": "stop", "rows": [EVIL], "remedy": "Lower learning_rate."}  # fmt: skip
BEFORE = {
    "pairs": 24,
    "accuracy": 0.0,
    "margin": 0.0,
    "ties": 1.0,
    "loss": 0.6931,
    "forgetting": {"perplexity": 30.5, "tokens": 90},
}
AFTER = {"pairs": 24, "accuracy": 0.75, "accuracy_low": 0.55, "accuracy_high": 0.88, "margin": 0.41, "margin_low": 0.2, "margin_high": 0.6, "ties": 0.0, "forgetting": {"perplexity": 31.25}}  # fmt: skip
RECORD = {
    "status": "complete", "settings": {"model": EVIL, "loss_type": ["sigmoid"], "beta": 0.1, "max_grad_norm": 1.0}, "plan": {"steps": 40, "batch_size": 8},
    "checks": CHECKS[1:], "alarms": [], "before": BEFORE, "after": AFTER, "averaged": {"of": ["checkpoint-2", "checkpoint-4"], "kept": True, "metrics": AFTER},
    "data": {"place": EVIL, "manifest_sha256": "ab", "notes": [EVIL]}, "run": {"seconds": 3.2, "started": "2026-01-01T00:00:00Z", "versions": {"trl": "1.16.0"}},
}  # fmt: skip


def logged(steps=40):
    out = []
    for i in range(1, steps + 1):
        out.append({
            "step": i, "loss": 0.7 - i / 100, "rewards/margins": i / 50, "rewards/accuracies": 0.8, "ties": 0.1, "logps/chosen": -80.0 - i, "logps/rejected": -90.0 - 2 * i,
            "log_ratio/chosen": i / 999, "log_ratio/rejected": -i / 99, "grad_norm": 3.0 if i == 17 else None, "clipped": 0.5, "learning_rate": 1e-5, "beta": 0.1,
            "entropy": 2.0, "tokens_per_second": 12000.0, "memory": 600_000_000, "nonfinite_pairs": 0,
        })  # fmt: skip
        if i % 10 == 0:
            out.append(
                {
                    "step": i,
                    "eval_loss": 0.69 - i / 99,
                    "eval_rewards/margins": i / 60,
                    "eval_ties": 0.0,
                    "eval_nonfinite_pairs": 1,
                }
            )
            out.append({"step": i, "update_ratio": {"embed_tokens" + "<b>": 1e-4, "layer 0": i / 1e4}})
            out.append({"step": i, "probes/length_ratio": 1.0, "probes/distinct": 0.5, "probes/ended": 1.0})
    return out


def said():
    return [
        {"step": s, "id": f"{EVIL}{k}", "prompt": EVIL, "chosen": "good", "rejected": "bad", "text": f"answer {s} {EVIL}", "tokens": 4, "ended": True}
        for s in (0, 10, 20) for k in (1, 2)
    ]  # fmt: skip


def written(home, record=RECORD, metrics=None, generated=None):
    """The page of a folder with these files."""
    home.mkdir(exist_ok=True, parents=True)
    (home / "train.json").write_text(json.dumps(record), "utf-8")
    for name, lines in (("metrics.jsonl", metrics), ("generations.jsonl", generated)):
        if lines is not None:
            (home / name).write_text("".join(json.dumps(line) + "\n" for line in lines), "utf-8")
    page.write(home)
    return (home / "train.html").read_text("utf-8")


def words(text):
    return html.unescape(re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", text.split("</style>")[1])))


def test_a_run_that_ended_says_what_changed(tmp_path):
    text = words(written(tmp_path, metrics=logged(), generated=said()))
    assert "Trained 40 steps; on 24 held-out pairs accuracy is 75.0 % (55.0 % to 88.0 %) and margin went from 0 to 0.41 (0.2 to 0.6); no alarm." in text  # fmt: skip
    for title in ("Loss", "Margin", "Accuracy and ties", "Distance from the reference", "Gradient norm", "Clipped steps", "Learning rate",
                  "beta", "Entropy", "Speed", "Memory", "Answers to the probes", "How far each layer moved"):  # fmt: skip
        assert title in text
    assert "dotted: ln 2" in text and "31.25" in text and "is better and was saved" in text
    assert "answer 0" in text and "answer 20" in text and "1 round between" in text


def test_a_run_that_a_guard_stopped_says_which_and_what_to_do(tmp_path):
    text = words(written(tmp_path, {**RECORD, "status": "stopped", "alarms": [ALARM], "after": {}}, logged(20)))
    assert "Training stopped at step 20 of 40. loss_spike: loss 9 against 0.5. Lower learning_rate." in text


def test_a_run_that_was_refused_shows_its_checks(tmp_path):
    record = {**RECORD, "status": "refused", "plan": {}, "checks": CHECKS, "before": {}, "after": {}, "averaged": {}, "data": {}}  # fmt: skip
    text = words(written(tmp_path, record))
    assert (
        "1 check failed before training: fp16_weights." in text and "Train float32." in text and "290 tensors" in text
    )
    assert "Curves" not in text


def test_a_run_without_numbers_still_has_a_page(tmp_path):
    text = words(written(tmp_path, {"status": "complete", "settings": {"model": "m"}}))
    assert "There is no number in metrics.jsonl." in text and "no pairs were held out" in text


def test_half_a_line_and_numbers_that_are_none_are_left_out(tmp_path):
    written(tmp_path, metrics=[{"step": 1, "loss": None}, {"step": 2, "loss": 0.5}])
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write('{"step": 3, "lo')
    page.write(tmp_path)
    text = (tmp_path / "train.html").read_text("utf-8")
    assert "last <b>0.5</b>" in text and "NaN" not in text.split("</style>")[1].replace("were NaN", "")


def test_a_spike_is_seen_among_very_many_steps_and_the_page_stays_small(tmp_path):
    many = [{"step": i, "loss": 99.0 if i == 7777 else 0.5} for i in range(1, 20_001)]
    text = written(tmp_path, metrics=many)
    tops = [float(p.split(",")[1]) for p in re.findall(r'points="([^"]+)"', text)[0].split()]
    assert min(tops) < 25 and len(tops) < 900 and len(text) < 120_000


def test_a_run_that_went_back_draws_a_new_line(tmp_path):
    text = written(tmp_path, metrics=[{"step": s, "loss": 0.5 + s / 9} for s in (1, 2, 3, 4, 2, 3, 4, 5)])
    figure = text.split("Loss by step")[1].split("</svg>")[0]
    assert figure.count("<polyline") == 2


def test_text_of_the_data_is_inert(tmp_path):
    text = written(tmp_path, {**RECORD, "status": "stopped", "alarms": [ALARM]}, logged(), said())
    assert "<script" not in text and "<img" not in text and "embed_tokens<b>" not in text and "\u202e" not in text
    assert "default-src &#39;none&#39;" in text or "default-src 'none'" in text
    assert " style=" not in text and "http://" not in text and "https://" not in text


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_everyone_can_read_it_in_a_browser(tmp_path, width, scheme):
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed (extra [dev])")
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="axe-playwright-python is not installed")
    chromium = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if chromium is None:
        pytest.skip("no Chromium on this machine")
    written(tmp_path, {**RECORD, "status": "stopped", "alarms": [ALARM], "checks": CHECKS}, logged(), said())
    address, bad = (tmp_path / "train.html").as_uri(), []
    with sync_api.sync_playwright() as play:
        browser = play.chromium.launch(executable_path=chromium, args=["--headless", "--no-sandbox", "--disable-gpu"])
        seen = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme).new_page()
        seen.on("pageerror", lambda e: bad.append(str(e)))
        seen.on("console", lambda m: bad.append(m.text) if m.type in ("error", "warning") else None)
        seen.on("request", lambda r: bad.append(r.url) if r.url != address else None)
        seen.goto(address)
        seen.evaluate("document.querySelectorAll('details').forEach(d => { d.open = true })")
        found = axe.Axe().run(seen).response["violations"]
        assert [(v["id"], v["nodes"][0]["html"][:200]) for v in found] == []
        assert seen.evaluate("document.documentElement.scrollWidth") <= width
        assert seen.title().startswith("Training of <script>") and bad == []
        browser.close()
