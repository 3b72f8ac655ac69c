"""Generators of pages that come from the registries; not part of the package."""
