"""Rows that are separate files: images and sounds."""

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
    """All rows of a folder, shuffled: so the last ones are good for validation."""

    train: Pair
    test: None
    classes: tuple[str, ...]
    files: tuple[str, ...]  # that of each row, in the folder
    rate: int | None  # of sounds: samples a second


class FileReader(NamedTuple):
    """Reads the files that a model takes."""

    takes: Callable[[str], bool]  # whether a path is named like one
    read: Callable[[Sequence[str]], tuple[np.ndarray, list[Path]]]  # rows, and their files


def folder_rows(folder: str, shape: tuple[int, ...] | None, rate: int | None) -> FolderRows:
    """The rows of a folder that has a folder of images or sounds for each class.

    Args:
        folder: The folder.
        shape: The shape of the model's input, which says which of them there are.
        rate: Samples a second of sounds; None: those of the first file.
    """
    from ztorch import data
    from ztorch.data.batches import shuffled
    from ztorch.data.class_folders import files_below
    from ztorch.data.sounds import SOUNDS

    of_sounds = shape is not None and len(shape) in (1, 2) and files_below(Path(folder), SOUNDS)
    if shape is None or not (of_sounds or len(shape) == 3):
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
        shape: The shape of its input; None where it has several.
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
    """Of the input of a model of sounds."""
    return 1 if len(shape) == 1 else shape[1]
