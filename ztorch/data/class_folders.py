"""Files in folders, each of which is a class."""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ztorch.errors import ConfigError, DataError


class LabelledFiles(NamedTuple):
    """Files, and the class of each."""

    files: list[Path]
    labels: np.ndarray
    names: tuple[str, ...]  # of the classes


def files_below(folder: Path, suffixes: Collection[str], follow_links: bool = False) -> list[Path]:
    """All files below a folder with one of these suffixes, in the order of their paths."""
    return sorted(Path(here, name)
                  for here, _, names in os.walk(folder, followlinks=follow_links) for name in names
                  if Path(name).suffix.lower() in suffixes and not name.startswith("."))


def labelled_files(directory: str | os.PathLike[str], suffixes: Collection[str], kind: str,
                   labels: Any = "inferred", class_names: Sequence[str] | None = None,
                   follow_links: bool = False) -> LabelledFiles:
    """The files of a directory with their classes.

    Args:
        directory: The folder.
        suffixes: Those of its files.
        kind: The kind of file, for errors.
        labels: "inferred": folders are classes; None: there are none, and all files below count; or
            the class of each file, in the order of their paths. Default: `"inferred"`.
        class_names: The folders in the order of the classes; None: that of their names. Default:
            `None`.
        follow_links: Whether to follow links to folders. Default: `False`.

    Raises:
        DataError: There is no such folder, or no file in it, or a folder that is named is missing.
        ConfigError: There is not one label for each file.
    """
    root = Path(directory)
    if not root.is_dir():
        raise DataError(f"there is no folder {root}")
    shown = " ".join(suffixes)
    if not isinstance(labels, str):
        files = files_below(root, suffixes, follow_links)
        if not files:
            raise DataError(f"{root} holds no {kind}s ({shown})")
        if class_names is not None:
            raise ConfigError("class_names belongs to labels='inferred'; omit it")
        numbers = np.zeros(len(files), np.int32) if labels is None else np.asarray(labels)
        if numbers.shape != (len(files),) or numbers.dtype.kind not in "iu":
            raise ConfigError(f"labels must be one class number for each of the {len(files)} files "
                              f"of {root}, in the order of their paths, not {numbers.dtype} of "
                              f"shape {numbers.shape}")
        return LabelledFiles(files, numbers.astype(np.int32),
                             tuple(map(str, range(int(numbers.max()) + 1))))
    if labels != "inferred":
        raise ConfigError(f"labels={labels!r} must be 'inferred', None or a list of class numbers")
    names = tuple(sorted(p.name for p in root.iterdir()
                         if p.is_dir() and not p.name.startswith(".")))
    if class_names is not None:
        if missing := [name for name in class_names if name not in names]:
            raise DataError(f"{root} has no folder {missing[0]!r} of class_names; it has "
                            f"{', '.join(names)}")
        names = tuple(class_names)
    by_class = [files_below(root / name, suffixes, follow_links) for name in names]
    if not any(by_class):
        raise DataError(f"{root} should hold a folder of {kind}s for each class; there are "
                        f"{len(names)} folders without any ({shown})")
    return LabelledFiles([file for files in by_class for file in files],
                         np.repeat(np.arange(len(names), dtype=np.int32), list(map(len, by_class))),
                         names)
