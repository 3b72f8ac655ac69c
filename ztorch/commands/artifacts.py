"""Artifacts named on the command line: what they are told apart from, and the models in them."""

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
    """An error where a model is named in the place of an artifact."""
    if (name.partition(":")[0] in zoo() and not Path(name).exists()) or ".py:" in name \
            or name.endswith(".py"):
        raise ConfigError(f"{name} is a model, and this takes an artifact; make one first: ztorch "
                          f"train {name} --out FILE.zt, or ztorch export {name} -o FILE.zt")


def retraced(path: str, metadata: Mapping[str, Any], verb: str,
             batch_size: int | None = None) -> TracedModel:
    """The graphs of the model that an artifact describes, without its metrics; `verb` is the
    command that wants them."""
    from ztorch.model.model import Model

    instead = f"{verb} the model instead: ztorch {verb} file.py:name"
    if metadata.get("model") is None:
        lambdas = [row["name"] for row in metadata["layers"] if row["class"] == "Lambda"]
        why = (f"its layer {lambdas[0]!r} is a Lambda, and a function cannot be written down"
               if lambdas else "it was written by an older ztorch, or from a model that cannot be "
               "written down")
        raise ArtifactError(f"{path} does not describe its model: {why}; {instead}")

    def spec(found: Any) -> Any:
        return found and {"class_name": found["name"], "config": found["config"]}

    loss, made = metadata["loss"], metadata["optimizer"]
    several = isinstance(loss, dict) and "name" not in loss
    if several:
        loss = {name: spec(one) for name, one in loss.items() if one}
    try:
        model = Model.from_json(json.dumps(metadata["model"]))
        return model.trace(
            batch_size or metadata["batch_size"],
            made and optimizer(spec(made), None), (loss or None) if several else spec(loss),
            dtype=metadata["dtype"], seed=metadata["seed"],
            loss_weights={n: metadata["loss_weights"][n] for n in loss} if several and loss
            else None)
    except (KeyError, TypeError, AttributeError) as error:
        raise ArtifactError(f"{path} holds a damaged description of its model ({error!r}); "
                            f"{instead}") from None
    except ZtorchError as error:
        raise ArtifactError(f"{path}: its model cannot be made again: {error}. Where it has layers "
                            f"of your own, {instead}") from None
