"""Kernels as text, from their bodies."""

from __future__ import annotations

from ztorch.ir.kernel import Kernel
from ztorch.ir.text import parse

HEAD = """
kernel k index=i64 exact workgroup=(4, 1, 1) {
  global x f32[16] r
  global y f32[16] w
  global z f32[16] rw
  global n i32[16] rw
  shared s f32[16] rw
  var %100:f32
  var %101:f32x4
"""


def body(text: str) -> Kernel:
    return parse(HEAD + text + "\n}")
