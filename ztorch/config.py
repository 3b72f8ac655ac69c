"""Families of named classes with a config: layers, losses, metrics, optimizers, initializers.

The config of a member holds the arguments of its `__init__`; each is an attribute of the same name.
So members need no code of their own for saving and loading. The second half checks arguments.
"""

from __future__ import annotations

import inspect
import math
import operator
from collections.abc import Mapping
from numbers import Real
from typing import TYPE_CHECKING, Any, ClassVar

from ztorch import dispatch
from ztorch.errors import ConfigError, unknown
from ztorch.flags import flag as flag
from ztorch.flags import with_flags_checked
from ztorch.names.class_names import OWN_CLASS, register
from ztorch.names.own_functions import in_memory, registered_name

if TYPE_CHECKING:
    from typing_extensions import Self  # in typing from Python 3.11 on

RESERVED = ("optimizer", "random")  # prefixes of other states beside weights: not names of layers
_MOST = 1 << 40  # largest count of anything: sizes in bytes then fit in 64 bits


class Named:
    """Base of a family. Defining a subclass registers it: `class MSE(Loss, names=("mse",))`.

    A subclass with `family="loss", such_as="mse"` starts a new family. One with `abstract=True`, or
    with a name that starts with an underscore, is not registered.
    """

    family: ClassVar[str] = ""  # the name of the family in messages
    families: ClassVar[list[type[Named]]] = []  # the bases of all families
    known: ClassVar[Any]  # the members by every accepted name, a `Members`
    such_as: ClassVar[str] = ""  # name of a member, for messages
    names: ClassVar[tuple[str, ...]] = ()  # short names of the member; messages show the first
    registered_as: ClassVar[str] = ""  # Keras' registered name of a user's class
    config_name: ClassVar[str] = ""  # the name of the class in configs
    kept_as: ClassVar[Mapping[str, str]] = {}  # attributes of arguments, where names differ

    def __init_subclass__(cls, family: str = "", such_as: str = "", names: tuple[str, ...] = (),
                          abstract: bool = False, **more: Any) -> None:
        super().__init_subclass__(**more)
        cls.config_name = cls.__name__
        if "__init__" in vars(cls):
            cls.__init__ = with_flags_checked(  # type: ignore[method-assign]
                cls.__init__, _refuse_unknown)
        if family:
            from ztorch.names.members import Members  # programs that only run have no families
            cls.family, cls.such_as, cls.known = family, such_as, Members(cls.__module__)
            Named.families.append(cls)
        elif not abstract and not cls.__name__.startswith("_"):
            cls.names = names
            register(cls)

    @classmethod
    def get(cls, spec: Any) -> Self:
        """The member for a name, a config, a class or an instance.

        Args:
            spec: A name such as `"adam"`, a dict with `class_name` and `config`, a class of the
                family, or an instance, which is returned unchanged.

        Returns:
            An instance.

        Raises:
            UnknownName: No member has this name.
            ConfigError: `spec` has another type, or the config has wrong arguments.

        Examples:
            >>> from ztorch.optimizers import Optimizer
            >>> Optimizer.get("adam").learning_rate
            0.001
        """
        if isinstance(spec, cls):
            return spec
        if isinstance(spec, str):
            return cls.named(spec)()
        if isinstance(spec, dict) and isinstance(spec.get("class_name"), str):
            return cls.named(spec["class_name"]).from_config(spec.get("config", {}))
        if isinstance(spec, type) and issubclass(spec, cls):
            return spec()
        raise ConfigError(f"{spec!r} is not a valid {cls.family}; give a name such as "
                          f"{cls.such_as!r}, or an instance")

    @classmethod
    def named(cls, name: str) -> type[Self]:
        """The class with this name, in upper or lower case."""
        if not isinstance(name, str):
            raise ConfigError(f"the name of a {cls.family} must be a string, not {name!r}")
        if name in cls.known:
            return cls.known[name]
        folded = {known.lower(): known for known in reversed(cls.known)}
        if name.lower() in folded:
            return cls.known[folded[name.lower()]]
        shown = {member.names[0] if member.names else known
                 for known, member in cls.known.items() if not known.startswith(OWN_CLASS)}
        raise unknown(cls.family, name, shown, cls.known)

    @classmethod
    def refuse(cls, wrong: Mapping[str, Any]) -> None:
        """Raises an error if there are keyword arguments that no `__init__` accepts."""
        if wrong:
            raise unknown(f"argument of {cls.__name__}", next(iter(wrong)), _arguments(cls),
                          cls.more_arguments())

    @classmethod
    def more_arguments(cls) -> list[str]:
        """Keyword arguments that no signature of `__init__` names."""
        return []

    def get_config(self) -> dict[str, Any]:
        """The arguments of this member, as values for JSON."""
        parameters = inspect.signature(type(self).__init__).parameters.values()
        several = [p.name for p in parameters if p.kind is p.VAR_POSITIONAL]
        named = [p.name for p in parameters if p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)][1:]
        init, config = (next(k for k, c in enumerate(type(self).__mro__) if method in vars(c))
                        for method in ("__init__", "get_config"))
        extends = config <= init  # a subclass may add the missing arguments
        values = vars(self)
        if several and not extends and type(self).from_config.__qualname__[:6] == "Named.":
            raise ConfigError(f"{type(self).__name__} takes *{several[0]}, which no config holds; "
                              "define get_config and from_config")
        for name in named:
            if name not in values and not hasattr(type(self), name) and not extends:
                raise ConfigError(f"{type(self).__name__} has no attribute {name!r}, which its "
                                  f"config needs; write self.{name} = {name} in its __init__, or "
                                  "define get_config")
        return {name: described(getattr(self, self.kept_as.get(name, name)),
                                f"{type(self).__name__}({name}=...)")
                for name in named if name in values or hasattr(type(self), name)}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        """The member that `get_config` described.

        Args:
            config: Arguments by name.

        Returns:
            A new instance.

        Raises:
            ConfigError: The arguments are not those of this class.
        """
        try:
            inspect.signature(cls).bind(**config)
        except TypeError as error:
            common = {"name", "trainable"} - {*inspect.signature(cls).parameters}
            fix = "; write __init__(self, ..., **common) and super().__init__(**common)" if (
                isinstance(config, Mapping) and common & {*config}) else ""
            raise ConfigError(f"this config does not describe a {cls.__name__}: {error}{fix}"
                              ) from None
        return cls(**config)

    def __repr__(self) -> str:
        inner = ", ".join(f"{k}={v!r}" for k, v in self.get_config().items())
        return f"{type(self).__name__}({inner})"


