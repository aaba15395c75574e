"""Names and meanings of the metrics that the server and the MCP gateway share."""

SHOWN_TOKENS = (
    "dtdr_shown_definition_tokens",
    "Tokens of tools' definitions that LLMs were shown, about.",
)
HIDDEN_TOKENS = (
    "dtdr_hidden_definition_tokens",
    "Tokens of tools' definitions that were kept out of prompts, about.",
)
