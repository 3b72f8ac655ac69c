"""The rules for products by functions of other libraries."""

from __future__ import annotations

from ztorch.dtypes import f32
from ztorch.ir.library_products import MATRICES, lines_of
from ztorch.ir.rules import ATTRIBUTES, Rules

ATTRIBUTES.update(dict.fromkeys(("source_pitch", "right_pitch"), ATTRIBUTES["pitch"]))


class LibraryRules(Rules):
    """The rules for single instructions, products by libraries among them."""

    def check_library_product(self) -> None:
        """Three memories of one dtype; the lines of each matrix are apart, and inside."""
        attrs = self.instr.attrs
        self.rule(attrs["mem"] not in (attrs["source"], attrs["right"]),
                  "{} is read and written at once", attrs["mem"])
        self.rule(all(attrs[size] > 0 for size in "mnk"), "has no elements")
        target = self.memories[attrs["mem"]]
        self.rule(target.access != "r", "{} is read-only", target.name)
        of = self.memories[attrs["source"]].dtype
        self.rule(target.dtype.is_float, "has no products of {!r}", target.dtype)
        self.rule(target.dtype in (of, f32), "has no products of {!r} in {!r}", of, target.dtype)
        for index, matrix in zip(self.instr.args, MATRICES, strict=True):
            m, off = self.memories[attrs[matrix[0]]], attrs[matrix[1]]
            lines, length, pitch = lines_of(attrs, matrix)
            self.index(index)
            self.one_lane(index)
            self.rule(m is target or m.dtype == of, "{} holds {!r}, not {!r}", m.name, m.dtype, of)
            self.rule(m.space != "shared", "{} is shared", m.name)
            self.rule(m is target or m.access != "w", "{} is write-only", m.name)
            self.rule(pitch >= length, "lines of {} elements overlap at pitch {}", length, pitch)
            if index.is_const:
                first = index.number + off
                last = first + (lines - 1) * pitch + length - 1
                self.rule(first >= 0 and last < m.size, "{}[{}] is outside its {} elements",
                          m.name, first if first < 0 else last, m.size)
