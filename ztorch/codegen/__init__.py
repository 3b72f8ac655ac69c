"""Kernels to text to binaries."""
