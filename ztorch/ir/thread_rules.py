"""The rules for instructions that the threads of a workgroup or subgroup run together."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from ztorch.ir.copy_rules import CopyRules
from ztorch.ir.kernel import Instr, Kernel, Operand
from ztorch.ir.layouts import layout_of
from ztorch.ir.uniform import divergent, whole_block

SUBGROUP = 32  # threads, on every machine that has teams


@dataclass
class OpenScope:
    """An open loop or if. A variable is surely set if it is set on every path."""

    start: Instr  # the loop or if
    before: set[int]  # variables surely set before it
    defined: list[int] = field(default_factory=list)  # ids defined in it
    after_then: set[int] | None = None  # variables surely set at its else; None: no else so far


class ScopeRules(CopyRules):
    """The rules that depend on the loops and ifs around an instruction."""

    def __init__(self, kernel: Kernel):
        super().__init__(kernel)
        self.assigned: set[int] = set()  # variables surely set here
        self.open: list[OpenScope] = []  # open loops and ifs, outermost first
        # Kernels with roles have subgroups of a known size.
        roles = any(i.opcode.startswith("mbarrier_") for i in kernel.body)
        self.roles_subgroup = SUBGROUP if roles else 0
        self.divergent: dict[int, set[int]] = {}  # divergent ids by subgroup size; 0: workgroup

    def varying(self, subgroup: int) -> set[int]:
        """Ids that may differ between the threads of a subgroup (0: of a workgroup)."""
        if subgroup not in self.divergent:
            self.divergent[subgroup] = divergent(self.kernel, subgroup)
        return self.divergent[subgroup]

    def check_barrier(self, subgroup: int = 0) -> None:
        """All threads of a workgroup, or of a subgroup of this size, must get here together."""
        for scope in self.open:
            i = scope.start
            decides = (i.dest, *i.args) if i.attrs.get("kind") == "serial" else i.args
            self.rule(not any(a.id in self.varying(subgroup) for a in decides),
                      f"threads of a {'sub' if subgroup else 'work'}group may part at the "
                      f"{i.opcode} around it")
            self.rule(i.attrs.get("kind") != "parallel",
                      "CPU threads do not meet in a parallel loop")
            self.rule(i.attrs.get("kind") != "block" or whole_block(self.kernel, i),
                      "the block loop around it does not have one trip for each thread of "
                      f"workgroup {self.kernel.workgroup}")

    def check_shuffle_xor(self) -> None:
        self.kinds(*self.instr.args)
        self.same_type(self.instr.dest, self.instr.args[0])
        self.check_barrier(self.roles_subgroup)

    def together(self, x: Operand) -> None:
        """Whole subgroups must run this matrix instruction together, at one index."""
        assert x.fragment is not None
        subgroup = x.fragment.size // x.lanes
        self.rule(math.prod(self.kernel.workgroup) % subgroup == 0,
                  f"the workgroup {self.kernel.workgroup} is not a multiple of {subgroup} threads")
        self.check_barrier(subgroup)
        if "mem" in self.instr.attrs:
            self.rule(self.instr.args[0].id not in self.varying(subgroup),
                      f"the index may differ between the threads of a subgroup of {subgroup}")

    def check_mma_load(self) -> None:
        self.matrix(self.instr.dest, "abc")
        self.together(self.instr.dest)

    def check_mma_store(self) -> None:
        self.matrix(self.instr.args[1], "c")
        self.together(self.instr.args[1])

    def fragment(self, x: Operand) -> None:
        super().fragment(x)
        self.rule(x.fragment is None or not x.fragment.layout or layout_of(x.fragment),
                  "{} is no fragment of such a matrix: unknown layout", x.fragment)

    def check_extract(self) -> None:
        super().check_extract()
        x = self.instr.args[0].fragment
        self.rule(x is None or (x.role == "c" and layout_of(x)),
                  "extracts only from matrices c of a known layout")

    def check_mma_join(self) -> None:
        i, fragment = self.instr, self.instr.dest.fragment
        self.rule(fragment is not None and layout_of(fragment) is not None,
                  "gives a fragment of a matrix of a known layout")
        assert fragment is not None
        self.one_lane(*i.args)
        self.rule(all(a.dtype == fragment.shape.into for a in i.args),
                  f"joins {fragment.shape.into!r}, the dtype of sums")
        self.rule(i.dest.lanes == len(i.args), "gives as many elements as it has operands")

    def check_mma(self) -> None:
        self.product()
        self.together(self.instr.dest)
