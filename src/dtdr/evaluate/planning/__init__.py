"""Does the ranking help an LLM? Teacher-forced selections and whole plans, from run logs."""
