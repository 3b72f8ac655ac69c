"""What runs a compiled program: needs no compiler."""
