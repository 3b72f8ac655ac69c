"""The drivers, one file each. The name of a file is the name of its backend."""
