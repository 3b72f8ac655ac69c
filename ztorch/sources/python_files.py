"""Loads models from Python files, of users and of the zoo."""

from __future__ import annotations

import importlib.util
import inspect
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from ztorch.errors import ConfigError, ZtorchError, unknown
from ztorch.runtime.buckets import ROWS
from ztorch.sources.recipe import Recipe

if TYPE_CHECKING:
    from ztorch.model.model import Model


def import_file(path: Path) -> ModuleType:
    """Runs a file as a module. It can import files beside it, as a script can."""
    if not path.is_file():
        raise ConfigError(f"there is no model file {path}; pass path/to/file.py:attribute, or a "
                          "model that `ztorch zoo` lists")
    spec = importlib.util.spec_from_file_location(f"ztorch_model_{path.stem}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    sys.path.insert(0, str(path.parent))
    execute = spec.loader.exec_module
    try:
        _run_user_code(lambda: execute(module), path)
    finally:
        sys.path.remove(str(path.parent))
    return module


def _run_user_code(code: Callable[[], Any], path: Path) -> Any:
    """Runs a user's code, and turns its exceptions into an error that names the file."""
    try:
        return code()
    except ZtorchError:
        raise
    except SystemExit as error:
        raise ConfigError(f"{path} ended with sys.exit({error.code!r}) before it returned a "
                          "model") from error
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


def recipe_in(module: ModuleType, attribute: str = "", small: bool = False) -> Recipe:
    """The model that an attribute of a module is or returns, and the constants of the module.

    Args:
        module: The module.
        attribute: A name, which may have dots. Empty: `build`, or the only model of the module,
            or `model`. Default: `""`.
        small: Whether to take the small variant. Default: `False`.
    """
    small_arguments = getattr(module, "SMALL", None)
    if small and small_arguments is None:
        raise ConfigError(f"{module.__file__} has no SMALL variant; the model itself is small")
    model = _model(module, attribute or _default(module), small_arguments or {} if small else {})

    def constant(name: str, default: Any) -> Any:
        return getattr(module, name, default)

    small_data = constant("SMALL_DATA", None)
    has_data = small or small_data is None  # the bar is for DATA alone

    return Recipe(
        model=model, data=(small and small_data) or constant("DATA", None),
        target=constant("TARGET", "y"), loss=constant("LOSS", None),
        optimizer=constant("OPTIMIZER", None),
        learning_rate=constant("LEARNING_RATE", None), schedule=constant("SCHEDULE", None),
        metrics=constant("METRICS", ()), epochs=constant("EPOCHS", 10),
        batch_size=constant("BATCH_SIZE", model.declared_batch_size or ROWS),
        decode=constant("DECODE", False),
        small=small_arguments, small_data=small_data, stand_in=constant("STAND_IN", None),
        bar=constant("BAR", None) if has_data else None)


def _default(module: ModuleType) -> str:
    """The attribute to load if none is named."""
    from ztorch.model.model import Model

    models = [name for name, value in vars(module).items() if isinstance(value, Model)]
    if hasattr(module, "build") or not models:
        return "build"
    if len(models) > 1 and "model" not in models:
        raise ConfigError(f"{module.__file__} has several models ({', '.join(models)}); name one: "
                          f"{Path(str(module.__file__)).name}:{models[0]}")
    return models[0] if len(models) == 1 else "model"


def _model(module: ModuleType, attribute: str, arguments: dict[str, Any]) -> Model:
    """The model in an attribute of a module, or the one that it returns for these arguments."""
    from ztorch.model.model import Model

    candidate = attribute_of(module, attribute)
    phrase = f"{attribute} is"
    if callable(candidate) and not isinstance(candidate, Model):
        phrase = f"{attribute}() returned"
        function = candidate
        try:
            inspect.signature(function).bind()
        except TypeError as error:
            raise ConfigError(f"{module.__file__}: {attribute}() cannot be called without "
                              f"arguments: {error}. A kernel or another function of tensors needs "
                              "--shapes") from error
        candidate = _run_user_code(lambda: function(**arguments), Path(str(module.__file__)))
    if not isinstance(candidate, Model):
        raise ConfigError(f"{module.__file__}: {phrase} {_kind(candidate)}, not a "
                          "ztorch.Sequential or ztorch.Model, or a function that returns one")
    return candidate


def attribute_of(module: ModuleType, path: str) -> Any:
    """An attribute of a module, by a name that may have dots."""
    from ztorch.model.model import Model

    value: Any = module
    for name in path.split("."):
        if not hasattr(value, name):
            models = [n for n, v in vars(module).items() if isinstance(v, Model)
                      or (callable(v) and getattr(v, "__module__", "") == module.__name__)]
            if not models:
                raise ConfigError(f"{module.__file__} has no model; write a function build() that "
                                  "returns a ztorch.Sequential or ztorch.Model")
            raise ConfigError(f"{module.__file__}: {unknown('attribute', path, models)}")
        value = getattr(value, name)
    return value
