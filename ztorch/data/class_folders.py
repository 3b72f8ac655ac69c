"""Finds the files of data sets in which each folder is a class."""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ztorch.errors import ConfigError, DataError


class LabeledFiles(NamedTuple):
    """Files and their classes."""

    files: list[Path]
    labels: np.ndarray
    names: tuple[str, ...]  # of the classes


def files_below(folder: Path, suffixes: Collection[str], follow_links: bool = False) -> list[Path]:
    """All files below a folder with one of these suffixes, in the order of their paths."""
    return sorted(Path(parent, name)
                  for parent, _, names in os.walk(folder, followlinks=follow_links)
                  for name in names
                  if Path(name).suffix.lower() in suffixes and not name.startswith("."))


def files_in(paths: Sequence[str], suffixes: Collection[str], kind: str) -> list[Path]:
    """Files, and the files in folders at any depth; `kind` names them in errors."""
    files: list[Path] = []
    for path in map(Path, paths):
        below = files_below(path, suffixes) if path.is_dir() else [path]
        if not below:
            raise DataError(f"{path} has no {kind} ({' '.join(suffixes)})")
        files += below
    return files


def labeled_files(directory: str | os.PathLike[str], suffixes: Collection[str], kind: str,
                  labels: Any = "inferred", class_names: Sequence[str] | None = None,
                  follow_links: bool = False) -> LabeledFiles:
    """The files of a directory with their classes.

    Args:
        directory: The folder.
        suffixes: The suffixes of the files.
        kind: The kind of file, for errors.
        labels: "inferred": folders are classes; None: there are no classes, and files at any depth
            count; or the class number of each file, in the order of their paths. Default:
            `"inferred"`.
        class_names: The folders, in the order of the classes; None: in the order of their names.
            Default: `None`.
        follow_links: Whether to follow links to folders. Default: `False`.

    Raises:
        DataError: There is no such folder, or no file in it, or a folder of `class_names` is
            missing.
        ConfigError: There is not one label for each file.
    """
    root = Path(directory)
    if not root.is_dir():
        raise DataError(f"there is no folder {root}")
    if isinstance(labels, str):
        if labels != "inferred":
            raise ConfigError(f"labels={labels!r} must be 'inferred', None or a list of class "
                              "numbers")
        return _files_of_folders(root, suffixes, kind, class_names, follow_links)
    files = files_below(root, suffixes, follow_links)
    if not files:
        raise DataError(f"{root} holds no {kind}s ({' '.join(suffixes)})")
    if class_names is not None:
        raise ConfigError("class_names belongs to labels='inferred'; omit it")
    numbers = np.zeros(len(files), np.int32) if labels is None else np.asarray(labels)
    if numbers.shape != (len(files),) or numbers.dtype.kind not in "iu":
        raise ConfigError(f"labels must be one class number for each of the {len(files)} files "
                          f"of {root}, in the order of their paths, not {numbers.dtype} of "
                          f"shape {numbers.shape}")
    return LabeledFiles(files, numbers.astype(np.int32),
                        tuple(map(str, range(int(numbers.max()) + 1))))


def _files_of_folders(root: Path, suffixes: Collection[str], kind: str,
                      class_names: Sequence[str] | None, follow_links: bool) -> LabeledFiles:
    """The files in the folders of `root`, each of which is a class."""
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
                        f"{len(names)} folders without any ({' '.join(suffixes)})")
    return LabeledFiles([file for files in by_class for file in files],
                        np.repeat(np.arange(len(names), dtype=np.int32), list(map(len, by_class))),
                        names)
