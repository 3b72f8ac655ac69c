"""Data sets by name, and tables from files.

>>> from ztorch import data
>>> (x_train, y_train), (x_test, y_test) = data.load("digits")
>>> x_train.shape, x_test.shape
((1433, 8, 8, 1), (364, 8, 8, 1))
"""

from __future__ import annotations

from ztorch.data import digits, friedman, mnist, verse  # noqa: F401  (each registers its sets)
from ztorch.data.registry import Pair, Split, load, names
from ztorch.data.tables import Table, read_table

__all__ = ["Pair", "Split", "Table", "load", "names", "read_table"]
