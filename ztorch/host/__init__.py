"""This machine: its CPU, compilers, environment and the user's choices."""
