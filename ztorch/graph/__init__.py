"""The fixed-shape tensor graph; knows what an op is, and by name only those it rewrites."""
