"""Compiled programs as data: loading and running them needs no compiler."""
