"""Metrics, the harness, run logs and comparisons."""
