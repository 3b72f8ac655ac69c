"""Vocabularies of lookup layers, which .keras files hold beside the model's config."""

from __future__ import annotations

from typing import Any

from ztorch.errors import WeightsError
from ztorch.files.parsing import parsing
from ztorch.files.zips import StoredZip
from ztorch.layers.naming import snake_case

_LOOKUPS = ("IntegerLookup", "StringLookup", "TextVectorization")


def add_vocabularies(spec: dict[str, Any], archive: StoredZip, folder: str = "assets") -> None:
    """Puts the vocabularies of a file into the configs of a model's layers, in place.

    A layer's folder is its class in snake case and a number, in the order of the config: the names
    that groups have in the weights file.
    """
    counts: dict[str, int] = {}
    for layer in spec["config"].get("layers") or ():
        kind, config = layer["class_name"], layer["config"]
        k = counts[kind] = counts.get(kind, -1) + 1
        layer_folder = f"{folder}/layers/{snake_case(kind)}{f'_{k}' if k else ''}"
        if kind in _LOOKUPS and config.get("vocabulary") is None:
            member = f"{layer_folder}/vocabulary.txt"
            if member in archive:
                with parsing(archive.where, WeightsError, "is not a vocabulary", "save it again",
                             member[:80]):
                    lines = archive.read(member).decode().splitlines()
                    config["vocabulary"] = [
                        int(line) for line in lines] if kind == "IntegerLookup" else lines
        elif isinstance(config.get("layers"), list):
            add_vocabularies(layer, archive, layer_folder)