def _arguments(cls: type[Named]) -> set[str]:
    """The names of the arguments of all `__init__` of a class."""
    return {p.name for c in cls.__mro__ if issubclass(c, Named) and "__init__" in vars(c)
            for p in inspect.signature(c.__init__).parameters.values()
            if p.name != "self" and p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)}


def _refuse_unknown(cls: type[Named], keywords: Mapping[str, Any]) -> None:
    """Raises an error for the first of these arguments that nobody knows. All layers know dtype."""
    known = {*_arguments(cls), *cls.more_arguments(), "dtype"}
    cls.refuse({name: x for name, x in keywords.items() if name not in known})


def described(x: Any, owner: str) -> Any:
    """x in a form that JSON can hold; a member becomes its class name and config."""
    if (name := registered_name(getattr(x, "own_function", x))) is not None:
        return name
    if isinstance(x, Named):
        return {"class_name": type(x).config_name, "config": x.get_config()}
    if isinstance(x, (list, tuple)):
        return [described(item, owner) for item in x]
    if in_memory() or x is None or isinstance(x, (bool, int, float, str, dict)):
        return x
    if hasattr(x, "item") and getattr(x, "ndim", 1) == 0:  # a NumPy number
        return x.item()
    name = getattr(x, "__name__", type(x).__name__)
    raise ConfigError(f"{owner}: {name} cannot be written to a config; use a registered name, such "
                      "as that of a function under @zt.saving.register_keras_serializable()")


