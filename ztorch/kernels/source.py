"""The source of a kernel: its syntax tree, the names it uses, and errors that show the line."""

from __future__ import annotations

import ast
import builtins
import functools
import inspect
import textwrap
from collections import ChainMap
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import CodeType
from typing import Any

from ztorch.errors import KernelError


@dataclass(frozen=True)
class Source:
    """The parsed text of a function."""

    name: str  # of the function
    file: str  # path of the file that contains it
    first_line: int  # line number of its first line in the file
    indent: int  # number of columns that were removed from each line
    lines: tuple[str, ...]  # the lines of its text, without the indent
    tree: ast.FunctionDef
    names: Mapping[str, Any]  # globals and closure of the function

    def error(self, node: ast.AST, problem: str, fix: str = "") -> KernelError:
        """An error that shows a place of the source.

        Args:
            node: The position of the problem.
            problem: The mistake, with the shapes or types that disagree.
            fix: The correct code. Default: `""`.
        """
        line = getattr(node, "lineno", 1)
        start = getattr(node, "col_offset", 0)
        text = self.lines[line - 1]
        last = getattr(node, "end_lineno", line) == line
        end = getattr(node, "end_col_offset", None) if last else None
        end = len(text) if end is None else end
        column = len(text.encode()[:start].decode())  # the tree counts bytes
        width = max(1, len(text.encode()[start:end].decode()))
        return KernelError(
            f"kernel {self.name}: {problem}{f'; {fix}' if fix else ''}\n"
            f'  File "{self.file}", line {self.first_line + line - 1}, '
            f"column {self.indent + column + 1}\n"
            f"    {text}\n    {' ' * column}{'^' * width}")

    def line(self, node: ast.AST) -> str:
        """The position and text of a line, for errors that occur when the kernel is used."""
        line = getattr(node, "lineno", 1)
        return (f"kernel {self.name}, line {self.first_line + line - 1} of {self.file}: "
                f"`{self.lines[line - 1].strip()}`")

    def signature(self, function: Callable[..., Any], args: Any, named: dict[str, Any]
                  ) -> dict[str, Any]:
        """Arguments by the names of parameters; raises TypeError if they do not fit."""
        names, defaults = _parameters(function)
        if names is not None and len(args) <= len(names):  # like `bind`, but ten times as fast
            passed = dict(zip(names, args, strict=False))
            if passed.keys().isdisjoint(named):
                passed.update(named)
                arguments = {n: passed[n] if n in passed else defaults[n] for n in names
                             if n in passed or n in defaults}
                if len(arguments) == len(names) and len(passed) <= len(names) and (
                        passed.keys() <= arguments.keys()):
                    return arguments
        bound = inspect.signature(function).bind(*args, **named)
        return {n: bound.arguments[n] if n in bound.arguments else _default(p.default)
                for n, p in bound.signature.parameters.items()
                if n in bound.arguments or p.default is not p.empty}

    def lookup(self, name: str) -> Any:
        """The object that a name means outside of the function. Raises KeyError for an unknown
        name."""
        if name in self.names:
            return self.names[name]
        return getattr(builtins, name) if hasattr(builtins, name) else self.names[name]


class DefaultNumber(float):
    """The default of an argument that a call does not pass. It is compiled in, so that expressions
    of such numbers are computed once."""


@functools.lru_cache(1024)
def _parameters(function: Callable[..., Any]) -> tuple[tuple[str, ...] | None, dict[str, Any]]:
    """The names of the parameters and their defaults. The names are None if some parameters are not
    both positional and by name."""
    parameters = inspect.signature(function).parameters
    plain = all(p.kind is p.POSITIONAL_OR_KEYWORD for p in parameters.values())
    return tuple(parameters) if plain else None, {
        n: _default(p.default) for n, p in parameters.items() if p.default is not p.empty}


def _default(x: Any) -> Any:
    return DefaultNumber(x) if type(x) is float else x


def source_of(function: Callable[..., Any]) -> Source:
    """The source of a Python function.

    Raises:
        KernelError: It has no source, or is no function made with `def`.
    """
    name = getattr(function, "__name__", repr(function))
    code: CodeType | None = getattr(function, "__code__", None)
    if code is None:
        raise KernelError(f"a kernel is written as a function with def, not {function!r}")
    if code.co_name == "<lambda>" or inspect.iscoroutinefunction(function):
        raise KernelError(f"kernel {name}: a kernel is written as a function with def, not as a "
                          "lambda or a coroutine")
    for p in inspect.signature(function).parameters.values():
        if p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD):
            raise KernelError(f"kernel {name}: a kernel takes no {str(p).partition(':')[0]}; give "
                              "each argument a name, or take a tuple of numbers")
        if p.name in ("self", "cls"):
            raise KernelError(f"kernel {name}: a kernel is no method, so it takes no {p.name}; "
                              "write it outside of the class, and take what it reads as arguments")
    if hasattr(function, "__wrapped__"):
        raise KernelError(f"kernel {name}: another decorator is under zt.kernel; kernels are "
                          "parsed, so put zt.kernel next to the function, below the others")
    try:
        indent, lines, tree = _parsed(code, code.co_filename)
    except (OSError, TypeError, SyntaxError, IndexError):
        raise KernelError(f"kernel {name}: its source cannot be read; kernels are parsed, so write "
                          "them in a file or a notebook cell") from None
    closure = inspect.getclosurevars(function)
    names = ChainMap(dict(closure.nonlocals), function.__globals__)  # a view of the globals
    return Source(name, code.co_filename, code.co_firstlineno, indent, lines, tree, names)


@functools.lru_cache(1024)
def _parsed(code: CodeType, file: str) -> tuple[int, tuple[str, ...], ast.FunctionDef]:
    """The columns that were removed from each line of a function, its lines, and its tree. Equal
    code of two files has two trees."""
    text = inspect.getsource(code)
    plain = textwrap.dedent(text)
    tree = ast.parse(plain).body[0]
    # The source that Python finds may be that of another function.
    if not isinstance(tree, ast.FunctionDef) or tree.name != code.co_name:
        raise OSError(f"no source of {code.co_name}")
    indent = len(text.split("\n", 1)[0]) - len(plain.split("\n", 1)[0])
    return indent, tuple(plain.split("\n")), tree
