"""The lab: suites of experiments, kept by content, and one report made from their logs."""
