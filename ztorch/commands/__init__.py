"""The commands of the command line; ztorch/cli.py has their names and options."""
