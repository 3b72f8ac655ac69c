"""Graph to kernels: fuse, schedule, emit, decompose, linearize. Knows no op by name."""
