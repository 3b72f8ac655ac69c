"""Early exit of single elements of a loop: further iterations must not change them.

A loop may continue while a flag is true for any element. A recurrence stops each element when its
own flag is false. This gives the same result only if further iterations, which other elements still
run, would not change an element whose flag is false.
"""

from __future__ import annotations

from collections.abc import Collection

from ztorch.dtypes import boolean
from ztorch.graph.body import Body
from ztorch.graph.rewrite import is_number, substituted
from ztorch.graph.value import Value, attribute_key, topological

FALSE, TRUE, ZERO = "false", "true", "zero"  # in place of value numbers: known constants


def flag_of_any(body: Body) -> Value | None:
    """The flag of each element, if a loop continues while the flag is true for any element. The
    loop's condition may also test its own carry, which is true in every iteration that runs.

    >>> from ztorch import ops
    >>> from ztorch.graph.op import leaf
    >>> p, x = leaf("carry", "p", (), "bool"), leaf("carry", "x", (3,), "float32")
    >>> proceed = ops.logical_and(p, ops.any(x < 9.0))
    >>> flag_of_any(Body(5, False, (p, x), (), (), (proceed, x), (), proceed=0))
    <less bool[3]>
    >>> flag_of_any(Body(5, False, (p, x), (), (), (ops.any(x < 9.0), x), (), proceed=0))
    <less bool[3]>
    >>> moved = ops.reshape(ops.any(x < 9.0, keepdims=True), ())
    >>> flag_of_any(Body(5, False, (p, x), (), (), (moved, x), (), proceed=0))
    <less bool[3]>
    """
    if body.proceed is None:
        return None
    new = _under_movement(body.news[body.proceed])
    tests = new.args if new.op.opcode == "and" else (new,)
    others = [v for v in map(_under_movement, tests) if v is not body.carries[body.proceed]]
    if len(others) != 1 or others[0].op.opcode != "eq" or not is_number(others[0].args[1], 1):
        return None
    most = _under_movement(others[0].args[0])
    if most.op.kind != "reduce" or most.op.opcode != "max" or most.size != 1:
        return None
    flag = most.args[0]
    while flag.op.opcode == "cast" and flag.dtype is not boolean:
        flag = flag.args[0]
    return flag if flag.dtype is boolean else None


def _under_movement(v: Value) -> Value:
    while v.op.movement and len(v.args) == 1 and v.size == v.args[0].size:
        v = v.args[0]
    return v


def unchanged_after_exit(body: Body, proceed: int, flag: Value | None,
                         results: Collection[int]) -> bool:
    """Whether iterations leave an element unchanged whose flag is false.

    Args:
        body: The body of the loop.
        proceed: The number of the bool carry that continues the loop.
        flag: The flag of each element, from which that carry is computed; None: the carry itself
            has a flag for each element.
        results: The numbers of the results that are read.
    """
    carries, size = body.carries, max(c.size for c in body.carries)
    before: Value = carries[proceed]
    shared = [k for k, c in enumerate(carries) if c.size < size and k != proceed]
    if flag is not None:
        computed_news = [v for v in body.news if v not in carries]
        inside = topological([flag], computed_news)
        if any(c in inside and body.news[k] is not c for k, c in enumerate(carries)):
            return False
        carry_of = dict(zip(body.news, carries, strict=True))
        [before] = substituted([flag], {v: carry_of[v] for v in inside if v in carry_of})
        if size > 1 and any(k in results or carries[k] in topological([before]) for k in shared):
            return False
    numbers = _Numbers(before, None if flag is None else carries[proceed])
    return all(numbers.of(new) == numbers.of(c)
               for k, (new, c) in enumerate(zip(body.news, carries, strict=True))
               if not (flag is not None and (k == proceed or k in shared)))


class _Numbers:
    """Value numbering: values with equal numbers are equal wherever the flag is false."""

    def __init__(self, false: Value, true: Value | None):
        self.known: dict[Value, int | str] = {}
        self.by_key: dict[tuple, int | str] = {}
        false_number = self.of(false)
        self.known, self.by_key = {}, {k: FALSE if n == false_number else n
                                       for k, n in self.by_key.items()}
        self.known[false] = FALSE
        if true is not None:
            self.known[true] = TRUE

    def of(self, root: Value) -> int | str:
        for v in topological([root], self.known):
            if v not in self.known:
                self.known[v] = self._number(v, [self.known[a] for a in v.args])
        return self.known[root]

    def _number(self, v: Value, args: list[int | str]) -> int | str:
        opcode = v.op.opcode
        if v.op.movement and len(args) == 1 and args[0] in (FALSE, TRUE, ZERO):
            return args[0]
        if opcode == "select" and args[0] in (FALSE, TRUE):
            return args[2 if args[0] == FALSE else 1]
        if opcode == "and" and FALSE in args:
            return FALSE
        if opcode == "and" and v.dtype is boolean and TRUE in args:
            return args[1 - args.index(TRUE)]
        if opcode == "cast" and args == [FALSE]:
            return ZERO
        if opcode == "add" and v.dtype.is_int and ZERO in args:
            return args[1 - args.index(ZERO)]
        if opcode == "sub" and args[1] == ZERO:
            return args[0]
        own = (v,) if v.op.kind == "leaf" else ()
        key = (v.op, attribute_key(v.attrs), v.shape, v.dtype, own, *args)
        return self.by_key.setdefault(key, len(self.by_key))
