"""This machine: its CPU, its C compiler, the environment and the user's configuration."""
