"""The model that an artifact declares, with its weights."""

from __future__ import annotations

import json
from collections.abc import Mapping

from ztorch.dtypes import from_storage
from ztorch.errors import ArtifactError, ZtorchError
from ztorch.files.container import MANIFEST
from ztorch.files.parsing import parsing
from ztorch.model.declaration import classes_named
from ztorch.model.model import Model
from ztorch.names.own_classes import known_as
from ztorch.runtime.load import Artifact
from ztorch.runtime.snapshot import Declaration
from ztorch.runtime.spec import CALL

_OF_MODEL = "the model that it was made from"


def model_of_artifact(artifact: Artifact, custom: Mapping[str, type] | None = None) -> Model:
    """The model that an artifact declares, with the weights of the artifact.

    Args:
        artifact: The artifact.
        custom: Further classes that the declaration names, by name. Default: `None`.

    Raises:
        ArtifactError: It declares no model, or one that cannot be created here; the message says
            why.
    """
    where = artifact.where
    declaration = need_declaration(artifact)
    with known_as(custom or {}):
        _need_classes(declaration, where)
        try:
            with parsing(where, ArtifactError, "declares no model that can be created",
                         f"use {_OF_MODEL}", MANIFEST):
                model = Model.from_json(json.dumps(declaration.model))
                named = model.named_weights()
        except ArtifactError:
            raise
        except ZtorchError as error:
            raise ArtifactError(f"{where}: its model cannot be created: {error}. Use "
                                f"{_OF_MODEL}") from None
    shapes = {row.name: row.shape for row in artifact.manifest.program.weights}
    for name in {**shapes, **named}:
        declared = named[name].shape if name in named else None
        if declared != shapes.get(name):
            raise ArtifactError(f"{where}: weight {name!r} has shape {declared} in the declared "
                                f"model, but {shapes.get(name)} in the list of weights; use "
                                f"{_OF_MODEL}")
        if name in artifact.weights:  # otherwise no function reads it
            named[name].value = from_storage(*artifact.weights[name])
    return model


def need_declaration(artifact: Artifact) -> Declaration:
    """The declaration of an artifact, or an ArtifactError that says why it has none."""
    where, manifest = artifact.where, artifact.manifest
    declaration = manifest.program.declaration
    if CALL in artifact.targets[0].spec.functions:
        raise ArtifactError(f"{where} holds a function and no model; export the function again "
                            "from its source: ztorch export FILE.py:NAME")
    if declaration is None:
        raise ArtifactError(f"{where} lacks the declaration of its model: it was written by ztorch "
                            f"{manifest.ztorch}, which did not store it; use {_OF_MODEL}")
    if declaration.model is None:
        raise ArtifactError(f"{where} declares no model, because the model has no config: "
                            f"{declaration.lacks or 'it has parts that are functions'}. Use "
                            f"{_OF_MODEL}")
    return declaration


def _need_classes(declaration: Declaration, where: str) -> None:
    missing = [name for name in declaration.custom
               if not classes_named(name)]
    if missing:
        raise ArtifactError(f"{where} uses custom classes, which files do not contain: "
                            f"{', '.join(missing)}; pass them: zt.load_model(path, "
                            f"custom_objects=[{', '.join(missing)}]), or on the command line "
                            "--custom FILE.py, where FILE.py defines them")
