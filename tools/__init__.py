"""Generators of pages of the documentation, from the registries. Not part of the package."""
