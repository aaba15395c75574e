"""The data model and its files: calls, plans, runs, demonstrations, tools."""
