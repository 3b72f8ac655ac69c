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
    ast.Global: "return the value", ast.Delete: "leave it out: unused values take no memory"}


def kind_of(node: ast.AST) -> str:
    """The name of a statement or an expression in errors."""
    names = {ast.Lambda: "a lambda", ast.Dict: "a dict", ast.Set: "a set",
             ast.ListComp: "a list comprehension", ast.JoinedStr: "a string",
             ast.Await: "await", ast.Yield: "yield", ast.NamedExpr: "an assignment with :=",
             ast.GeneratorExp: "a generator", ast.DictComp: "a dict comprehension",
             ast.SetComp: "a set comprehension", ast.FunctionDef: "a function inside a function",
             ast.ClassDef: "a class", ast.Try: "try", ast.With: "with", ast.Delete: "del"}
    return names.get(type(node), type(node).__name__.lower())
