"""The HTTP server, its client, feedback, learning and the studio."""
