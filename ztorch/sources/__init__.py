"""Loads models from any source: the zoo, Python files, artifacts, files of other frameworks."""
