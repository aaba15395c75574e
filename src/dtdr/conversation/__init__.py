"""Conversations: messages of any API, calls and results, cut into turns."""
