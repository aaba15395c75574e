"""Text: words, encoders and vectors."""
