"""Output on terminals and in notebooks: progress, tables of text."""
