"""The endpoints, one module a concern."""
