"""An object with every kind of symbol and relocation, linked by our linker."""

from __future__ import annotations

import platform
import struct
from functools import cache

import pytest

from ztorch.codegen.elf.contents import Blob
from ztorch.codegen.elf.link import link
from ztorch.codegen.elf.object import read_object

llvm = pytest.importorskip("llvmlite.binding")
TRIPLES = {"x86_64": "x86_64-unknown-linux-gnu", "aarch64": "aarch64-unknown-linux-gnu"}
HOST = platform.machine()
# Constants, a pointer table, internal calls, all three kinds of blob, unwind information, and
# enough loads of each width that aarch64 needs all its scaled offsets.
SOURCE = """
@scale = internal constant [4 x float] [float 1.0, float 2.0, float 3.0, float 4.0], align 16
@bytes = internal constant [3 x i8] c"\\07\\08\\09"
@halves = internal constant [2 x i16] [i16 70, i16 80]
@table = internal constant [3 x ptr] [ptr @plus, ptr @times, ptr @bytes]
@counter = internal global i64 5
@seen = internal global [1000 x i32] zeroinitializer
@weights = external hidden global [4 x float]
@moments = external hidden global [4 x float]
@arena = external hidden global [1024 x float]

define internal i32 @plus(i32 %a, i32 %b) noinline { %r = add i32 %a, %b  ret i32 %r }
define internal i32 @times(i32 %a, i32 %b) noinline { %r = mul i32 %a, %b  ret i32 %r }
define i32 @direct(i32 %a) uwtable { %r = call i32 @plus(i32 %a, i32 100)  ret i32 %r }
define i32 @indirect(i64 %which, i32 %a, i32 %b) uwtable {
  %p = getelementptr [3 x ptr], ptr @table, i64 0, i64 %which
  %f = load ptr, ptr %p
  %r = call i32 %f(i32 %a, i32 %b)
  ret i32 %r
}
define float @scaled(i64 %i) {
  %p = getelementptr [4 x float], ptr @scale, i64 0, i64 %i
  %q = getelementptr [4 x float], ptr @weights, i64 0, i64 %i
  %a = load float, ptr %p
  %b = load float, ptr %q
  %r = fmul float %a, %b
  ret float %r
}
define i32 @sizes() {
  %b = load volatile i8, ptr getelementptr ([3 x i8], ptr @bytes, i64 0, i64 2)
  %h = load volatile i16, ptr getelementptr ([2 x i16], ptr @halves, i64 0, i64 1)
  %v = load volatile <4 x float>, ptr @scale
  %b32 = zext i8 %b to i32
  %h32 = zext i16 %h to i32
  %e = extractelement <4 x float> %v, i32 3
  %e32 = fptosi float %e to i32
  %s = add i32 %b32, %h32
  %r = add i32 %s, %e32
  ret i32 %r
}
define i64 @count() {
  %a = load i64, ptr @counter
  %b = add i64 %a, 1
  store i64 %b, ptr @counter
  ret i64 %b
}
define i32 @remember(i64 %i, i32 %v) {
  %p = getelementptr [1000 x i32], ptr @seen, i64 0, i64 %i
  %old = load i32, ptr %p
  store i32 %v, ptr %p
  ret i32 %old
}
define float @momentum(i64 %i, float %v) {
  %p = getelementptr [4 x float], ptr @moments, i64 0, i64 %i
  %q = getelementptr [1024 x float], ptr @arena, i64 0, i64 %i
  %a = load float, ptr %p
  %b = load float, ptr %q
  %c = fadd float %a, %v
  %d = fadd float %b, %c
  store float %c, ptr %p
  store float %d, ptr %q
  ret float %d
}
define ptr @arena_address() { ret ptr @arena }
define i32 @choose(i32 %i) {
  switch i32 %i, label %other [ i32 0, label %a  i32 1, label %b  i32 2, label %c
                                i32 3, label %d  i32 4, label %e  i32 5, label %f ]
a: %ra = call i32 @plus(i32 %i, i32 11)
   ret i32 %ra
b: %rb = call i32 @times(i32 %i, i32 22)
   ret i32 %rb
c: %rc = call i32 @plus(i32 %i, i32 33)
   ret i32 %rc
d: %rd = call i32 @times(i32 %i, i32 44)
   ret i32 %rd
e: %re = call i32 @plus(i32 %i, i32 55)
   ret i32 %re
f: %rf = call i32 @times(i32 %i, i32 66)
   ret i32 %rf
other: ret i32 -1
}
"""
EXPORTS = ["direct", "indirect", "scaled", "sizes", "count", "remember", "momentum"]
EXPORTS += ["arena_address", "choose"]
BLOBS = {
    "weights": Blob(struct.pack("<4f", 10, 20, 30, 40), 16, 64, False),
    "moments": Blob(struct.pack("<4f", 1, 2, 3, 4), 16, 64, True),
    "arena": Blob(None, 4096, 64, True),
}


@cache
def compiled(source: str, machine: str = HOST, opt: int = 1) -> bytes:
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    target = llvm.Target.from_triple(TRIPLES[machine])
    options = {"opt": opt, "reloc": "pic", "codemodel": "small"}
    module = llvm.parse_assembly(source)
    module.triple = TRIPLES[machine]
    return bytes(target.create_target_machine(**options).emit_object(module))


def linked(machine: str = HOST, **kwargs: object) -> bytes:
    options = {"soname": "libzoo.so", "exports": EXPORTS, "blobs": BLOBS} | kwargs
    return link(compiled(SOURCE, machine), **options)  # type: ignore[arg-type]


def undefined_symbols(obj: bytes) -> list[str]:
    """The undefined symbols of an object: blobs, and library functions that LLVM calls."""
    return [symbol.name for symbol in read_object(obj).symbols if symbol.undefined]
