"""Graph to kernels: fuse, schedule, emit, decompose, linearise. Knows no op by name."""
