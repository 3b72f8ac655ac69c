"""Translates calls in a kernel: known functions, other kernels, and sums of generators."""

from __future__ import annotations

import ast
import inspect
import types
from collections.abc import Callable
from typing import Any

import numpy as np

from ztorch.graph.op import REGISTRY
from ztorch.kernels.arithmetic import NUMBERS
from ztorch.kernels.expressions import ExpressionRules, Method
from ztorch.kernels.known_functions import CONSTANT_FUNCTIONS, FUNCTIONS, METHODS, cast_rule
from ztorch.kernels.library_ops import apply_op, library_op
from ztorch.kernels.scope import KernelVariable, Loop
from ztorch.kernels.thread_functions import THREAD_FUNCTIONS, atomic_add
from ztorch.kernels.tiles import Affine, LoopTensor, LoopVar
from ztorch.kernels.unsupported_syntax import INSTEAD_OF_FUNCTIONS
from ztorch.kernels.writing import reduce_iterations


class CallRules(ExpressionRules):
    """Evaluates calls, and runs the statements that are the same in loops and in threads."""

    def _run_pass(self, s: ast.Pass) -> None:
        pass

    def _run_assert(self, s: ast.Assert) -> None:
        test = self.value(s.test)
        if isinstance(test, (LoopTensor, Affine)):
            raise self.source.error(s, "assert can only test compile-time constants")
        if not test:
            parts = s.msg.values if isinstance(s.msg, ast.JoinedStr) else [s.msg] if s.msg else []
            words = [str(self.value(p.value if isinstance(p, ast.FormattedValue) else p))
                     for p in parts]
            message = "".join([": " * bool(words), *words])
            raise self.source.error(s, f"the assertion fails{message}")

    def instead_of_unused(self, node: ast.expr) -> str:
        """What to write instead of an expression whose value is not used."""
        if isinstance(node, ast.UnaryOp) and isinstance(node.operand, ast.UnaryOp):
            return f"write {ast.unparse(node.operand.operand)} += 1"
        if isinstance(node, ast.Attribute) and callable(self.value(node)):
            return f"call it: {ast.unparse(node)}()"
        return "assign it, or delete the line"

    def _call(self, node: ast.Call) -> Any:
        function = self.value(node.func)
        if _is_one_of(function, THREAD_FUNCTIONS):
            other = ("; in other loops write array[index] += x" if function is atomic_add else "")
            raise self.source.error(node, f"zt.{function.__name__} is for threads", "use it in a "
                                    f"loop: for block, thread in zt.threads(...){other}")
        generator = node.args[0] if len(node.args) == 1 and isinstance(
            node.args[0], ast.GeneratorExp) else None
        if generator is not None:
            if node.keywords:
                raise self.source.error(node, "a function of a generator takes no more arguments",
                                        "add a start yourself, such as 1.0 + sum(...)")
            return self._over_generator(node, function, generator)
        args = tuple(x for n in node.args for x in self.spread(n))
        named = self.named(node.keywords)
        if isinstance(function, Method):
            return self._call_rule(node, METHODS[function.name], function.of, *args, **named)
        is_constant = not any(isinstance(x, (LoopTensor, Affine))
                              for x in (*args, *named.values()))
        if _is_one_of(function, (sum, min, max)) and len(args) == 1 and isinstance(args[0], tuple):
            is_constant = not any(isinstance(x, (LoopTensor, Affine)) for x in args[0])
        if is_constant and _is_one_of(function, CONSTANT_FUNCTIONS):
            try:
                return _tuples(function(*args, **named))
            except TypeError as error:
                raise self.source.error(node, f"{ast.unparse(node.func)}: {error}") from None
        if function is len and len(args) == 1 and isinstance(args[0], LoopTensor):
            if not args[0].shape:
                raise self.source.error(node, "a number has no length")
            return args[0].shape[0]
        if isinstance(function, (LoopTensor, Affine, tuple, *NUMBERS)):
            raise self.source.error(node, f"{ast.unparse(node.func)} is a value, and no function",
                                    "write x.shape[axis]" if ast.unparse(node.func).endswith(
                                        ".size") else "leave out the parentheses")
        rule = _rule_of(function)
        if rule is not None:
            return self._call_rule(node, rule, *args, **named)
        if library_op(function):
            return self._call_rule(node, apply_op, function, *args, **named)
        inner = getattr(function, "function", function)  # of a kernel
        if isinstance(inner, types.FunctionType) and not hasattr(inner, "__wrapped__"):
            return self.inline(node, inner, args, named)
        raise self.source.error(node, f"{ast.unparse(node.func)} cannot be called in a kernel",
                                _instead_of(function))

    def _call_rule(self, node: ast.Call, rule: Callable[..., Any], *args: Any, **named: Any) -> Any:
        try:
            return rule(self.arithmetic, *args, **named)
        except TypeError as error:
            # Without the name of the internal function, and the guess that Python 3.13 adds.
            problem = (str(error).partition("() ")[2] or str(error)).partition(". Did you mean")[0]
            if "positional argument" in problem:
                names = [*inspect.signature(rule).parameters][1:]  # without the arithmetic
                problem = f"its arguments are ({', '.join(names)})"
            for theirs, ours in (("dim", "axis"), ("axes", "axis"), ("keepdim", "keepdims")):
                problem += f"; write {ours}" if problem.endswith(f"'{theirs}'") else ""
            raise self.source.error(node, f"{ast.unparse(node.func)}: {problem}") from None

    def _over_generator(self, node: ast.Call, function: Any, generator: ast.GeneratorExp) -> Any:
        """`sum(x[k] for k in range(n))` and the like."""
        reductions = {sum: "add", max: "maximum", min: "minimum", any: "logical_or",
                      all: "logical_and"}
        reduction = reductions.get(function) if callable(function) else None
        [clause, *more] = generator.generators
        if reduction is None or more or not isinstance(clause.target, ast.Name):
            raise self.source.error(node, "only sum, min, max, any and all take a generator, with "
                                    "one loop")
        counts = self.value(clause.iter)
        if not isinstance(counts, range):
            raise self.source.error(clause.iter, "a generator goes over a range that is known")
        var = LoopVar(clause.target.id, len(counts))
        before, depth = dict(self.env), len(self.masks)
        self.loops.append(Loop(var))
        self.env[var.name] = KernelVariable(Affine({var: counts.step}, counts.start).simple())
        self.masks += [self.arithmetic.truth(self.value(test)) for test in clause.ifs]
        x = self.arithmetic.tile(self.value(generator.elt))
        condition = self.condition(depth)
        del self.masks[depth:]
        self.loops.pop()
        self.env = before
        if reduction.startswith("logical"):
            x = self.arithmetic.truth(x)
        d = self.arithmetic.common([x, 0]) if reduction == "add" else x.dtype
        return reduce_iterations(self.arithmetic, x, condition, (var,), reduction, d)


