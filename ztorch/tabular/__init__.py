"""Columns of users' tables as the input of a model, and its output as names."""
