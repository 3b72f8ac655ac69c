"""Syntax of Python that kernels do not support: its name in errors, and what to write instead."""

from __future__ import annotations

import ast

# What to write instead of a statement or an expression.
INSTEAD: dict[type[ast.AST], str] = {
    ast.Import: "import it outside, at the top of the file",
    ast.ImportFrom: "import it outside, at the top of the file",
    ast.FunctionDef: "define it outside; kernels may call it",
    ast.Lambda: "define a function outside; kernels may call it",
    ast.ListComp: "make an array, and fill it in a loop", ast.Dict: "take several arguments",
    ast.Raise: "use assert for compile-time constants; data cannot stop a kernel",
    ast.Global: "return the value", ast.Nonlocal: "return the value",
    ast.Delete: "leave it out: unused values take no memory",
    ast.Try: "data cannot raise errors; test for the case with if", ast.With: "do it outside",
    ast.Match: "write if and elif", ast.NamedExpr: "assign it on a line before",
    ast.Yield: "return arrays", ast.JoinedStr: "write the text outside"}

# What to write instead of a method of arrays.
INSTEAD_OF_METHODS = {
    "item": "; leave it out: an element is a number", "view": "; write x.reshape(...)",
    "tolist": "; read its elements", "flatten": "; write x.reshape(x.size)",
    "ravel": "; write x.reshape(x.size)", "fill": "; write np.full(n, value, x.dtype)",
    "nonzero": "; shapes are known while compiling: use np.where(mask, x, 0.0)",
    "numel": "; write x.size", "dim": "; write x.ndim", "clone": "; write x.copy()",
    "unsqueeze": "; write np.expand_dims(x, axis)", "squeeze": "; write x.reshape(...)",
    "permute": "; write np.transpose(x, axes)", "mm": "; write x @ y", "bmm": "; write x @ y",
    **dict.fromkeys(("float", "half", "to", "type"), "; write x.astype(np.float32)"),
    **dict.fromkeys(("contiguous", "detach", "cpu", "cuda", "numpy"), "; leave it out")}
_THREADS = "number threads yourself: for block, thread in zt.threads(blocks, size)"
# What to write instead of a name of other languages for kernels.
INSTEAD_OF_NAMES = {
    **dict.fromkeys(("cuda", "tl", "triton", "threadIdx", "blockIdx", "blockDim", "program_id"),
                    _THREADS),
    "prange": "write range(...), whose iterations run at once if they are independent",
    **dict.fromkeys(("syncthreads", "__syncthreads", "sync"), "write zt.barrier()"),
    **dict.fromkeys(("shuffle_down", "shuffle_up"), "write zt.shuffle(x, lane)"),
    **dict.fromkeys(("torch", "F", "jnp", "jax", "tf", "numba"),
                    "write functions of numpy and math, or ops of zt.ops")}
# What to write instead of a function; by its name, or that of its module.
INSTEAD_OF_FUNCTIONS = {
    "random": "draw the numbers outside, and pass them as an argument",
    "numpy.random": "draw the numbers outside, and pass them as an argument",
    "time": "read the time outside, and pass it as an argument",
    "reversed": "loop over range(len(x) - 1, -1, -1) and read x[i]",
    "cuda": _THREADS, "numba": _THREADS, "triton": _THREADS,
    **dict.fromkeys(("nonzero", "unique", "argwhere", "flatnonzero"), "the size of its result is "
                    "data, but shapes are known while compiling: make the largest that it can be")}


def kind_of(node: ast.AST) -> str:
    """The name of a statement or an expression in errors."""
    names = {ast.Lambda: "a lambda", ast.Dict: "a dict", ast.Set: "a set",
             ast.ListComp: "a list comprehension", ast.JoinedStr: "an f-string",
             ast.Await: "await", ast.Yield: "yield", ast.NamedExpr: "an assignment with :=",
             ast.GeneratorExp: "a generator", ast.DictComp: "a dict comprehension",
             ast.SetComp: "a set comprehension", ast.FunctionDef: "a function inside a function",
             ast.ClassDef: "a class", ast.Try: "try", ast.With: "with", ast.Delete: "del"}
    return names.get(type(node), type(node).__name__.lower())
