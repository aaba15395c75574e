"""The studio: the tools of many runs as a map, a run step by step, and why each tool comes next.

Endpoints and pages that ``dtdr studio`` adds to the server.
"""
