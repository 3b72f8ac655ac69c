"""Users' arrays on their way into a program's buffers, one batch at a time."""
