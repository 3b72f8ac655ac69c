"""Loads the model in a folder of Hugging Face."""

from __future__ import annotations

import os
from pathlib import Path
from types import ModuleType

from ztorch.errors import ConfigError, Unsupported
from ztorch.files.parsing import describing
from ztorch.interchange.hugging_face import bert, gpt2, llama, resnet, vit, whisper
from ztorch.interchange.hugging_face.folder import (
    Tensors,
    image_side,
    read_config,
    read_tensors,
)
from ztorch.interchange.hugging_face.layer_maker import LayerMaker
from ztorch.model.model import Model

FAMILIES = (bert, gpt2, llama, resnet, vit, whisper)
BY_CLASS: dict[str, ModuleType] = {name: family for family in FAMILIES for name in family.HEADS}


def load_folder(path: str | os.PathLike[str], length: int | None = None) -> Model:
    """Loads the model in a folder that `save_pretrained` of transformers wrote.

    Layers have the names of the modules there.

    Args:
        path: The folder.
        length: The number of positions in a sequence, or the side of an image where the config does
            not say it. `None` leaves the number of positions open. Default: `None`.

    Raises:
        WeightsError: A file is missing or damaged, or does not match the config.
        Unsupported: The model is of a class or has a setting that ztorch does not read.

    Examples:
        ```python
        model = load_folder("gpt2")
        program = model.compile("cpu", batch_size=1, sizes={"length": 64}, decode=True)
        ```
    """
    folder = Path(path)
    config = read_config(folder)
    family = BY_CLASS.get(config.architecture)
    if family is None:
        raise Unsupported(
            f"{config.path} is of the class {config.architecture or 'None'!r}; ztorch reads "
            f"{', '.join(BY_CLASS)}. Convert others with torch.onnx.export, and load them with "
            "zt.onnx.load")
    maker = LayerMaker(config)
    if family is vit and length is not None:
        raise ConfigError(f"size={length}: {config.path} fixes the size of images, image_size, "
                          "since the model has a weight for each patch; leave size out")
    if family is resnet and length is None:
        length = image_side(folder)
    model = _built(family, maker, length, config.path)
    maker.load(Tensors(read_tensors(folder), str(folder), family.PREFIXES))
    return model


def _built(family: ModuleType, maker: LayerMaker, length: int | None, path: str) -> Model:
    """The model that a config describes."""
    with describing(path):
        model: Model = family.build(maker, length)
        model.build()
    return model
