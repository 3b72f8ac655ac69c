"""The fixed-shape tensor graph; knows ops in general, and by name only those it rewrites."""
