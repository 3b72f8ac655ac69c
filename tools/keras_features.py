"""Writes docs/keras_features.md: each public name of Keras, and its name here.

    python -m tools.keras_features > docs/keras_features.md
"""

from __future__ import annotations

import importlib
import inspect
import os
from typing import Any

import ztorch as zt
from ztorch.errors import ZtorchError
from ztorch.names.names_elsewhere import REPLACEMENTS

HEAD = """# Keras, name by name

Every public name of Keras {version}, and its equivalent in ztorch. A dash means that there is
none, with the reason. `python -m tools.keras_features > docs/keras_features.md` writes this page.

Layers take Keras' arguments, defaults and weights, and refuse unsupported arguments by name. A
layer called with `training=False` stays in that mode, as Keras' guides say; in Keras 3 itself it
trains once it is unfrozen.
"""
GROUPS = {  # of Keras: the module here that has the same names
    "layers": zt.layers, "losses": zt.losses, "metrics": zt.metrics, "optimizers": zt.optimizers,
    "optimizers.schedules": zt.schedules, "callbacks": zt.callbacks,
    "initializers": zt.initializers, "regularizers": None, "constraints": None, "ops": zt.ops,
    "ops.image": zt.ops, "random": None, "utils": None, "activations": None, "config": None,
    "mixed_precision": None, "models": None, "preprocessing": None, "saving": None, "tree": None}
_OF_FUNCTIONS = ("ops", "ops.image", "random", "utils", "activations", "config", "models", "saving",
                 "mixed_precision", "preprocessing", "tree")
# Features that have another name here.
OTHER_NAMES = {
    ("ops", "gelu"): "`ops.gelu`, exact by default (Keras' is the approximate one)",
    ("layers", "TorchModuleWrapper"): "`model.load_weights`",
    ("layers", "Pipeline"): "`Sequential`, which is a layer, too",
    ("layers", "HashedCrossing"): "a column of joined texts, and `layers.Hashing`",
    **dict.fromkeys((("layers", name) for name in ("FlaxLayer", "JaxLayer", "TFSMLayer")),
                    "-: code of another framework; bring its model as ONNX"),
    ("layers", "MaxNumBoundingBoxes"): "-: there are no bounding boxes",
    ("ops", "custom_gradient"): "`zt.custom_gradient`",
    **dict.fromkeys(((group, name) for group in ("utils", "config") for name in (
        "enable_interactive_logging", "disable_interactive_logging",
        "is_interactive_logging_enabled")), "`fit(verbose=...)`"),
    ("utils", "get_file"): "-: ztorch downloads nothing",
    ("callbacks", "OrbaxCheckpoint"): "-: files of JAX; `callbacks.ModelCheckpoint`",
    ("callbacks", "CallbackList"): "`fit(callbacks=[...])`",
    ("callbacks", "History"): "the result of `fit`",
    **dict.fromkeys((("config", name) for name in (
        "enable_flash_attention", "disable_flash_attention", "is_flash_attention_enabled")),
                    "-: the compiler fuses attention by itself"),
    ("config", "enable_traceback_filtering"): "-: tracebacks are always whole",
    ("config", "enable_unsafe_deserialization"): "-: files never hold code that runs",
    ("config", "is_nnx_enabled"): "-: of JAX",
    ("config", "set_backend"): "-: there is one",
    **{("config", name): "`fit(epochs=..., steps_per_epoch=...)`" for name in (
        "max_epochs", "max_steps_per_epoch", "set_max_epochs", "set_max_steps_per_epoch")},
    ("mixed_precision", "LossScaleOptimizer"): "`optimizers.LossScaleOptimizer`",
    ("saving", "KerasFileEditor"): "`zt.load_model`, and `model.get_weights`",
    ("tree", "traverse"): "-: `tree.map_structure`", ("tree", "MAP_TO_NONE"): "-: of `traverse`",
    ("tree", "assert_same_paths"): "`tree.assert_same_structure`",
    ("tree", "map_shape_structure"): "`tree.map_structure`",
}


def page() -> str:
    """The page. Keras has to be installed."""
    os.environ.setdefault("KERAS_BACKEND", "torch")
    keras: Any = importlib.import_module("keras")
    parts = [HEAD.format(version=keras.__version__), _modules(keras)]
    for group, module in GROUPS.items():
        theirs = importlib.import_module(f"keras.{group}")
        counterpart = module or getattr(zt, group, None)
        names = [name for name, member in vars(theirs).items()
                 if _counts(group, name, member)]
        rows = {name: _here(group, name, counterpart) for name in sorted(names)}
        count = sum(not cell.startswith("-") for cell in rows.values())
        parts.append(f"\n## keras.{group}\n\n{count} of {len(rows)} are here.\n\n"
                     "| Keras | here |\n| --- | --- |\n")
        parts += [f"| `{name}` | {cell} |\n" for name, cell in rows.items()]
    return "".join(parts)


def _modules(keras: Any) -> str:
    """The modules and the names of the package itself."""
    names = [name for name in dir(keras) if not name.startswith("_") and name != "src"]
    cells = {name: f"`zt.{name}`" if _offers(zt, name) else
             REPLACEMENTS.get(name, "-").replace("nothing:", "-:") for name in names}
    count = sum(cell == f"`zt.{name}`" for name, cell in cells.items())
    return (f"\n## keras\n\n{count} of {len(cells)} modules and names are here; the error for "
            "a missing one repeats its row.\n\n| Keras | here |\n| --- | --- |\n"
            + "".join(f"| `{name}` | {cell} |\n" for name, cell in cells.items()))


def _counts(group: str, name: str, member: Any) -> bool:
    """Whether a member of a module is one of its features: a class, not its alias in snake case,
    or a function of ops."""
    if group in _OF_FUNCTIONS:
        return callable(member) and not name.startswith("_")
    return inspect.isclass(member) and name[0].isupper()


def _here(group: str, name: str, module: Any) -> str:
    """The table cell for a name of Keras."""
    if (group, name) in OTHER_NAMES:
        return OTHER_NAMES[group, name]
    if module is not None and _offers(module, name):
        room = group if GROUPS[group] is None else module.__name__.removeprefix("ztorch.")
        return f"`{room}.{name}`"
    return "-"


def _offers(module: Any, name: str) -> bool:
    try:
        return hasattr(module, name)
    except (ZtorchError, AttributeError):
        return False


if __name__ == "__main__":
    print(page(), end="")
