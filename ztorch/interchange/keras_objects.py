"""`keras.saving` for user-defined classes: registered names, and objects as configs and back."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from ztorch.config import Named
from ztorch.errors import ConfigError, Unsupported, unknown
from ztorch.interchange.keras_reader import KerasReader
from ztorch.layers.layer import Layer
from ztorch.names.own_classes import classes_by_name, known_as
from ztorch.names.own_functions import registered
from ztorch.weights.keras_classes import user_class
from ztorch.weights.keras_configs import KerasWriter, named

Registered = TypeVar("Registered", bound=Callable[..., Any])


def register_keras_serializable(package: str = "Custom",
                                name: str | None = None) -> Callable[[Registered], Registered]:
    """Registers a class or a function under the name that Keras files use for it, `package>name`.

    A subclass of Layer, Loss, Metric and the like is known by its class name once it is defined, so
    only files that Keras wrote, or will read, need a registered name. A registered function may be
    the activation of a layer that is saved.

    Args:
        package: The first part of the name. Default: `"Custom"`.
        name: The second part. None: the name of the class. Default: `None`.

    Examples:
        >>> import ztorch as zt
        >>> @zt.saving.register_keras_serializable(package="mine")
        ... class Twice(zt.layers.Layer):
        ...     def call(self, x):
        ...         return 2.0 * x
        >>> zt.saving.get_registered_name(Twice)
        'mine>Twice'
    """
    def register(member: Registered) -> Registered:
        full = f"{package}>{name or member.__name__}"
        registered[full] = member
        if isinstance(member, type) and issubclass(member, Named):
            member.registered_as = full
        return member

    return register


def get_registered_name(obj: Any) -> str:
    """The registered name of a class or a function; its `__name__` where it has none.

    Args:
        obj: The class or function.

    Examples:
        >>> import ztorch as zt
        >>> get_registered_name(zt.layers.Dense)
        'Dense'
    """
    return next((name for name, x in registered.items() if x is obj), obj.__name__)


def get_registered_object(name: str, custom_objects: Any = None) -> Any:
    """The class or function that is registered under a name; None where there is none.

    Args:
        name: Such as "Custom>Twice".
        custom_objects: A dict of more objects by name, which come first. Default: `None`.

    Examples:
        >>> get_registered_object("Custom>Nobody") is None
        True
    """
    return (custom_objects or {}).get(name, registered.get(name))


def get_custom_objects() -> dict[str, Any]:
    """The dict of registered functions and classes, by name. You may add to it.

    Examples:
        >>> import ztorch as zt
        >>> zt.utils.get_custom_objects()["twice"] = lambda x: 2.0 * x
        >>> zt.layers.Dense(3, activation="twice")(zt.ones((1, 2))).shape
        (1, 3)
        >>> del zt.utils.get_custom_objects()["twice"]
    """
    return registered


@contextmanager
def custom_object_scope(custom_objects: Any) -> Iterator[None]:
    """Lets files and configs within the block name these classes and functions.

    Args:
        custom_objects: Classes and functions by name, or a list of them.

    Examples:
        >>> import ztorch as zt
        >>> with custom_object_scope({"Mine": zt.layers.Dense}):
        ...     zt.layers.Layer.get({"class_name": "Mine", "config": {"units": 3}}).units
        3
    """
    with known_as(classes_by_name(custom_objects)):
        yield


def serialize_keras_object(obj: Any) -> Any:
    """The config that Keras writes for a layer, an initializer or a similar object, ready for JSON.

    For the `get_config` of a class that takes such objects as arguments.

    Args:
        obj: The object, or lists and dicts of them; JSON values are returned unchanged.

    Raises:
        Unsupported: Keras cannot write it; the message says why.

    Examples:
        >>> import ztorch as zt
        >>> serialize_keras_object(zt.layers.Dense(3))["class_name"]
        'Dense'
    """
    if isinstance(obj, Layer):
        writer = KerasWriter()
        spec = writer.layer(obj.stands_for)
        if writer.problems:
            raise Unsupported("\n".join(writer.problems))
        return spec
    if isinstance(obj, Named):
        return named(obj, "serialize_keras_object")
    if isinstance(obj, (list, tuple)):
        return [serialize_keras_object(x) for x in obj]
    if isinstance(obj, dict):
        return {key: serialize_keras_object(x) for key, x in obj.items()}
    if obj is None or isinstance(obj, (bool, int, float, str)):
        return obj
    raise ConfigError(f"serialize_keras_object({obj!r}) takes layers, losses and other objects "
                      "with a config, and numbers, strings, lists and dicts")


def deserialize_keras_object(config: Any, custom_objects: Any = None) -> Any:
    """The object of a config that `serialize_keras_object` made, in ztorch or in Keras.

    Args:
        config: The config.
        custom_objects: More classes that it may name. Default: `None`.

    Raises:
        Unsupported: ztorch lacks the object.
        ConfigError: No class has the name in the config.

    Examples:
        >>> import ztorch as zt
        >>> deserialize_keras_object(serialize_keras_object(zt.layers.Dense(3))).units
        3
    """
    if isinstance(config, list):
        return [deserialize_keras_object(x, custom_objects) for x in config]
    if not isinstance(config, dict):
        return config
    if "class_name" not in config:
        return {key: deserialize_keras_object(x, custom_objects) for key, x in config.items()}
    name = config["class_name"]
    with custom_object_scope(custom_objects or {}):
        for family in Named.families:
            kind = user_class(family, config) or family.known.get(name)
            if kind is not None and not issubclass(kind, Layer):
                return kind.from_config(dict(config["config"]))
        reader = KerasReader(f"the config of {name}", None, frozenset())
        layer = reader.layer(config)
        if reader.problems:
            raise Unsupported("\n".join(reader.problems))
    if layer is None:
        raise unknown("class", name, Layer.known)
    return layer


CustomObjectScope = custom_object_scope
