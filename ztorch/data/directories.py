"""Folders of files, one folder for each class, with Keras' functions and arguments."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ztorch.arguments import checked
from ztorch.data.batches import Batches
from ztorch.data.class_folders import LabeledFiles, labeled_files
from ztorch.data.images import IMAGES, Fitting, ImageFolder
from ztorch.data.sounds import SOUNDS, SoundFolder, read_wav, samples_of
from ztorch.errors import ConfigError, DataError

_CHANNELS = {"grayscale": 1, "rgb": 3, "rgba": 4}
_SUBSETS = ("training", "validation", "both")


class DirectoryBatches(Batches):
    """Batches of files, labeled by their folders.

    `class_names` are the names of the folders, `file_paths` the paths of all files.
    """

    def begin(self, labeled: LabeledFiles, label_mode: str | None) -> None:
        """Sets the files and their labels; `read` uses them."""
        files, labels, names = labeled
        if label_mode not in ("int", "binary", "categorical", None):
            raise ConfigError(f"label_mode={label_mode!r} must be 'int', 'binary', 'categorical' "
                              "or None")
        if label_mode == "binary" and len(names) != 2:
            raise ConfigError(f"label_mode='binary' is for two classes, and there are {len(names)}")
        self.class_names, self.file_paths = list(names), [str(file) for file in files]
        self._label_mode, self._labels = label_mode, labels

    def labeled(self, x: np.ndarray, rows: np.ndarray) -> Any:
        """(x, y) of some rows, or only x."""
        labels = self._labels[rows]
        if self._label_mode is None:
            return x
        if self._label_mode == "categorical":
            return x, np.eye(len(self.class_names), dtype=np.float32)[labels]
        return x, labels.astype(np.float32)[:, None] if self._label_mode == "binary" else labels


class ImageDirectory(DirectoryBatches, ImageFolder):
    """The result of `image_dataset_from_directory`."""

    def __init__(self, directory: str | os.PathLike[str], size: tuple[int, int], channels: int,
                 batch_size: int, seed: int | None, label_mode: str | None,
                 channels_first: bool, labeled: LabeledFiles, fitting: Fitting):
        ImageFolder.__init__(self, directory, size, channels, batch_size, seed, labeled, fitting)
        self.begin(labeled, label_mode)
        self._channels_first = channels_first

    def read(self, rows: np.ndarray) -> Any:
        x = np.stack([self.image(int(row)) for row in rows]).astype(np.float32)
        return self.labeled(x.transpose(0, 3, 1, 2) if self._channels_first else x, rows)


class SoundDirectory(DirectoryBatches, SoundFolder):
    """The result of `audio_dataset_from_directory`."""

    def __init__(self, directory: str | os.PathLike[str], length: int | None, rate: int | None,
                 batch_size: int, seed: int | None, label_mode: str | None,
                 labeled: LabeledFiles):
        first, file_rate = read_wav(labeled.files[0], most=0)
        length = max(samples_of(file, rate or file_rate) for file in labeled.files) if (
            length is None) else length
        SoundFolder.__init__(self, directory, length, rate, first.shape[1], batch_size, seed,
                             labeled)
        self.begin(labeled, label_mode)

    def read(self, rows: np.ndarray) -> Any:
        return self.labeled(SoundFolder.read(self, rows)[0], rows)


class TextDirectory(DirectoryBatches):
    """The result of `text_dataset_from_directory`."""

    def __init__(self, batch_size: int, seed: int | None, label_mode: str | None,
                 max_length: int | None, labeled: LabeledFiles):
        super().__init__(len(labeled.files), batch_size, seed)
        self.begin(labeled, label_mode)
        self._max_length = max_length

    def read(self, rows: np.ndarray) -> Any:
        contents = np.empty(len(rows), object)
        for k, row in enumerate(rows):
            file = self.file_paths[row]
            try:
                contents[k] = Path(file).read_text("utf-8-sig")[:self._max_length]
            except (OSError, UnicodeDecodeError) as error:
                raise DataError(f"{file} cannot be read as text in UTF-8 ({error})") from None
        return self.labeled(contents, rows)


@checked
def image_dataset_from_directory(
        directory: str | os.PathLike[str], labels: Any = "inferred",
        label_mode: str | None = "int", class_names: Sequence[str] | None = None,
        color_mode: str = "rgb", batch_size: int = 32, image_size: tuple[int, int] = (256, 256),
        shuffle: bool = True, seed: int | None = None, validation_split: float | None = None,
        subset: str | None = None, interpolation: str = "bilinear", follow_links: bool = False,
        crop_to_aspect_ratio: bool = False, pad_to_aspect_ratio: bool = False,
        data_format: str | None = None, verbose: bool = False) -> Any:
    """Batches of images in folders, each of which is a class, as in Keras.

    `zt.data.image_folder` is the same with values from 0 to 1.

    Args:
        directory: The folder. Its folders are the classes, in the order of their names.
        labels: "inferred": folders are classes; None: there are no classes, and files at any depth
            count; or a class number for each file, in the order of their paths. Default:
            `"inferred"`.
        label_mode: "int" for class numbers, "categorical" for one-hot vectors, "binary" for 0.0
            and 1.0, None for images only. Default: `"int"`.
        class_names: The folders, in the order of the classes; None: in the order of their names.
            Default: `None`.
        color_mode: "grayscale", "rgb" or "rgba". Default: `"rgb"`.
        batch_size: The images of a batch. Default: `32`.
        image_size: (height, width) to resize images to. Default: `(256, 256)`.
        shuffle: Whether each epoch uses a different order. Default: `True`.
        seed: The seed for shuffling; None: 0. Default: `None`.
        validation_split: The fraction of files for validation. Default: `None`.
        subset: "training", "validation" or "both": which part to return. Default: `None`.
        interpolation: How to resize: "bilinear", "nearest", "bicubic", "area"
            or "lanczos3". All but "nearest" smooth images that they make smaller. Default:
            `"bilinear"`.
        follow_links: Whether to follow links to folders. Default: `False`.
        crop_to_aspect_ratio: Whether to crop images to the aspect ratio of `image_size`, around
            their center, before they are resized. Default: `False`.
        pad_to_aspect_ratio: Whether to pad images with black to this ratio. Default: `False`.
        data_format: "channels_first" or "channels_last". Default: `None`.
        verbose: Whether to print the number of files and classes. Default: `False`.

    Returns:
        Batches (x, y), x in float32 from 0 to 255; for "both", training and validation batches.

    Raises:
        DataError: There is no such folder, or no image in it, or a file cannot be read.

    Examples:
        >>> train, validation = image_dataset_from_directory(     # doctest: +SKIP
        ...     "flowers", image_size=(64, 64), validation_split=0.2, subset="both")
        >>> model.fit(train, validation_data=validation)          # doctest: +SKIP
    """
    if color_mode not in _CHANNELS:
        raise ConfigError(f"color_mode={color_mode!r} must be one of {', '.join(_CHANNELS)}")
    if data_format not in (None, "channels_first", "channels_last"):
        raise ConfigError(f"data_format={data_format!r} must be 'channels_first' or "
                          "'channels_last'")
    if crop_to_aspect_ratio and pad_to_aspect_ratio:
        raise ConfigError("crop_to_aspect_ratio and pad_to_aspect_ratio cannot both be True")
    fitting = Fitting(interpolation, "crop" if crop_to_aspect_ratio else
                      "pad" if pad_to_aspect_ratio else "")
    fitting.need_known()
    labeled = labeled_files(directory, IMAGES, "image", labels, class_names, follow_links)
    _print_summary(labeled, verbose)
    return _subset(ImageDirectory(directory, image_size, _CHANNELS[color_mode], batch_size,
                                  (seed or 0) if shuffle else None,
                                  None if labels is None else label_mode,
                                  data_format == "channels_first", labeled, fitting),
                   validation_split, subset)


@checked
def audio_dataset_from_directory(
        directory: str | os.PathLike[str], labels: Any = "inferred",
        label_mode: str | None = "int", class_names: Sequence[str] | None = None,
        batch_size: int = 32, sampling_rate: int | None = None,
        output_sequence_length: int | None = None, shuffle: bool = True, seed: int | None = None,
        validation_split: float | None = None, subset: str | None = None,
        follow_links: bool = False, verbose: bool = False) -> Any:
    """Batches of sounds in folders of WAV files, each of which is a class, as in Keras.

    Args:
        directory: The folder. Its folders are the classes, in the order of their names.
        labels: As in `image_dataset_from_directory`. Default: `"inferred"`.
        label_mode: As in `image_dataset_from_directory`. Default: `"int"`.
        class_names: As in `image_dataset_from_directory`. Default: `None`.
        batch_size: The sounds of a batch. Default: `32`.
        sampling_rate: Samples per second, to which all sounds are resampled; None: the rate of the
            first file. Default: `None`.
        output_sequence_length: The number of samples of a row: longer sounds are cut, and shorter
            ones padded with zeros; None: that of the longest sound. Default: `None`.
        shuffle: Whether each epoch uses a different order. Default: `True`.
        seed: The seed for shuffling; None: 0. Default: `None`.
        validation_split: The fraction of files for validation. Default: `None`.
        subset: "training", "validation" or "both": which part to return. Default: `None`.
        follow_links: Whether to follow links to folders. Default: `False`.
        verbose: Whether to print the number of files and classes. Default: `False`.

    Returns:
        Batches (x, y), x in float32 from -1 to 1 of shape (batch, samples, channels), with the
        channels of the first file.

    Raises:
        DataError: There is no such folder, or no sound in it, or a file cannot be read.

    Examples:
        >>> train, validation = audio_dataset_from_directory(     # doctest: +SKIP
        ...     "words", output_sequence_length=16000, validation_split=0.2, subset="both")
    """
    labeled = labeled_files(directory, SOUNDS, "sound", labels, class_names, follow_links)
    _print_summary(labeled, verbose)
    return _subset(SoundDirectory(directory, output_sequence_length, sampling_rate, batch_size,
                                  (seed or 0) if shuffle else None,
                                  None if labels is None else label_mode, labeled),
                   validation_split, subset)


@checked
def text_dataset_from_directory(
        directory: str | os.PathLike[str], labels: Any = "inferred",
        label_mode: str | None = "int", class_names: Sequence[str] | None = None,
        batch_size: int = 32, max_length: int | None = None, shuffle: bool = True,
        seed: int | None = None, validation_split: float | None = None, subset: str | None = None,
        follow_links: bool = False, verbose: bool = False) -> Any:
    """Batches of text files in folders, each of which is a class, as in Keras.

    Args:
        directory: The folder. Its folders of .txt files are the classes, in the order of their
            names.
        labels: As in `image_dataset_from_directory`. Default: `"inferred"`.
        label_mode: As in `image_dataset_from_directory`. Default: `"int"`.
        class_names: As in `image_dataset_from_directory`. Default: `None`.
        batch_size: The files of a batch. Default: `32`.
        max_length: The number of characters to which text is cut; None: it is not cut. Default:
            `None`.
        shuffle: Whether each epoch uses a different order. Default: `True`.
        seed: The seed for shuffling; None: 0. Default: `None`.
        validation_split: The fraction of files for validation. Default: `None`.
        subset: "training", "validation" or "both": which part to return. Default: `None`.
        follow_links: Whether to follow links to folders. Default: `False`.
        verbose: Whether to print the number of files and classes. Default: `False`.

    Returns:
        Batches (x, y), x an array of strings.

    Raises:
        DataError: There is no such folder, or no .txt file in it, or a file is not in UTF-8.

    Examples:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     for name, text in (("bad", "Oh no"), ("good", "Well done")):
        ...         (Path(folder) / name).mkdir()
        ...         _ = (Path(folder) / name / "1.txt").write_text(text)
        ...     reviews = text_dataset_from_directory(folder, shuffle=False)
        ...     reviews.arrays()[0].tolist(), reviews.class_names
        (['Oh no', 'Well done'], ['bad', 'good'])
    """
    labeled = labeled_files(directory, (".txt",), "text", labels, class_names, follow_links)
    _print_summary(labeled, verbose)
    return _subset(TextDirectory(batch_size, (seed or 0) if shuffle else None,
                                 None if labels is None else label_mode, max_length, labeled),
                   validation_split, subset)


def _print_summary(labeled: LabeledFiles, verbose: bool) -> None:
    if verbose:
        print(f"Found {len(labeled.files)} files of {len(labeled.names)} classes.")


def _subset(batches: Batches, share: float | None, subset: str | None) -> Any:
    """All batches, the part that `subset` names, or both parts."""
    if (share is None) != (subset is None) or subset not in (None, *_SUBSETS):
        raise ConfigError(f"validation_split={share!r} and subset={subset!r} go together, as in "
                          "validation_split=0.2, subset='both'; a subset is one of "
                          f"{', '.join(_SUBSETS)}")
    if share is None:
        return batches
    both = batches.split(share)
    return both if subset == "both" else both[_SUBSETS.index(subset or "")]
