"""Measures schedules of kernels on this machine, and stores the fastest."""
