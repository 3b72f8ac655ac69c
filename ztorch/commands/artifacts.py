"""Artifacts named on the command line: what they are told apart from, and the models in them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ztorch.commands.recipe import optimizer, zoo
from ztorch.errors import ArtifactError, ConfigError, ZtorchError

if TYPE_CHECKING:
    from ztorch.model.trace import Functions
    from ztorch.runtime.snapshot import Metadata, NamedConfig


def need_artifact(name: str) -> None:
    """An error where a model is named in the place of an artifact."""
    if (name.partition(":")[0] in zoo() and not Path(name).exists()) or ".py:" in name \
            or name.endswith(".py"):
        raise ConfigError(f"{name} is a model, and this takes an artifact; make one first: ztorch "
                          f"train {name} --out FILE.zt, or ztorch export {name} -o FILE.zt")


def retraced(path: str, metadata: Metadata, verb: str,
             batch_size: int | None = None) -> Functions:
    """The graphs of the model that an artifact describes, without its metrics; `verb` is the
    command that wants them."""
    from ztorch.model.model import Model

    instead = f"{verb} the model instead: ztorch {verb} file.py:name"
    if metadata.model is None:
        lambdas = [layer.name for layer in metadata.layers if layer.class_ == "Lambda"]
        why = (f"its layer {lambdas[0]!r} is a Lambda, and a function cannot be written down"
               if lambdas else "it was written by an older ztorch, or from a model that cannot be "
               "written down")
        raise ArtifactError(f"{path} does not describe its model: {why}; {instead}")
    losses = {name: _described(loss) for name, loss in metadata.loss.items() if loss}
    try:
        model = Model.from_json(json.dumps(metadata.model))
        return model.trace(
            batch_size or metadata.batch_size,
            metadata.optimizer and optimizer(_described(metadata.optimizer), None),
            losses.get("", losses or None), dtype=metadata.dtype, seed=metadata.seed,
            loss_weights={name: metadata.loss_weights[name] for name in losses}
            if losses and "" not in losses else None)
    except (KeyError, TypeError, AttributeError) as error:
        raise ArtifactError(f"{path} holds a damaged description of its model ({error!r}); "
                            f"{instead}") from None
    except ZtorchError as error:
        raise ArtifactError(f"{path}: its model cannot be made again: {error}. Where it has layers "
                            f"of your own, {instead}") from None


def _described(settings: NamedConfig) -> dict[str, Any]:
    """A loss or an optimizer as `get` of its family takes it."""
    return {"class_name": settings.name, "config": settings.config}
