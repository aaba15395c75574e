"""Everything that goes over a wire: transport, limits, origins, Redis."""
