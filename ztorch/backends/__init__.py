"""Drivers, one file each."""
