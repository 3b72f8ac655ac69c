"""Loads templates, and finds the macros of a target in them."""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import marshal
from collections.abc import Container, MutableMapping
from typing import Any

import jinja2
from jinja2 import Environment, FileSystemLoader, StrictUndefined, Template, TemplateNotFound

from ztorch.abi import CALL_RECORD, FOREIGN_FUNCTIONS
from ztorch.codegen.inline_assembly import inlined
from ztorch.codegen.object_cache import cached
from ztorch.codegen.targets import Target
from ztorch.dtypes import ALL, DType, Spelled
from ztorch.errors import ZtorchError
from ztorch.host.assets import folder
from ztorch.ir.opcodes import COMPUTING, OPCODES

_KINDS = {"f": "float", "s": "int", "u": "int", "b": "bool"}  # names in macros by DType.kind


def forms(opcode: str, result: DType, operand: DType) -> tuple[str, ...]:
    """The names of the macros that can render an opcode, the most specific first.

    A macro can be for one dtype, for a kind of dtypes, or for all. A macro of a conversion can be
    for a pair of dtypes or kinds.

    >>> from ztorch.dtypes import f32, i32
    >>> forms("max", f32, f32), forms("cast", i32, f32)[:2]
    (('max_f32', 'max_float', 'max'), ('cast_f32_to_i32', 'cast_float_to_int'))
    """
    if opcode not in COMPUTING and not OPCODES[opcode].by_dtype:
        return (opcode,)
    kind = _KINDS[operand.kind]
    if OPCODES[opcode].result == "attr":
        pair = f"{operand.name}_to_{result.name}", f"{kind}_to_{_KINDS[result.kind]}"
        return (*(f"{opcode}_{p}" for p in pair), opcode)
    return f"{opcode}_{operand.name}", f"{opcode}_{kind}", opcode


# All names of macros in `instr` templates, and in `spelling` templates.
WORDS = frozenset(form for opcode, row in OPCODES.items() for operand in ALL
                  for result in (ALL if row.result == "attr" else (operand,))
                  for form in forms(opcode, result, operand))
SPELLING = ("type", "suffix", "register", "memory", "literal", "fragment_registers", "offset",
            "widened")


class _Loader(FileSystemLoader):
    """Caches the code that Jinja compiles a template to, which takes a tenth of a second per
    target."""

    def load(self, environment: Environment, name: str,
             globals: MutableMapping[str, Any] | None = None) -> Template:
        source, path, up_to_date = self.get_source(environment, name)
        key = ("template", jinja2.__version__, importlib.util.MAGIC_NUMBER, path, name, source)
        code = cached(key, lambda: marshal.dumps(environment.compile(source, name, path)))
        return environment.template_class.from_code(environment, marshal.loads(code),
                                                    globals or {}, up_to_date)


@functools.cache
def environment(root: str = "") -> Environment:
    """The Jinja environment. Undefined names and missing arguments are errors.

    `root` is the parent of a third party's template folders, which are searched before ours.
    """
    folders = [*([root] if root else []), str(folder("templates"))]
    jinja = Environment(
        loader=_Loader(folders), undefined=StrictUndefined,
        trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True, autoescape=False)
    jinja.globals["foreign_functions"] = FOREIGN_FUNCTIONS
    jinja.globals["call_record"] = CALL_RECORD
    jinja.globals["names"] = {language: dtype_names(language) for language in Spelled._fields}
    jinja.globals["inlined"] = inlined
    return jinja


def dtype_names(language: str) -> dict[str, str]:
    """The names of the dtypes that a language has, by our names.

    >>> dtype_names("wgsl")["i8"], "f64" in dtype_names("wgsl")
    ('i32', False)
    """
    return {d.name: name for d in ALL if (name := getattr(d.spelled, language))}


def c_module(text: str) -> str:
    """A C module that contains a user's functions."""
    return str(environment().get_template("c/own.c.j2").render(text=text))


def macros(target: Target, kind: str, names: Container[str]) -> dict[str, Any]:
    """The macros of all template folders of a target; the most specific folder has precedence.

    Args:
        target: The target.
        kind: The name of the template: "instr" or "spelling".
        names: The names that macros may have. Private macros start with an underscore.
    """
    merged: dict[str, Any] = {}
    for folder_name in reversed(target.template_folders):
        path = f"{folder_name}/{kind}.{target.template_suffix}.j2"
        with contextlib.suppress(TemplateNotFound):
            module = environment(target.template_root).get_template(path).module
            merged |= _checked(path, module, names)
    return merged


def _checked(path: str, module: Any, names: Container[str]) -> dict[str, Any]:
    """The macros of a template; an error if one has an unknown name."""
    macros = {name: m for name, m in vars(module).items() if callable(m)}
    for name in macros:
        if name not in names:
            raise ZtorchError(f"templates/{path}: the macro {name!r} has the name of no opcode or "
                              f"spelling; rename a private macro to {'_' + name!r}")
    return macros


def module_text(target: Target, **data: Any) -> str:
    """The text of a whole module, from the frame in the target's most specific folder."""
    names = [f"{name}/module.{target.template_suffix}.j2" for name in target.template_folders]
    return environment(target.template_root).select_template(names).render(**data)
