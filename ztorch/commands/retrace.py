"""Artifacts on the command line: told apart from models, and traced again by their description."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ztorch.commands.recipe import optimizer, zoo
from ztorch.errors import ArtifactError, ConfigError, ZtorchError
from ztorch.runtime.buckets import BATCH

if TYPE_CHECKING:
    from ztorch.compile.traced_model import TracedModel
    from ztorch.runtime.snapshot import Metadata, NamedConfig


def need_artifact(name: str) -> None:
    """Raises where a model is named in place of an artifact."""
    in_zoo = name.partition(":")[0] in zoo() and not Path(name).exists()
    if in_zoo or ".py:" in name or name.endswith(".py"):
        raise ConfigError(f"{name} is a model, and this takes an artifact; make one first: ztorch "
                          f"train {name} --out FILE.zt, or ztorch export {name} -o FILE.zt")


def retrace(path: str, metadata: Metadata, command: str,
            batch_size: int | tuple[int, ...] | None = None) -> TracedModel:
    """The graphs of the model that an artifact describes, without its metrics.

    Args:
        path: The artifact.
        metadata: What it says of its program.
        command: The command that needs the graphs, for errors.
        batch_size: The rows of a batch; None: as in the artifact. Default: `None`.
    """
    from ztorch.model.model import Model

    instead = f"{command} the model instead: ztorch {command} file.py:name"
    if metadata.model is None:
        lambdas = [row.name for row in metadata.layers if row.class_ == "Lambda"]
        why = (f"its layer {lambdas[0]!r} is a Lambda, and a function cannot be written down"
               if lambdas else "it was written by an older ztorch, or from a model that cannot be "
               "written down")
        raise ArtifactError(f"{path} does not describe its model: {why}; {instead}")

    sizes = dict(metadata.axes)
    rows = sizes.pop(BATCH, ())
    losses = {name: _described(loss) for name, loss in metadata.loss.items() if loss}
    several = losses and "" not in losses
    try:
        model = Model.from_json(json.dumps(metadata.model))
        return model.trace(
            batch_size or (len(rows) > 1 and rows) or metadata.batch_size,
            metadata.optimizer and optimizer(_described(metadata.optimizer), None),
            losses.get("", losses or None), dtype=metadata.dtype, seed=metadata.seed,
            loss_weights={name: metadata.loss_weights[name] for name in losses} if several
            else None, sizes=sizes or None)
    except (KeyError, TypeError, AttributeError) as error:
        raise ArtifactError(f"{path} holds a damaged description of its model ({error!r}); "
                            f"{instead}") from None
    except ZtorchError as error:
        raise ArtifactError(f"{path}: its model cannot be made again: {error}. Where it has layers "
                            f"of your own, {instead}") from None


def _described(settings: NamedConfig) -> dict[str, Any]:
    """A loss or an optimizer as `get` of its family takes it."""
    return {"class_name": settings.name, "config": settings.config}
