"""Layers that are built and called, for tests of layers made of layers."""

from __future__ import annotations

from ztorch.model.sequential import Sequential


def build(*layers):
    Sequential(layers).build()
