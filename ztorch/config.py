"""Families of named, configurable things: layers, losses, metrics, optimizers, initializers.

A member is described by the arguments it was made with, so it needs no code to be saved and read
back: every parameter of `__init__` is kept as an attribute of the same name.
"""

from __future__ import annotations

import functools
import inspect
import math
import operator
from collections.abc import Callable, Mapping
from numbers import Real
from typing import TYPE_CHECKING, Any, ClassVar

from ztorch.errors import ConfigError, Unsupported, unknown

if TYPE_CHECKING:
    from typing_extensions import Self  # in typing from Python 3.11 on

# No layer may take these names: states of the optimizer and of randomness lie beside its weights.
RESERVED = ("optimizer", "random")
_MOST = 1 << 40  # of anything: beyond, sizes in bytes would leave what machines count with


class Named:
    """Base of a family. Subclassing registers: `class MSE(Loss, names=("mse",))`."""

    family: ClassVar[str] = ""
    known: ClassVar[dict[str, Any]] = {}  # every accepted name
    names: ClassVar[tuple[str, ...]] = ()  # the member's own short names, the first one shown

    def __init_subclass__(cls, family: str = "", names: tuple[str, ...] = (),
                          abstract: bool = False, **more: Any) -> None:
        super().__init_subclass__(**more)
        if "__init__" in vars(cls):
            cls.__init__ = _with_flags_checked(cls.__init__)  # type: ignore[method-assign]
        if family:
            cls.family, cls.known = family, {}
        elif not abstract and not cls.__name__.startswith("_"):
            cls.names = names
            for name in (*names, cls.__name__):
                cls.known[name] = cls

    @classmethod
    def get(cls, spec: Any) -> Self:
        """A member from its name, its description, its class or itself.

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
        shown = next((m.names[0] for m in cls.known.values() if getattr(m, "names", ())),
                     next(iter(cls.known), ""))
        raise ConfigError(f"{spec!r} is no {cls.family}; give a name such as {shown!r}, "
                          f"or an instance")

    @classmethod
    def named(cls, name: str) -> type[Self]:
        """The class of that name, whatever the case."""
        if not isinstance(name, str):
            raise ConfigError(f"the name of a {cls.family} is a text, not {name!r}")
        if name in cls.known:
            return cls.known[name]
        folded = {known.lower(): member for known, member in cls.known.items()}
        if name.lower() in folded:
            return folded[name.lower()]
        shown = {member.names[0] if member.names else known
                 for known, member in cls.known.items()}
        raise unknown(cls.family, name, shown, cls.known)

    @classmethod
    def refuse(cls, wrong: Mapping[str, Any]) -> None:
        """An error for keyword arguments that neither the member nor its bases know."""
        if wrong:
            name = next(iter(wrong))
            if name.endswith(("_regularizer", "_constraint")):
                raise Unsupported(f"{cls.__name__}({name}=...): there are no regularizers or "
                                  "constraints of single weights; optimizer=AdamW(weight_decay="
                                  "0.004) keeps all of them small")
            known = {p.name for c in cls.__mro__ if issubclass(c, Named) and "__init__" in vars(c)
                     for p in inspect.signature(c.__init__).parameters.values()
                     if p.name != "self" and p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)}
            raise unknown(f"argument of {cls.__name__}", name, known)

    def get_config(self) -> dict[str, Any]:
        """The arguments this was made with, ready for JSON."""
        parameters = inspect.signature(type(self).__init__).parameters.values()
        named = [p.name for p in parameters if p.name != "self" and p.kind not in (
            p.VAR_KEYWORD, p.VAR_POSITIONAL)]
        return {name: described(getattr(self, name), f"{type(self).__name__}({name}=...)")
                for name in named}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        """The member that `get_config` described."""
        try:
            inspect.signature(cls).bind(**config)
        except TypeError as error:
            raise ConfigError(f"this config does not describe a {cls.__name__}: {error}") from None
        return cls(**config)

    def __repr__(self) -> str:
        inner = ", ".join(f"{k}={v!r}" for k, v in self.get_config().items())
        return f"{type(self).__name__}({inner})"


def _with_flags_checked(init: Callable[..., None]) -> Callable[..., None]:
    """An `__init__` whose parameters of type bool take nothing else: "False" would be true."""
    signature = inspect.signature(init)
    flags = [p.name for p in signature.parameters.values() if p.annotation in ("bool", bool)]
    if not flags:
        return init

    @functools.wraps(init)
    def checked(self: Any, *args: Any, **keywords: Any) -> None:
        try:
            bound = signature.bind(self, *args, **keywords)
        except TypeError:
            return init(self, *args, **keywords)  # which says what is wrong
        for name in flags:
            if name in bound.arguments:
                bound.arguments[name] = flag(f"{type(self).__name__}({name}=...)",
                                             bound.arguments[name])
        return init(*bound.args, **bound.kwargs)

    return checked


def described(x: Any, owner: str) -> Any:
    """x as JSON can hold it; members become a class name with a config."""
    if isinstance(x, Named):
        return {"class_name": type(x).__name__, "config": x.get_config()}
    if isinstance(x, (list, tuple)):
        return [described(item, owner) for item in x]
    if x is None or isinstance(x, (bool, int, float, str, dict)):
        return x
    if hasattr(x, "item") and getattr(x, "ndim", 1) == 0:  # a NumPy number
        return x.item()
    name = getattr(x, "__name__", type(x).__name__)
    raise ConfigError(f"{owner}: {name} cannot be written to a config; use a registered name")


def flag(label: str, x: Any) -> bool:
    """x as True or False, or a ConfigError that names it.

    >>> flag("Dense(use_bias=...)", True)
    True
    """
    if isinstance(x, bool):
        return x
    if type(x).__name__ in ("bool", "bool_") and hasattr(x, "dtype"):  # NumPy's own
        return bool(x)
    raise ConfigError(f"{label} must be True or False, not {x!r}")


def positive(label: str, n: Any) -> int:
    """n as a whole number of at least one, or a ConfigError that names it."""
    whole_number = _index(n)
    if whole_number is None or whole_number < 1:
        raise ConfigError(f"{label} must be a positive whole number, not {n!r}")
    if whole_number > _MOST:
        raise ConfigError(f"{label} is {n!r}, more than any machine can hold; is it a mistake?")
    return whole_number


def _index(n: Any) -> int | None:
    """n as an int; None for what is no whole number, such as True or an array."""
    try:
        return None if isinstance(n, bool) else operator.index(n)
    except TypeError:
        return None


def whole(label: str, n: Any, least: int = 0) -> int:
    """n as a whole number of at least `least`, or a ConfigError that names it."""
    whole_number = _index(n)
    if whole_number is None or whole_number < least:
        raise ConfigError(f"{label} must be a whole number of at least {least}, not {n!r}")
    return whole_number


def whole_numbers(label: str, sequence: Any) -> tuple[int, ...]:
    """A list or tuple of whole numbers, or a ConfigError that names it.

    >>> whole_numbers("Permute(dims=...)", [2, 1])
    (2, 1)
    """
    numbers = [_index(n) for n in sequence] if isinstance(sequence, (list, tuple)) else [None]
    if None in numbers:
        raise ConfigError(f"{label} must be a tuple of whole numbers, such as (2, 1), "
                          f"not {sequence!r}")
    return tuple(n for n in numbers if n is not None)


def number(label: str, x: Any, *, least: float = -math.inf, above: float = -math.inf) -> float:
    """x as a finite number within its bounds, or a ConfigError that names it.

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
    """Any real number as a float; NaN, which no bound allows, for what is none."""
    return float(x) if isinstance(x, Real) and not isinstance(x, bool) else math.nan


def fraction(label: str, x: Any, below_one: bool = True) -> float:
    """x as a number from 0 up to (not) 1, or a ConfigError that names it."""
    value = _plain(x)
    if not (0 <= value < 1 or (value == 1 and not below_one)):
        raise ConfigError(f"{label} must be a number from 0 to 1{', below 1' if below_one else ''},"
                          f" not {x!r}")
    return value


def whole_seed(n: Any) -> int:
    """n as a seed of 64 bits; None is 0, so that a script gives the same numbers each time."""
    if n is None:
        return 0
    seed = _index(n)
    if seed is None or not 0 <= seed < 1 << 64:
        raise ConfigError(f"seed must be a whole number from 0 to 2**64 - 1, not {n!r}")
    return seed
