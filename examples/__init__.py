"""Logs of a synthetic agent, and scripts that run unchanged."""
