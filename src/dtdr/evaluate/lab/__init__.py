"""The lab: suites of runs, kept by content, and one report that is rebuilt from their logs."""
