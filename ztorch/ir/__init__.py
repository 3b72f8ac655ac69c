"""The kernel IR: small, typed, structured, printable, verified and interpretable in NumPy."""
