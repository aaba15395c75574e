"""Whole plans: a beam over calls, and a ranker that sees each plan from end to end."""
