"""Real peers: one process each, trust by certificates, models over the wire."""
