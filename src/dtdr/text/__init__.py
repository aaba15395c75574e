"""Text: encoders, tokens and vectors."""
