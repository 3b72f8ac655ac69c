"""Replaces `break`, `continue`, and `while` loops that data ends by `for` and `if`.

A loop with a `break` gets a flag: the statements after the `break`, and all later iterations, run
only while the flag holds.
"""

from __future__ import annotations

import ast
import functools
from typing import Any

from ztorch.kernels.source import Source
from ztorch.kernels.thread_functions import is_threads
from ztorch.sized_cache import SizedCache

END_FLAG = "end_flag"  # attribute of a loop: the name of the flag that is false when it has ended


def without_jumps(source: Source, max_steps: int | None) -> list[ast.stmt]:
    """The statements of a function without `break` and `continue`.

    Args:
        source: The function.
        max_steps: The largest number of iterations of a `while` loop, which becomes a `for` loop.
            If None, `while` loops stay, and their conditions must be compile-time constants.
    """
    return _remembered(source, source.tree, max_steps, whiles=False)


def thread_without_jumps(source: Source, around: ast.FunctionDef | ast.For) -> list[ast.stmt]:
    """The statements of a thread without `break` and `continue`. Its `while` loops stay, because a
    thread may iterate any number of times.

    Args:
        source: The function that they are in.
        around: The function or the loop whose statements they are.
    """
    return _remembered(source, around, None, whiles=True)


# Statements without jumps, by those with them, the loops over threads in them, and the arguments of
# `_JumpRemover`. They are translated several times, and what is derived from them is remembered by
# their identity.
_without: SizedCache[tuple[Any, ...], list[ast.stmt]] = SizedCache(1 << 10)


def _remembered(source: Source, around: ast.FunctionDef | ast.For, max_steps: int | None,
                whiles: bool) -> list[ast.stmt]:
    threads = tuple(n for n in _loops(around) if is_threads(source, n.iter))
    key = around, threads, max_steps, whiles
    statements = _without.get(key)
    if statements is None:
        statements = _JumpRemover(source, max_steps, whiles).block(around.body)
        _without.put(key, statements, 1)
    return statements


@functools.lru_cache(1 << 10)
def _loops(around: ast.AST) -> tuple[ast.For, ...]:
    return tuple(n for n in ast.walk(around) if isinstance(n, ast.For))


class _JumpRemover:
    def __init__(self, source: Source, max_steps: int | None, whiles: bool = False):
        self.source, self.max_steps, self.whiles = source, max_steps, whiles
        self.flags: list[tuple[str, str]] = []  # of `break` and `continue`; inner loops last
        self.count = 0  # number of loops so far

    def block(self, statements: list[ast.stmt]) -> list[ast.stmt]:
        out: list[ast.stmt] = []
        for k, s in enumerate(statements):
            out += self.statement(s)
            pairs = zip((ast.Break, ast.Continue), self.flags[-1] if self.flags else (),
                        strict=False)
            flags = [flag for kind, flag in pairs if _contains_jump(s, kind)]
            rest = statements[k + 1:]
            if flags and rest:
                test: Any = _name(flags[0]) if len(flags) == 1 else ast.BoolOp(
                    ast.And(), [_name(f) for f in flags])
                out.append(_at(s, ast.If(test, self.block(rest), [])))
                return out
        return out

    def statement(self, s: ast.stmt) -> list[ast.stmt]:
        if isinstance(s, (ast.Break, ast.Continue)):
            flag = self.flags[-1][0 if isinstance(s, ast.Break) else 1]
            return [_at(s, _assign(flag, ast.Constant(False)))]
        if isinstance(s, ast.If):
            return [_at(s, ast.If(s.test, self.block(s.body), self.block(s.orelse)))]
        if isinstance(s, ast.While):
            return self._keep_while(s) if self.whiles else self._while(s)
        if isinstance(s, ast.For):
            return [s] if is_threads(self.source, s.iter) else self._for(s)
        return [s]

    def _for(self, s: ast.For) -> list[ast.stmt]:
        self._no_else(s)
        body, flag = self._body(s)
        loop = _at(s, ast.For(s.target, s.iter, body, []))
        if flag is None:
            return [loop]
        setattr(loop, END_FLAG, flag)
        return [_at(s, _assign(flag, ast.Constant(True))), loop]

    def _keep_while(self, s: ast.While) -> list[ast.stmt]:
        self._no_else(s)
        body, ended = self._body(s)
        if ended is None:
            return [_at(s, ast.While(s.test, body, []))]
        return [_at(s, _assign(ended, ast.Constant(True))),
                _at(s, ast.While(ast.BoolOp(ast.And(), [_name(ended), s.test]), body, []))]

    def _while(self, s: ast.While) -> list[ast.stmt]:
        if self.max_steps is None:
            return self._keep_while(s)
        self._no_else(s)
        self.count += 1
        flag = f"<while {self.count}>"
        body, ended = self._body(s)
        test: ast.expr = s.test if ended is None else ast.BoolOp(ast.And(), [_name(ended), s.test])
        iterations = ast.Call(_name("<range>"), [ast.Constant(self.max_steps)], [])
        inside = [*body, _assign(flag, test)]
        loop = _at(s, ast.For(ast.Name("<iteration>", ast.Store()), iterations,
                              [ast.If(_name(flag), inside, [])], []))
        setattr(loop, END_FLAG, flag)
        first = [] if ended is None else [_at(s, _assign(ended, ast.Constant(True)))]
        return [*first, _at(s, _assign(flag, s.test)), loop]

    def _body(self, s: ast.For | ast.While) -> tuple[list[ast.stmt], str | None]:
        """The body of a loop, and the flag that ends it, if a `break` does."""
        self.count += 1
        ended, skipped = f"<break {self.count}>", f"<continue {self.count}>"
        breaks = any(_contains_jump(x, ast.Break) for x in s.body)
        self.flags.append((ended, skipped))
        body = self.block(s.body)
        self.flags.pop()
        if any(_contains_jump(x, ast.Continue) for x in s.body):
            body = [_at(s, _assign(skipped, ast.Constant(True))), *body]
        if breaks and isinstance(s, ast.For):
            body = [_at(s, ast.If(_name(ended), body, []))]
        return body, ended if breaks else None

    def _no_else(self, s: ast.For | ast.While) -> None:
        if s.orelse:
            raise self.source.error(s, "a loop with else is not supported",
                                    "set a flag before the break and test it after the loop")


def _contains_jump(s: ast.AST, kind: type) -> bool:
    """Whether a statement contains a `break` or `continue` of the loop around it."""
    if isinstance(s, kind):
        return True
    if isinstance(s, (ast.For, ast.While, ast.FunctionDef, ast.Lambda)):
        return False
    return any(_contains_jump(x, kind) for x in ast.iter_child_nodes(s))


def _name(name: str) -> ast.Name:
    return ast.Name(name, ast.Load())


def _assign(name: str, value: ast.expr) -> ast.Assign:
    return ast.Assign([ast.Name(name, ast.Store())], value)


def _at(place: ast.stmt, new: Any) -> Any:
    """A new statement with the position of another one, for error messages."""
    ast.copy_location(new, place)
    return ast.fix_missing_locations(new)
