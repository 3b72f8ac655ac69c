"""Models by name: from the zoo, or from a Python file."""

from __future__ import annotations

import importlib.util
import inspect
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from ztorch.errors import ConfigError, ZtorchError, unknown
from ztorch.host import assets

if TYPE_CHECKING:
    from ztorch.model.model import Model


@dataclass(frozen=True)
class Recipe:
    """A model with what its file says about training; None where it says nothing."""

    model: Model
    data: str | None = None
    target: str = "y"  # what it learns to give; "x" for an autoencoder
    loss: Any = None
    optimizer: Any = None
    learning_rate: float | None = None  # at which training starts
    schedule: Any = None  # how it goes on
    metrics: Any = ()
    epochs: int = 10
    batch_size: int = 32
    decode: bool = False  # whether its programs can also generate
    small: dict[str, Any] | None = None  # arguments of `build` for a small variant
    stand_in: str | None = None  # data that come with ztorch, where others are meant
    bar: dict[str, float] | None = None  # what training as described reaches on test data


def zoo() -> list[str]:
    """The names of the models that come with ztorch.

    >>> "digits_mlp" in zoo()
    True
    """
    return sorted(p.stem for p in assets.folder("models").glob("[a-z]*.py"))


def find(name: str) -> Recipe:
    """The model of a zoo name, or of `path/to/file.py:attribute` (`build` if left out).

    The attribute is a Sequential or a Model, or a function without arguments that returns one.
    Large models of the zoo have a small variant, `name:small`.

    >>> find("digits_mlp").data, find("resnet18:small").data
    ('digits', 'shapes_64')
    """
    if name.endswith(".zt"):
        raise ConfigError(f"{name} is an artifact: a model that is compiled already. Name the "
                          "model it was made from; an artifact is for `ztorch inspect`, `run`, "
                          "`show`, `train` and `verify`, and in Python for zt.load")
    name = name.removesuffix(":")
    path, _, attribute = name.partition(".py:") if ".py:" in name else (name, "", "")
    if attribute or path.endswith(".py"):
        return _recipe(_run(Path(path if path.endswith(".py") else f"{path}.py")),
                       attribute or "build")
    name, _, variant = name.partition(":")
    if name not in zoo():
        raise ConfigError(f"{unknown('model', name, zoo())}, or path/to/file.py:attribute")
    if variant not in ("", "small"):
        raise ConfigError(f"model {name!r} has no variant {variant!r}; large ones have "
                          f"{name}:small")
    return _recipe(_run(assets.folder("models") / f"{name}.py"), "build", bool(variant))


def _run(path: Path) -> ModuleType:
    """The module a file makes; what it imports from its own folder is found, as in a script."""
    if not path.is_file():
        raise ConfigError(f"there is no model file {path}; give path/to/file.py:attribute, or one "
                          f"of {', '.join(zoo())}")
    spec = importlib.util.spec_from_file_location(f"ztorch_model_{path.stem}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    sys.path.insert(0, str(path.parent))
    run = spec.loader.exec_module
    try:
        _guarded(lambda: run(module), path)
    finally:
        sys.path.remove(str(path.parent))
    return module


def _guarded(code: Callable[[], Any], path: Path) -> Any:
    """What somebody's code gives; it may raise what it likes, which is an error of that file."""
    try:
        return code()
    except ZtorchError:
        raise
    except SystemExit as error:
        raise ConfigError(f"{path} ended with sys.exit({error.code!r}) before it gave a model") \
            from error
    except Exception as error:
        raise ConfigError(f"{path}{_line(error, path)}: {type(error).__name__}: "
                          f"{error}") from error


def _kind(x: Any) -> str:
    return "None" if x is None else f"a {type(x).__name__}"


def _line(error: Exception, path: Path) -> str:
    if isinstance(error, SyntaxError):
        return f", line {error.lineno}"
    lines = [f.lineno for f in traceback.extract_tb(error.__traceback__) if f.filename == str(path)]
    return f", line {lines[-1]}" if lines else ""


def _recipe(module: ModuleType, attribute: str, small: bool = False) -> Recipe:
    from ztorch.model.model import Model

    found: Any = module
    for part in attribute.split("."):
        if not hasattr(found, part):
            models = [n for n, v in vars(module).items() if isinstance(v, Model)
                      or (inspect.isfunction(v) and v.__module__ == module.__name__)]
            if not models:
                raise ConfigError(f"{module.__file__} has no model; write a function build() that "
                                  "returns a ztorch.Sequential or ztorch.Model")
            raise ConfigError(f"{module.__file__}: {unknown('attribute', attribute, models)}")
        found = getattr(found, part)
    arguments = getattr(module, "SMALL", None)
    if small and arguments is None:
        raise ConfigError(f"{module.__file__} names no SMALL model; the model itself is small")
    given = arguments or {} if small else {}
    what = f"{attribute} is"
    if callable(found) and not isinstance(found, Model):
        what = f"{attribute}() returned"
        try:
            inspect.signature(found).bind()
        except TypeError as error:
            raise ConfigError(f"{module.__file__}: {attribute}() cannot be called without "
                              f"arguments: {error}") from error
        made = found
        found = _guarded(lambda: made(**given), Path(str(module.__file__)))
    if not isinstance(found, Model):
        raise ConfigError(f"{module.__file__}: {what} {_kind(found)}, not a ztorch.Sequential "
                          "or ztorch.Model, or a function that returns one")

    def said(constant: str, otherwise: Any) -> Any:
        return getattr(module, constant, otherwise)

    return Recipe(found, said("DATA", None), said("TARGET", "y"), said("LOSS", None),
                  said("OPTIMIZER", None), said("LEARNING_RATE", None), said("SCHEDULE", None),
                  said("METRICS", ()), said("EPOCHS", 10), said("BATCH_SIZE", 32),
                  said("DECODE", False), arguments, said("STAND_IN", None), said("BAR", None))


def optimizer(spec: Any, rate: Any) -> Any:
    """The optimizer of a name or description, at another learning rate if one is given."""
    from ztorch.optimizers import Optimizer

    made = Optimizer.get("adam" if spec is None else spec)
    if rate is None:
        return made
    return type(made).from_config({**made.get_config(), "learning_rate": rate})
