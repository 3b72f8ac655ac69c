"""What a kernel will take on a named GPU, computed from its code: nothing is run."""
