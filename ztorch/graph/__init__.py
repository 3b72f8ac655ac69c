"""The fixed-shape tensor graph; knows what an op is, and no op by name."""
