"""Data sets by name; images, tables and text from files.

>>> from ztorch import data
>>> (x_train, y_train), (x_test, y_test) = data.load("digits")
>>> x_train.shape, x_test.shape
((1433, 8, 8, 1), (364, 8, 8, 1))
"""

from __future__ import annotations

from ztorch.data import (  # noqa: F401  (each registers its sets)
    cifar,
    digits,
    friedman,
    gaps,
    mnist,
    shapes,
    verse,
)
from ztorch.data.batches import Batches
from ztorch.data.csv_files import CsvFile, csv
from ztorch.data.images import ImageFolder, image_folder
from ztorch.data.registry import Pair, Split, load, names
from ztorch.data.tables import Table, read_table
from ztorch.data.text_files import Text, text
from ztorch.data.typed_table import TypedTable, table

__all__ = ["Batches", "CsvFile", "ImageFolder", "Pair", "Split", "Table", "Text", "TypedTable",
           "csv", "image_folder", "load", "names", "read_table", "table", "text"]
