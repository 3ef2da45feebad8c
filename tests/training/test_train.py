"""A training run as a user sees it: what it leaves behind, and how it ends."""

import json

import prefdata

QUICK = {"max_steps": 10, "learning_rate": 1e-3, "batch_size": 8, "method": "full", "probes": 0}


def test_a_run_learns_what_the_pairs_say(tiny, cleaned, tmp_path):
    done = prefdata.train(cleaned, tmp_path / "run", tiny, **{**QUICK, "max_steps": 30})
    assert done.status == "complete" and not done.alarms
    logs = [json.loads(line) for line in (tmp_path / "run/metrics.jsonl").read_text().splitlines()]
    held = [line["eval_rewards/margins"] for line in logs if "eval_rewards/margins" in line]
    assert held[-1] > held[0] and held[-1] > 0.1
    assert (tmp_path / "run/model/model.safetensors").is_file()
    record = json.loads((tmp_path / "run/train.json").read_text())
    note = json.loads((tmp_path / "run/model/prefdata.json").read_text())
    assert note["data_manifest_sha256"] == record["data"]["manifest_sha256"]
