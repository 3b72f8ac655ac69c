"""Vocabularies that .keras files hold beside the description of a model, as after `adapt`."""

from __future__ import annotations

from typing import Any

from ztorch.errors import WeightsError
from ztorch.files.parsing import parsing
from ztorch.files.zips import StoredZip
from ztorch.layers.naming import snake_case

_LOOKUPS = ("IntegerLookup", "StringLookup", "TextVectorization")


def add_vocabularies(spec: dict[str, Any], archive: StoredZip, folder: str = "assets") -> None:
    """Puts the vocabularies of a file into the configs of the layers of a model, in place.

    Layers are called by their class and a count, in the order of the description, as in the file of
    weights.
    """
    counts: dict[str, int] = {}
    for layer in spec["config"].get("layers") or ():
        kind, config = layer["class_name"], layer["config"]
        k = counts[kind] = counts.get(kind, -1) + 1
        place = f"{folder}/layers/{snake_case(kind)}{f'_{k}' if k else ''}"
        if kind in _LOOKUPS and config.get("vocabulary") is None:
            member = f"{place}/vocabulary.txt"
            if member in archive:
                with parsing(archive.where, WeightsError, "is no vocabulary", "save it again",
                             member[:80]):
                    lines = archive.read(member).decode().splitlines()
                    config["vocabulary"] = [
                        int(line) for line in lines] if kind == "IntegerLookup" else lines
        elif isinstance(config.get("layers"), list):
            add_vocabularies(layer, archive, place)
