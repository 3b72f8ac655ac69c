"""Carries users' arrays into a program's buffers by batches; the loops of evaluate and predict."""
