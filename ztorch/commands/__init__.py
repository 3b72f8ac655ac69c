"""What the commands of the command line do; ztorch/cli.py holds their words and options."""