def positive(label: str, n: Any) -> int:
    """n as an integer of at least 1, or a ConfigError that begins with the label."""
    if (whole_number := _index(n)) is None or whole_number < 1:
        raise ConfigError(f"{label} must be a positive integer, not {n!r}")
    if whole_number > _MOST:
        raise ConfigError(f"{label} is {n!r}, more than any machine can hold; is it a mistake?")
    return whole_number


def ascending(label: str, sizes: Any) -> tuple[int, ...]:
    """One positive integer, or several, in ascending order.

    >>> ascending("batch_size", 8), ascending("batch_size", (32, 1))
    ((8,), (1, 32))
    """
    if not isinstance(sizes, (list, tuple)):
        return (positive(label, sizes),)
    numbers = [positive(label, n) for n in sizes]
    if not numbers or len(set(numbers)) != len(numbers):
        raise ConfigError(f"{label}={sizes!r}: list each size once, such as (1, 8, 32)")
    return tuple(sorted(numbers))


def _index(n: Any) -> int | None:
    """n as an int; None for anything else, such as True, 1.0 or an array."""
    try:
        return None if isinstance(n, bool) else operator.index(n)
    except TypeError:
        return None


def whole(label: str, n: Any, least: int = 0) -> int:
    """n as an integer of at least `least`, or a ConfigError that begins with the label."""
    if (whole_number := _index(n)) is None or whole_number < least:
        raise ConfigError(f"{label} must be an integer of at least {least}, not {n!r}")
    return whole_number


def whole_numbers(label: str, sequence: Any) -> tuple[int, ...]:
    """A list or tuple of integers as a tuple, or a ConfigError that begins with the label.

    >>> whole_numbers("Permute(dims=...)", [2, 1])
    (2, 1)
    """
    numbers = [_index(n) for n in sequence] if isinstance(sequence, (list, tuple)) else [None]
    if None in numbers:
        raise ConfigError(f"{label} must be a tuple of integers, such as (2, 1), not {sequence!r}")
    return tuple(n for n in numbers if n is not None)


def elements(label: str, sequence: Any) -> list[Any]:
    """The elements of a list, tuple or array, or a ConfigError that begins with the label.

    >>> elements("AUC(thresholds=...)", (0.2, 0.5))
    [0.2, 0.5]
    """
    if isinstance(sequence, (str, bytes, Mapping)) or not hasattr(sequence, "__iter__"):
        raise ConfigError(f"{label} must be a list, not {sequence!r}")
    return list(sequence)


def number(label: str, x: Any, *, least: float = -math.inf, above: float = -math.inf) -> float:
    """x as a finite number within bounds, or a ConfigError that begins with the label.

    >>> number("epsilon", 1e-3, above=0)
    0.001
    """
    value = _plain(x)
    if not (math.isfinite(value) and value >= least and value > above):
        bound = ("finite number" if max(least, above) == -math.inf else
                 f"number of at least {least}" if least > above else f"number above {above}")
        raise ConfigError(f"{label} must be a {bound}, not {x!r}")
    return value


def _plain(x: Any) -> float:
    """x as a float; NaN, which no bound allows, for anything that is not a real number."""
    return float(x) if isinstance(x, Real) and not isinstance(x, bool) else math.nan


def fraction(label: str, x: Any, below_one: bool = True) -> float:
    """x as a number from 0 to 1, or a ConfigError that begins with the label. 1 itself is only
    accepted with `below_one=False`."""
    value = _plain(x)
    if not (0 <= value < 1 or (value == 1 and not below_one)):
        raise ConfigError(f"{label} must be a number from 0 to 1{', below 1' if below_one else ''},"
                          f" not {x!r}")
    return value


def whole_seed(n: Any) -> int:
    """n as a seed of 64 bits. None means 0, so that a script gives the same numbers every time."""
    if n is None:
        return 0
    if (seed := _index(n)) is None or not 0 <= seed < 1 << 64:
        raise ConfigError(f"seed must be an integer from 0 to 2**64 - 1, not {n!r}")
    return seed


def __getattr__(name: str) -> Any:
    """The functions of `keras.config`, for scripts that call the package keras."""
    if name.startswith("_"):
        raise AttributeError(name)
    return dispatch.setting(name)
