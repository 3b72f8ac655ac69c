"""ztorch export --shapes: compiles a kernel or another function of tensors for a device."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ztorch.dtypes import dtype
from ztorch.errors import ConfigError, UnknownName
from ztorch.sources.python_files import attribute_of, import_file

_PART = re.compile(r"\s*([A-Za-z_]\w*)\s*=\s*([^\[,;]*(?:\[[^\]]*\])?)\s*(?:[,;]|$)")


def export_function(name: str, shapes: str, out: str, device: str, kind: str | None) -> None:
    """Writes a function as an artifact, or as a C library.

    Args:
        name: path/to/file.py:function.
        shapes: Sizes that the function's signature names, `b=64, n=1024`, or the types of its
            arguments, `x=f32[64, 1024], g=f32[1024]`, and their values where they are integers.
        out: The file, or the folder for C.
        device: The device.
        kind: The format: "c" for a C library, or C source for the device "c"; None: by the file.
    """
    from ztorch.arrays.exporting import export

    sizes, types = parse_shapes(shapes)
    function = _function(name)
    own = () if getattr(function, "signature", None) else inspect.signature(function).parameters
    numbers = {n: size for n, size in sizes.items() if n in own}
    named = {word for text in types.values() for word in re.findall(r"\w+", text)}
    sizes = {n: size for n, size in sizes.items() if n not in numbers or n in named}
    for file in export(function, out, device=device, format=kind, sizes=sizes, **types, **numbers):
        print(f"Wrote {file}: {file.stat().st_size:,} bytes")


def parse_shapes(shapes: str) -> tuple[dict[str, int], dict[str, str]]:
    """Sizes by name, and types of arguments.

    >>> parse_shapes("b=64, x=f32[b, 3], k=f32")
    ({'b': 64}, {'x': 'f32[b, 3]', 'k': 'f32[]'})
    """
    sizes: dict[str, int] = {}
    types: dict[str, str] = {}
    position = 0
    while position < len(shapes):
        match = _PART.match(shapes, position)
        if match is None:
            raise ConfigError(f"--shapes {shapes!r} cannot be read at {shapes[position:]!r}; write "
                              "sizes, b=64,n=1024, or types of arguments, x=f32[64,1024]")
        name, value = match[1], match[2].strip()
        if value.isdecimal():
            sizes[name] = int(value)
        elif _is_type(value):
            types[name] = value if "[" in value or value == "any" else f"{value}[]"
        else:
            raise ConfigError(f"--shapes {name}={value}: {value!r} is neither a size nor a type; "
                              f"write {name}=64, or {name}=f32[64,1024]")
        position = match.end()
    return sizes, types


def _is_type(text: str) -> bool:
    """Whether a text begins with the name of a dtype."""
    word = text.partition("[")[0]
    try:
        return word == "any" or bool(dtype(word))
    except UnknownName:
        return False


def _function(name: str) -> Callable[..., Any]:
    path, _, attribute = name.partition(".py:")
    if not attribute:
        raise ConfigError(f"--shapes is for a function, path/to/file.py:function, not {name}")
    function = attribute_of(import_file(Path(f"{path}.py")), attribute)
    if not callable(function):
        raise ConfigError(f"{name} is {function!r}, not a function")
    return function
