"""Data sets by name; images, sounds, tables and text from files.

>>> from ztorch import data
>>> (x_train, y_train), (x_test, y_test) = data.load("digits")
>>> x_train.shape, x_test.shape
((1433, 8, 8, 1), (364, 8, 8, 1))
"""

from __future__ import annotations

from typing import Any

from ztorch.data import (  # noqa: F401  (each registers its data sets)
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
from ztorch.data.sounds import SoundFolder, sound_folder
from ztorch.data.tables import Table, read_table
from ztorch.data.text_files import Text, text
from ztorch.data.typed_table import TypedTable, table

_ELSEWHERE = {
    "read_csv": "zt.data.csv(path, target=...), or zt.data.table for columns of all kinds",
    **dict.fromkeys(("Dataset", "DataLoader", "TensorDataset"),
                    "not needed: fit takes arrays, datasets and loaders as they are")}
__all__ = ["Batches", "CsvFile", "ImageFolder", "Pair", "SoundFolder", "Split", "Table", "Text",
           "TypedTable", "csv", "image_folder", "load", "names", "read_table", "sound_folder",
           "table", "text"]


def __getattr__(name: str) -> Any:
    from ztorch.errors import nearest

    hint = f"; here it is {_ELSEWHERE[name]}" if name in _ELSEWHERE else nearest(
        name, [public for public in __all__ if public[0].islower() == name[0].islower()])
    raise AttributeError(f"module 'ztorch.data' has no attribute {name!r}{hint}")
