"""Reads rows that are separate files: images and sounds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ztorch.errors import ConfigError

if TYPE_CHECKING:
    from ztorch.data import Pair
    from ztorch.program.program import Program


class FolderRows(NamedTuple):
    """All rows of a folder, shuffled, so that the last ones are suitable for validation."""

    train: Pair
    test: None
    classes: tuple[str, ...]
    files: tuple[str, ...]  # the file of each row, relative to the folder
    rate: int | None  # samples per second of sounds


class FileReader(NamedTuple):
    """The functions that recognize and read a model's files."""

    takes: Callable[[str], bool]  # whether the name of a path is that of such a file
    read: Callable[[Sequence[str]], tuple[np.ndarray, list[Path]]]  # rows, and their files


def folder_rows(folder: str, shape: tuple[int, ...] | None, rate: int | None) -> FolderRows:
    """The rows of a folder that has a folder of images or sounds for each class.

    Args:
        folder: The folder.
        shape: The shape of the model's input, which tells images from sounds.
        rate: Samples per second of sounds; None: the rate of the first file.
    """
    from ztorch import data
    from ztorch.data.batches import shuffled
    from ztorch.data.class_folders import files_below
    from ztorch.data.sounds import SOUNDS

    has_sounds = shape is not None and len(shape) in (1, 2) and files_below(Path(folder), SOUNDS)
    if shape is None or not (has_sounds or len(shape) == 3):
        raise ConfigError(f"{folder} is a folder, of sounds (.wav) for models of inputs (samples,) "
                          "and (samples, channels), or of images for models of inputs (height, "
                          f"width, channels), not {shape}")
    if len(shape) == 3:
        rows: data.ImageFolder | data.SoundFolder = data.image_folder(
            folder, shape[:2], channels=shape[2])
    else:
        rows = data.sound_folder(folder, shape[0], rate=rate, channels=_channels(shape))
    order = shuffled(0, 0, rows.rows)
    files = tuple(str(rows.files[row].relative_to(folder)) for row in order)
    x, y = rows.read(order)
    return FolderRows((x.reshape(len(x), *shape), y), None, rows.classes, files,
                      getattr(rows, "rate", None))


def file_reader(program: Program, shape: tuple[int, ...] | None) -> FileReader | None:
    """The reader of files for a program that takes images or sounds; None for others.

    Args:
        program: The program.
        shape: The shape of its input; None if it has several.
    """
    if shape is not None and len(shape) == 3:
        from ztorch.data.images import is_image, read_images

        return FileReader(is_image, lambda paths: read_images(paths, shape[:2], shape[2]))
    pipeline = program.pipeline
    if shape is None or pipeline is None or pipeline.record.source != "sounds":
        return None
    from ztorch.data.sounds import is_sound, read_sounds

    def read(paths: Sequence[str]) -> tuple[np.ndarray, list[Path]]:
        x, files = read_sounds(paths, shape[0], pipeline.record.rate or None, _channels(shape))
        return x.reshape(len(x), *shape), files

    return FileReader(is_sound, read)


def _channels(shape: tuple[int, ...]) -> int:
    """The number of channels of a sound model's input."""
    return 1 if len(shape) == 1 else shape[1]
