"""Finds a model by name, in the zoo or in a Python file, with what its file says of training."""

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
    """A model, and the constants in its file that say how it is trained."""

    model: Model
    data: str | None = None  # DATA: the name of a data set
    target: str = "y"  # TARGET: what it learns; "x" for an autoencoder
    loss: Any = None  # LOSS
    optimizer: Any = None  # OPTIMIZER
    learning_rate: float | None = None  # LEARNING_RATE: of the first step
    schedule: Any = None  # SCHEDULE: of the learning rate
    metrics: Any = ()  # METRICS
    epochs: int = 10  # EPOCHS
    batch_size: int = 32  # BATCH_SIZE
    decode: bool = False  # DECODE: whether its programs can generate
    small: dict[str, Any] | None = None  # SMALL: arguments of `build` for a small variant
    stand_in: str | None = None  # STAND_IN: data that come with ztorch, in place of DATA
    bar: dict[str, float] | None = None  # BAR: scores on test data that training reaches


def zoo() -> list[str]:
    """The names of the models that come with ztorch.

    >>> "digits_mlp" in zoo()
    True
    """
    return sorted(p.stem for p in assets.folder("models").glob("[a-z]*.py"))


def find(name: str) -> Recipe:
    """The model with a name of the zoo, or in `path/to/file.py:attribute` (default: `build`).

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
        return _recipe(_import(Path(path if path.endswith(".py") else f"{path}.py")),
                       attribute or "build")
    name, _, variant = name.partition(":")
    if name not in zoo():
        raise ConfigError(f"{unknown('model', name, zoo())}, or path/to/file.py:attribute")
    if variant not in ("", "small"):
        raise ConfigError(f"model {name!r} has no variant {variant!r}; large ones have "
                          f"{name}:small")
    return _recipe(_import(assets.folder("models") / f"{name}.py"), "build", bool(variant))


def _import(path: Path) -> ModuleType:
    """Runs a file as a module. It can import files beside it, as a script can."""
    if not path.is_file():
        raise ConfigError(f"there is no model file {path}; give path/to/file.py:attribute, or one "
                          f"of {', '.join(zoo())}")
    spec = importlib.util.spec_from_file_location(f"ztorch_model_{path.stem}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    sys.path.insert(0, str(path.parent))
    execute = spec.loader.exec_module
    try:
        _guarded(lambda: execute(module), path)
    finally:
        sys.path.remove(str(path.parent))
    return module


def _guarded(code: Callable[[], Any], path: Path) -> Any:
    """The result of a user's code. Whatever it raises becomes an error that names its file."""
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
    small_arguments = getattr(module, "SMALL", None)
    if small and small_arguments is None:
        raise ConfigError(f"{module.__file__} names no SMALL model; the model itself is small")
    model = _model(module, attribute, small_arguments or {} if small else {})

    def constant(name: str, default: Any) -> Any:
        return getattr(module, name, default)

    return Recipe(
        model=model, data=constant("DATA", None), target=constant("TARGET", "y"),
        loss=constant("LOSS", None), optimizer=constant("OPTIMIZER", None),
        learning_rate=constant("LEARNING_RATE", None), schedule=constant("SCHEDULE", None),
        metrics=constant("METRICS", ()), epochs=constant("EPOCHS", 10),
        batch_size=constant("BATCH_SIZE", 32), decode=constant("DECODE", False),
        small=small_arguments, stand_in=constant("STAND_IN", None), bar=constant("BAR", None))


def _model(module: ModuleType, attribute: str, arguments: dict[str, Any]) -> Model:
    """The model that an attribute of a module is, or that it returns for these arguments."""
    from ztorch.model.model import Model

    candidate = _attribute(module, attribute)
    phrase = f"{attribute} is"
    if callable(candidate) and not isinstance(candidate, Model):
        phrase = f"{attribute}() returned"
        function = candidate
        try:
            inspect.signature(function).bind()
        except TypeError as error:
            raise ConfigError(f"{module.__file__}: {attribute}() cannot be called without "
                              f"arguments: {error}") from error
        candidate = _guarded(lambda: function(**arguments), Path(str(module.__file__)))
    if not isinstance(candidate, Model):
        raise ConfigError(f"{module.__file__}: {phrase} {_kind(candidate)}, not a "
                          "ztorch.Sequential or ztorch.Model, or a function that returns one")
    return candidate


def _attribute(module: ModuleType, path: str) -> Any:
    """An attribute of a module, by a name with points."""
    from ztorch.model.model import Model

    value: Any = module
    for name in path.split("."):
        if not hasattr(value, name):
            models = [n for n, v in vars(module).items() if isinstance(v, Model)
                      or (inspect.isfunction(v) and v.__module__ == module.__name__)]
            if not models:
                raise ConfigError(f"{module.__file__} has no model; write a function build() that "
                                  "returns a ztorch.Sequential or ztorch.Model")
            raise ConfigError(f"{module.__file__}: {unknown('attribute', path, models)}")
        value = getattr(value, name)
    return value


def optimizer(spec: Any, rate: Any) -> Any:
    """The optimizer with a name or config; adam without one. `rate`, where it is not None, is its
    learning rate or schedule."""
    from ztorch.optimizers import Optimizer

    chosen = Optimizer.get("adam" if spec is None else spec)
    if rate is None:
        return chosen
    return type(chosen).from_config({**chosen.get_config(), "learning_rate": rate})


def training_options(recipe: Recipe, loss: Any) -> dict[str, Any]:
    """The options of `compile` and `trace` to train as a recipe says; none without a loss."""
    if loss is None:
        return {}
    return {"loss": loss, "metrics": recipe.metrics,
            "optimizer": optimizer(recipe.optimizer, recipe.learning_rate)}
