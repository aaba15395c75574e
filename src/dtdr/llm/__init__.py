"""Function calling with an LLM: backends, prompts and the planner."""
