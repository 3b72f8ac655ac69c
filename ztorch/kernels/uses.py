"""Finds the variables and arrays that statements read and set."""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy

from ztorch.kernels.tiles import Affine

MAX_DEPTH = 8  # number of definitions that are inserted into one another


def names_in(node: ast.AST) -> set[str]:
    """The names that an expression or a statement reads."""
    return {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(
        n.ctx, ast.Load)}


def assigned(statements: Sequence[ast.AST]) -> dict[str, ast.AST]:
    """The variables that statements set as a whole, with the first node that sets each."""
    out: dict[str, ast.AST] = {}
    for s in statements:
        for n in _places_of_names(s):
            out.setdefault(n.id, n)
    return out


@functools.lru_cache(1 << 12)  # statements are translated several times, and do not change
def _places_of_names(s: ast.AST) -> tuple[ast.Name, ...]:
    """The nodes that set a variable as a whole."""
    return tuple(n for n in ast.walk(s) if isinstance(n, ast.Name) and isinstance(
        n.ctx, ast.Store))


@functools.lru_cache(1 << 12)
def settings(s: ast.stmt) -> tuple[str, ...]:
    """The names that a statement sets, once for each place."""
    updated = (n.target for n in ast.walk(s) if isinstance(n, ast.AugAssign))
    return (*(n.id for n in _places_of_names(s)),
            *(n.id for n in updated if isinstance(n, ast.Name)))


@functools.lru_cache(1 << 10)
def local_names(function: ast.FunctionDef) -> frozenset[str]:
    """The names that a function sets somewhere, and not only in a comprehension."""
    inner = {n for c in ast.walk(function) if isinstance(c, ast.comprehension)
             for n in ast.walk(c.target)}
    return frozenset(n.id for n in _places_of_names(function) if n not in inner)


def simple_statements(statements: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
    """All statements without inner statements, also those inside loops and branches."""
    for s in statements:
        inner = [*getattr(s, "body", []), *getattr(s, "orelse", [])]
        if inner:
            yield from simple_statements(inner)
        else:
            yield s


def element_targets(s: ast.stmt) -> Iterator[ast.Subscript]:
    """The elements of arrays that a statement sets."""
    targets = s.targets if isinstance(s, ast.Assign) else [s.target] if isinstance(
        s, (ast.AugAssign, ast.AnnAssign)) else []
    for t in targets:
        for n in ast.walk(t):
            if isinstance(n, ast.Subscript) and isinstance(n.ctx, ast.Store) and isinstance(
                    n.value, ast.Name):
                yield n


def first_use(statements: Sequence[ast.stmt], name: str) -> str:
    """The first use of a variable by statements: `"set"`, `"read"`, or `"none"`. If it is only set
    under a condition or in a loop, its old value may be read, which also counts as `"read"`."""
    maybe = False
    for s in statements:
        use = _use(s, name)
        if use in ("set", "read"):
            return "read" if maybe or use == "read" else "set"
        maybe = maybe or use == "maybe"
    return "read" if maybe else "none"


def _use(s: ast.stmt, name: str) -> str:
    if isinstance(s, ast.If):
        if name in names_in(s.test):
            return "read"
        both = {_branch(part, name) for part in (s.body, s.orelse)}
        if "read" in both:
            return "read"
        return "set" if both == {"set"} else "maybe" if both & {"set", "maybe"} else "none"
    if isinstance(s, (ast.For, ast.While)):
        if name in names_in(s.iter if isinstance(s, ast.For) else s.test):
            return "read"
        inside = _branch(s.body, name)
        is_counter = inside == "none" and name in assigned([s])  # false for `while` loops
        return "maybe" if inside == "set" or is_counter else inside
    if isinstance(s, ast.AugAssign) and isinstance(s.target, ast.Name) and s.target.id == name:
        return "read"
    if name in names_in(s):
        return "read"
    return "set" if name in assigned([s]) else "none"


def _branch(statements: Sequence[ast.stmt], name: str) -> str:
    """Like `first_use`, but distinguishes possible writes from reads."""
    for s in statements:
        use = _use(s, name)
        if use != "none":
            if use == "maybe":
                rest = first_use(statements[list(statements).index(s) + 1:], name)
                return "read" if rest == "read" else "maybe"
            return use
    return "none"


def reads_of(statements: Sequence[ast.stmt], name: str) -> Iterator[ast.expr]:
    """The reads of an array by statements: of its elements or of the whole array. The target of
    `a[i] += x` does not count."""
    own = {id(t.value) for s in simple_statements(statements) for t in element_targets(s)}
    for s in statements:
        yield from _reads(s, name, own)


def _reads(node: ast.AST, name: str, own: set[int]) -> Iterator[ast.expr]:
    if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name) and (
            node.value.id == name and id(node.value) not in own):
        yield node
        yield from _reads(node.slice, name, own)
        return
    if isinstance(node, ast.Attribute) and node.attr in ("shape", "dtype", "ndim", "size"):
        return
    if isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Load) and (
            id(node) not in own):
        yield node
        return
    for child in ast.iter_child_nodes(node):
        yield from _reads(child, name, own)


def definitions(statements: Sequence[ast.stmt], outside: set[str]) -> dict[str, ast.expr]:
    """The values of variables that statements set exactly once."""
    values_of: dict[str, list[ast.expr | None]] = {}
    for s in simple_statements(statements):
        names = assigned([s])
        plain = isinstance(s, ast.Assign) and len(s.targets) == 1 and isinstance(
            s.targets[0], ast.Name)
        for name in names:
            values_of.setdefault(name, []).append(
                s.value if plain and isinstance(s, ast.Assign) else None)
    return {n: values[0] for n, values in values_of.items()
            if len(values) == 1 and values[0] is not None and n not in outside}


def parts(index: ast.expr, known: dict[str, ast.expr]) -> list[ast.expr]:
    """The index of each axis, with variables replaced by their definitions."""
    index = _Replaced(known).visit(deepcopy(index))
    return list(index.elts) if isinstance(index, ast.Tuple) else [index]


class _Replaced(ast.NodeTransformer):
    """Replaces variables by their definitions."""

    def __init__(self, known: dict[str, ast.expr], depth: int = 0):
        self.known, self.depth = known, depth

    def visit_Name(self, node: ast.Name) -> ast.expr:
        value = self.known.get(node.id)
        if value is None or self.depth > MAX_DEPTH:
            return node
        return _Replaced(self.known, self.depth + 1).visit(deepcopy(value))


def linear(node: ast.expr, known: Mapping[str, Affine | int]) -> Affine | None:
    """An expression as a sum of loop variables, if it is such a sum of names in `known`."""
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return Affine.of(node.value)
    if isinstance(node, ast.Name) and node.id in known:
        return Affine.of(known[node.id])
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        inner = linear(node.operand, known)
        return inner and inner.times(-1)
    if not isinstance(node, ast.BinOp):
        return None
    left, right = linear(node.left, known), linear(node.right, known)
    if left is None or right is None:
        return None
    if isinstance(node.op, (ast.Add, ast.Sub)):
        return left.plus(right, 1 if isinstance(node.op, ast.Add) else -1)
    if isinstance(node.op, ast.Mult) and not (left.terms and right.terms):
        return left.times(right.const) if left.terms else right.times(left.const)
    if isinstance(node.op, ast.FloorDiv) and not left.terms and not right.terms and right.const:
        return Affine.of(left.const // right.const)
    return None
