"""The rules for asynchronous copies."""

from __future__ import annotations

import math

from ztorch.ir.library_rules import LibraryRules


class CopyRules(LibraryRules):
    """The rules for single instructions, copies among them."""

    def check_copy_async(self) -> None:
        """From a global memory that the kernel only reads to the same dtype in shared memory."""
        (to, origin, inside), attrs = self.instr.args, self.instr.attrs
        target, source = self.memories[attrs["mem"]], self.memories[attrs["source"]]
        self.rule(target.space == "shared", "{} is not shared", target.name)
        self.rule(source.space == "global" and source.access == "r",
                  "{} is not read-only global memory", source.name)
        self.rule(source.dtype == target.dtype, "copies {!r} to {!r}", source.dtype, target.dtype)
        self.rule(inside.dtype.kind == "b", "a mask is bool, not {!r}", inside.dtype)
        self.one_lane(to, origin, inside)
        self.rule(not inside.is_const or inside.number, "copies from nowhere")
        for index, off in ((to, attrs["off"]), (origin, attrs["source_off"])):
            self.index(index)
            elements = math.gcd(self.known_multiple(index), off)
            if attrs["align"]:
                self.rule(elements * target.dtype.bytes % attrs["align"] == 0,
                          "{} or {} is not known to be aligned to {} bytes here", target.name,
                          source.name, attrs["align"])

    def check_copies_commit(self) -> None:
        """Has no rules."""

    check_copies_wait = check_copies_commit
