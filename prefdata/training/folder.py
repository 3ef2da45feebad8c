"""The names of what a run leaves in its folder."""

RECORD = "train.json"  # what was asked, planned, checked and found
METRICS = "metrics.jsonl"  # a line a log
GENERATIONS = "generations.jsonl"  # a line a probe and evaluation
PAGE = "train.html"
CHECKPOINTS = "checkpoints"
STARTED = "started.json"  # what it was started with, for a run that goes on