def _instead_of(function: Any) -> str:
    """What to write instead of a call."""
    if _is_one_of(function, (enumerate, zip)):
        return "loop over range(len(x)) and read x[i]"
    if _is_one_of(function, (any, all)):
        return f"write np.{function.__name__}(...)"
    name = getattr(function, "__name__", "")
    # A function of a random generator is a method.
    module = getattr(function, "__module__", None) or type(
        getattr(function, "__self__", None)).__module__
    for known in (name, module, module.partition(".")[0]):
        if known in INSTEAD_OF_FUNCTIONS:
            return INSTEAD_OF_FUNCTIONS[known]
    if name in REGISTRY and module.partition(".")[0] in ("numpy", "torch", "jax", "scipy"):
        return f"write zt.ops.{name}(...)"
    return ("call functions of numpy and math that docs/kernel_functions.md lists, ops of zt.ops, "
            "other kernels, or functions of your own without decorators")


def _is_one_of(function: Any, functions: tuple[Any, ...]) -> bool:
    return any(function is f for f in functions)


def _tuples(x: Any) -> Any:
    return tuple(x) if not isinstance(x, (*NUMBERS, range)) else x


def _rule_of(function: Any) -> Any:
    try:
        rule = FUNCTIONS.get(function)
    except TypeError:  # not hashable
        return None
    if rule is None and isinstance(function, type) and issubclass(function, np.generic):
        return cast_rule(function)
    return rule
