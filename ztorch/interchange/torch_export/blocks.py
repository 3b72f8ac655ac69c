"""Moves the calls of blocks, such as `with torch.no_grad():`, into the program around them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

_BLOCKS = "torch.ops.higher_order.wrap_with_"
_GRADIENTS, _AUTOCAST = f"{_BLOCKS}set_grad_enabled", f"{_BLOCKS}autocast"
_ALIAS, _DETACH = "torch.ops.aten.alias.default", "torch.ops.aten.detach.default"

Message = Mapping[str, Any]  # a part of the JSON


def unfolded(graph: Message) -> tuple[list[Message], dict[str, Message]]:
    """The calls of a graph and of the blocks in it, and the types of tensors by name. A block of
    autocast, which computes in other dtypes, stays one call."""
    calls: list[Message] = []
    types: dict[str, Message] = dict(graph["tensor_values"])
    for call in graph["nodes"]:
        arguments = [a["arg"] for a in call["inputs"]]
        inner = _body(str(call["target"]), arguments)
        if inner is None:
            calls.append(call)
            continue
        at = next(k for k, a in enumerate(arguments) if "as_graph" in a)
        body_calls, body_types = unfolded(inner)
        label = call.get("name") or f"block{len(calls)}"
        names = {name: f"{label}.{name}" for name in body_types}
        names.update(zip((_name(i) for i in inner["inputs"]),
                         (_name(a) for a in arguments[at + 1:]), strict=True))
        types.update((names[n], kind) for n, kind in body_types.items() if names[n] not in types)
        calls += ({**c, "name": f"{label}.{c.get('name') or k}",
                   "inputs": [{**a, "arg": _renamed(a["arg"], names)} for a in c["inputs"]],
                   "outputs": [_renamed(o, names) for o in c["outputs"]]}
                  for k, c in enumerate(body_calls))
        stops = str(call["target"]) == _GRADIENTS and not arguments[0]["as_bool"]
        calls += ({"target": _DETACH if stops else _ALIAS, "name": f"{label}.{_name(to)}",
                   "inputs": [{"name": "self", "arg": _renamed(source, names)}], "outputs": [to]}
                  for to, source in zip(_results(call["outputs"]), inner["outputs"], strict=True))
    return calls, types


def _body(target: str, arguments: list[Any]) -> Message | None:
    """The graph of a block that computes in the dtypes of its arguments; None for other calls."""
    switched_off = target == _AUTOCAST and arguments[2].get("as_bool") is False
    if target != _GRADIENTS and not switched_off:
        return None
    inner: Message = next(a["as_graph"]["graph"] for a in arguments if "as_graph" in a)
    return inner


def _results(outputs: list[Message]) -> Iterator[Message]:
    """The results of a call, one by one."""
    for output in outputs:
        if "as_tensors" in output:
            yield from ({"as_tensor": value} for value in output["as_tensors"])
        else:
            yield output


def _name(argument: Message) -> str:
    """The name of a tensor, or of an integer that is computed from shapes."""
    [value] = argument.values()
    return str(value.get("name") or value["as_name"])


def _renamed(value: Any, names: Mapping[str, str]) -> Any:
    """An argument with other names for tensors."""
    if isinstance(value, Mapping):
        return {key: names.get(v, v) if key in ("name", "as_name") and isinstance(v, str)
                else _renamed(v, names) for key, v in value.items()}
    return [_renamed(v, names) for v in value] if isinstance(value, list) else value
