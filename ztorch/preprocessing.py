"""The functions of `keras.preprocessing`: those of `zt.utils` under older names. Its `image` and
`sequence` are this same module."""

from __future__ import annotations

import sys

from ztorch.conveniences import (
    array_to_img,
    image_dataset_from_directory,
    img_to_array,
    load_img,
    pad_sequences,
    save_img,
    text_dataset_from_directory,
    timeseries_dataset_from_array,
)

__all__ = ["array_to_img", "image", "image_dataset_from_directory", "img_to_array", "load_img",
           "pad_sequences", "save_img", "sequence", "text_dataset_from_directory",
           "timeseries_dataset_from_array"]

__path__: list[str] = []  # lets `import ztorch.preprocessing.sequence` find the names of this file
image = sequence = sys.modules[__name__]
