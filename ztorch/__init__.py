"""ztorch."""
