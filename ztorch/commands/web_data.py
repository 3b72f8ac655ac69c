"""The data of a web page: samples of the model's data, and the letters of its text."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ztorch.commands import named_arrays
from ztorch.commands.data import read_training
from ztorch.commands.train_table import SUFFIXES
from ztorch.data import verse
from ztorch.errors import ConfigError, DataError
from ztorch.sources.find import find, zoo

if TYPE_CHECKING:
    from ztorch.sources.recipe import Recipe

LETTER_DATA = ("poets", "verse")  # data sets whose rows are letters of verse.ALPHABET


def page_options(recipe: Recipe, samples: str | None) -> dict[str, Any]:
    """The options of `model.export(format="web")` for a model.

    Args:
        recipe: The model.
        samples: The data that the command line names; None: the data in the model's file, or of
            the zoo model with its name, if they come with ztorch.

    Examples:
        >>> x, y = page_options(find("digits_cnn"), None)["samples"]
        >>> x.shape
        (364, 8, 8, 1)
    """
    shapes = named_arrays.of_model(recipe.model)
    shape, pipeline = shapes.x, recipe.model.pipeline
    if samples is not None and pipeline is not None and pipeline.record.columns and (
            samples.lower().endswith(SUFFIXES)):
        return {"samples": samples}
    if shape is None:
        if samples is not None:
            raise ConfigError(f"--samples is for a model of one input; {recipe.model.name} has "
                              f"{', '.join(shapes.inputs)}")
        return {}
    source = recipe
    if not (samples or recipe.data) and recipe.model.name in zoo():
        source = find(recipe.model.name)
    if samples is not None:
        return _options(samples, shape)
    for name in (source.data, source.stand_in):
        try:
            options = _options(name, shape) if name else {}
        except DataError:  # missing files
            continue
        if options and options["samples"][0].shape[1:] == shape:
            return options
    return {}


def _options(name: str, shape: tuple[int, ...]) -> dict[str, Any]:
    data = read_training(name, shape)
    return {"samples": data.test or data.train,
            **({"letters": verse.ALPHABET} if name in LETTER_DATA else {})}
