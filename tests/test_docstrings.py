"""The public API is documented: each argument, the result, and an example that runs.

The API is the result of `dir(zt)`, plus all members of families and of the registry of ops. Docstrings
follow Google's layout, which the API reference is built from.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
from collections.abc import Callable
from typing import Any

import pytest

import ztorch as zt
from tests.cases.grouping import together
from ztorch import callbacks
from ztorch.callbacks import Callback
from ztorch.constraints import Constraint
from ztorch.graph.op import REGISTRY
from ztorch.initializers import Initializer
from ztorch.layers import Layer
from ztorch.losses import Loss
from ztorch.metrics import Metric
from ztorch.optimizers import Optimizer
from ztorch.regularizers import Regularizer
from ztorch.schedules import LearningRateSchedule

FAMILIES = {"layers": Layer, "losses": Loss, "metrics": Metric, "optimizers": Optimizer,
            "schedules": LearningRateSchedule, "initializers": Initializer,
            "regularizers": Regularizer, "constraints": Constraint}


def _members(family: str) -> dict[str, Any]:
    """The classes of a family's room, by their names; tests and models register others."""
    members = [FAMILIES[family], *FAMILIES[family].known.values()]
    return {f"{family}.{m.__name__}": m for m in members
            if m.__module__.startswith(f"ztorch.{family}")}


def _callbacks() -> dict[str, type[Callback]]:
    """The public callbacks of all files of their room, listed or not."""
    result: dict[str, type[Callback]] = {}
    for file in pkgutil.iter_modules(callbacks.__path__):
        module = importlib.import_module(f"ztorch.callbacks.{file.name}")
        result |= {name: kind for name, kind in inspect.getmembers(module, inspect.isclass)
                   if issubclass(kind, Callback) and kind.__module__ == module.__name__
                   and not name.startswith("_")}
    return result


def _public() -> dict[str, Callable[..., Any]]:
    """Every public class and function by its full name."""
    names = {f"callbacks.{name}": member for name, member in _callbacks().items()}
    names |= {name: member for family in FAMILIES for name, member in _members(family).items()}
    names |= {f"ops.{name}": getattr(zt.ops, name) for name in (*REGISTRY, *zt.ops._OF_TENSORS)}
    names |= {f"zt.{name}": getattr(zt, name) for name in dir(zt)
              if callable(getattr(zt, name)) and not inspect.ismodule(getattr(zt, name))}
    names |= {f"utils.{name}": getattr(zt.utils, name) for name in zt.utils.__all__}
    return names


PUBLIC = _public()
ROOMS = tuple(f"{room}." for room in (*FAMILIES, "callbacks"))  # whose members are listed there


def sections(docstring: str) -> dict[str, str]:
    """The text of each section of a docstring; "" is the part before the first."""
    parts = re.split(r"^([A-Z][\w ]*):\n(?=    )", inspect.cleandoc(docstring), flags=re.M)
    return {"": parts[0]} | dict(zip(parts[1::2], parts[2::2], strict=True))


def documented(docstring: str) -> list[str]:
    """The arguments that a docstring describes, in its order."""
    return re.findall(r"^    \**(\w+): \S", sections(docstring).get("Args", ""), flags=re.M)


def parameters(member: Callable[..., Any]) -> list[str]:
    """The arguments that a call takes, in the order of the signature."""
    if inspect.isclass(member) and member.__init__ is object.__init__:  # type: ignore[misc]
        return []
    return [name for name in inspect.signature(member).parameters if name != "self"]


def test_sections_are_distinguished() -> None:
    text = "Adds.\n\n    Args:\n        a: One.\n            More: of it.\n        *b: Two.\n\n" \
           "    Returns:\n        The sum.\n    "
    assert documented(text) == ["a", "b"]
    assert sections(text)["Returns"].strip() == "The sum."


@together()
@pytest.mark.parametrize("name", sorted(PUBLIC))
def test_each_argument_is_documented(name: str) -> None:
    docstring = PUBLIC[name].__doc__ or ""
    assert documented(docstring) == parameters(PUBLIC[name])
    assert ">>>" in sections(docstring).get("Examples", ""), "it shows no example"
    first = sections(docstring)[""].split("\n\n")[0]
    assert len(first) < 240 and "TODO" not in docstring


@together()
@pytest.mark.parametrize("name", sorted(n for n in PUBLIC if n.startswith(ROOMS)))
def test_each_member_is_in_its_room_under_its_name(name: str) -> None:
    family, _, member = name.partition(".")
    assert getattr(getattr(zt, family), member) is PUBLIC[name]


@together()
@pytest.mark.parametrize("name", sorted(_members("layers")))
def test_each_layer_documents_its_shapes(name: str) -> None:
    if name not in ("layers.Layer", "layers.Input"):
        assert {"Input shape", "Output shape"} <= sections(PUBLIC[name].__doc__ or "").keys()


@together()
@pytest.mark.parametrize("name", sorted(REGISTRY))
def test_each_op_documents_its_result(name: str) -> None:
    assert "Returns" in sections(getattr(zt.ops, name).__doc__ or "")
