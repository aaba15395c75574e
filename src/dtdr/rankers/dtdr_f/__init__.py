"""``dtdr-f``: query and history as factored features, and a ranker over candidate tools."""
