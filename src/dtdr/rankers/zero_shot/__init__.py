"""``zero-shot``: ranks tools by their names and descriptions, without demonstrations."""
