"""Benchmarks: corpora with planted faults, and whole-process comparisons with a script written by hand."""
