"""Whole calls: which value each parameter takes, and where it comes from."""
