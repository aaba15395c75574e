"""Everything that goes over a wire: transport, limits, origins, Redis."""

VERSION = "0.1.0"
"""The version of dtdr, which servers and the command line report."""
