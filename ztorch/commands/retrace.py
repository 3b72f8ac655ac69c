"""Artifacts on the command line: told apart from models, and traced again by their description."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ztorch.commands.recipe import optimizer, zoo
from ztorch.errors import ArtifactError, ConfigError, ZtorchError

if TYPE_CHECKING:
    from ztorch.compile.traced_model import TracedModel


def need_artifact(name: str) -> None:
    """Raises where a model is named in place of an artifact."""
    in_zoo = name.partition(":")[0] in zoo() and not Path(name).exists()
    if in_zoo or ".py:" in name or name.endswith(".py"):
        raise ConfigError(f"{name} is a model, and this takes an artifact; make one first: ztorch "
                          f"train {name} --out FILE.zt, or ztorch export {name} -o FILE.zt")


def retrace(path: str, metadata: Mapping[str, Any], command: str,
            batch_size: int | None = None) -> TracedModel:
    """The graphs of the model that an artifact describes, without its metrics.

    Args:
        path: The artifact.
        metadata: What it says of its program.
        command: The command that needs the graphs, for errors.
        batch_size: The rows of a batch; None: those of the artifact. Default: `None`.
    """
    from ztorch.model.model import Model

    instead = f"{command} the model instead: ztorch {command} file.py:name"
    if metadata.get("model") is None:
        lambdas = [row["name"] for row in metadata["layers"] if row["class"] == "Lambda"]
        why = (f"its layer {lambdas[0]!r} is a Lambda, and a function cannot be written down"
               if lambdas else "it was written by an older ztorch, or from a model that cannot be "
               "written down")
        raise ArtifactError(f"{path} does not describe its model: {why}; {instead}")

    def as_config(entry: Any) -> Any:
        return entry and {"class_name": entry["name"], "config": entry["config"]}

    try:
        losses, optimizer_entry = metadata["loss"], metadata["optimizer"]
        several = isinstance(losses, dict) and "name" not in losses
        loss = as_config(losses) if not several else {
            name: as_config(entry) for name, entry in losses.items() if entry} or None
        weights = ({name: metadata["loss_weights"][name] for name in loss}
                   if several and loss else None)
        model = Model.from_json(json.dumps(metadata["model"]))
        return model.trace(
            batch_size or metadata["batch_size"],
            optimizer_entry and optimizer(as_config(optimizer_entry), None), loss,
            dtype=metadata["dtype"], seed=metadata["seed"], loss_weights=weights)
    except (KeyError, TypeError, AttributeError) as error:
        raise ArtifactError(f"{path} holds a damaged description of its model ({error!r}); "
                            f"{instead}") from None
    except ZtorchError as error:
        raise ArtifactError(f"{path}: its model cannot be made again: {error}. Where it has layers "
                            f"of your own, {instead}") from None
