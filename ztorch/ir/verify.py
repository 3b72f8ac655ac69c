"""Checks that a kernel follows the rules of the IR before it is rendered.

Names and attributes are pasted into the text of a target, and alignments into its instructions. A
kernel that passes these checks cannot inject text through a template and claims no alignment that
does not hold.
"""

from __future__ import annotations

from ztorch.ir.kernel import ASYNC_PRODUCTS, PRIVATE_KINDS, Kernel, Operand, set_in_loop
from ztorch.ir.opcodes import OPCODES
from ztorch.ir.ring_rules import MAX_CLUSTER, RingRules
from ztorch.ir.rules import MAX_LANES, NAME, is_int
from ztorch.ir.thread_rules import OpenScope

MASKED = ("load", "store", "gather", "scatter")  # opcodes that take an optional mask
# Opcodes that take matrix fragments.
MATRICES = ("get", "set", "mma_load", "mma", "mma_store", "mma_join", "extract", *ASYNC_PRODUCTS)
# The kind of the first operand, where it is not a value.
FIRST_KINDS = {"get": "variable", "set": "variable", "else": "token", "end_if": "token",
               "end_loop": "counter", "while": "counter"}


def verify(kernel: Kernel) -> None:
    """Raise `VerifyError` (kernel, instruction, opcode, rule) unless the kernel is well formed.

    >>> from ztorch.dtypes import f32
    >>> from ztorch.ir.builder import Builder
    >>> b = Builder("fill")
    >>> _ = b.memory("y", f32, 8, access="w")
    >>> b.store("y", 8, b.const(0.0, f32))
    >>> verify(b.kernel())
    Traceback (most recent call last):
    ztorch.errors.VerifyError: kernel fill, instruction 0 (store): y[8] is outside its 8 elements
    """
    _Verifier(kernel).run()


class _Verifier(RingRules):
    """The rules that depend on earlier instructions: ids, scopes, variables, divergence."""

    def __init__(self, kernel: Kernel):
        super().__init__(kernel)
        self.visible: dict[int, Operand] = {}  # operands in scope, by id
        self.ids: set[int] = set()  # all ids defined so far

    def run(self) -> None:
        self.declarations()
        for at, instr in enumerate(self.kernel.body):
            self.at, self.instr = at, instr
            self.instruction()
        self.rule(not self.open, "ends inside an open loop or if")

    def declarations(self) -> None:
        k = self.kernel
        self.rule(NAME.fullmatch(k.name), f"the name {k.name!r} is not an identifier")
        self.rule(k.index.name in ("i32", "i64"), f"indices are i32 or i64, not {k.index!r}")
        self.rule(len(k.workgroup) == 3 and all(is_int(n) and n > 0 for n in k.workgroup),
                  f"the workgroup {k.workgroup} is not three positive numbers")
        self.rule(is_int(k.cluster) and 1 <= k.cluster <= MAX_CLUSTER,
                  f"a cluster of {k.cluster} workgroups")
        self.rule(is_int(k.resident_threads) and k.resident_threads >= 0,
                  f"{k.resident_threads} resident threads are not a number of threads")
        for name in k.origin:  # is written into a comment of the rendered text
            self.rule(name.isprintable() and "*/" not in name and "\\" not in name,
                      f"the origin {name!r} is not valid in a comment")
        for m in k.memories:
            self.rule(NAME.fullmatch(m.name), f"the memory name {m.name!r} is not an identifier")
            self.rule(m.name not in self.memories, f"memory {m.name} is declared twice")
            self.rule(m.dtype.kind != "b", f"memory {m.name} is bool; store u8")
            self.rule(m.space in ("global", "shared", "local"),
                      f"{m.name}: no memory space {m.space!r}")
            self.rule(m.access in ("r", "w", "rw"), f"{m.name}: no access {m.access!r}")
            self.rule(m.vec in (1, 2, 4), f"{m.name}: vec is 1, 2 or 4, not {m.vec}")
            self.rule(is_int(m.size) and 0 < m.size < 1 << (k.index.bits - 1),
                      f"{m.name}: {m.size} elements are not countable in {k.index!r}")
            self.swizzle(m)
            self.memories[m.name] = m
        for v in k.variables:
            self.fragment(v)
            self.rule(v.kind == "variable", f"%{v.id} is declared as a variable but is a {v.kind}")
            self.define(v)

    def define(self, dest: Operand) -> None:
        if not (is_int(dest.id) and dest.id >= 0):
            self.fail("%{} is not an id", dest.id)
        if dest.id in self.ids:
            self.fail("%{} is defined twice", dest.id)
        if not (is_int(dest.lanes) and 1 <= dest.lanes <= MAX_LANES):
            self.fail("%{} has {} lanes", dest.id, dest.lanes)
        if dest.bits is not None:
            self.fail("%{} is not a constant but has bits", dest.id)
        self.ids.add(dest.id)
        self.visible[dest.id] = dest
        if self.open and dest.kind != "variable":
            self.open[-1].defined.append(dest.id)

    # -- every instruction -------------------------------------------------------------------------

    def instruction(self) -> None:
        i, row = self.instr, OPCODES.get(self.instr.opcode)
        if row is None:
            return self.rule(False, "no such opcode")
        extra = len(i.args) - row.arity
        if extra != 0 and not (extra == 1 and i.opcode in MASKED) and not (
                extra > 0 and row.variadic):
            self.fail("takes {} operands, not {}", row.arity, len(i.args))
        if row.attrs or i.attrs:
            self.attributes(row.attrs)
        fragments = i.dest.fragment is not None
        for place, a in enumerate(i.args):
            self.operand(place, a)
            fragments = fragments or a.fragment is not None
        if fragments:
            self.fragment(i.dest)
            self.rule(i.opcode in MATRICES, "takes no fragments of matrices")
        kind = "counter" if i.opcode == "loop" else "token" if row.result == "none" else "value"
        if i.dest.kind != kind:
            self.fail("defines a {}, not a {}", kind, i.dest.kind)
        if kind == "token" and not (i.dest.dtype.kind == "b" and i.dest.lanes == 1):
            self.fail("a token is one bool")
        if row.meaning is not None:
            self.scalar()
        else:
            getattr(self, f"check_{i.opcode}")()
            if "mem" in i.attrs and i.opcode != "prefetch":
                self.swizzled_access()
                self.ring_access()
        if i.opcode == "loop":  # enter first: the counter belongs to the body
            self.enter()
        self.define(i.dest)
        if i.opcode == "if":
            self.enter()
        if i.args and i.dest.dtype == self.kernel.index:
            self.multiples[i.dest.id] = self.multiple_of()

    def operand(self, place: int, a: Operand) -> None:
        opcode, constant = self.instr.opcode, a.kind == "const"
        if constant:
            if a.fragment is not None and not (opcode == "set" and a.fragment.role == "c"):
                self.fail("only a matrix c is set to a constant")
            if a.id != -1 or a.bits is None or not 0 <= a.bits < 1 << a.dtype.bits:
                self.fail("operand {} is not a proper constant", place)
            if not (is_int(a.lanes) and 1 <= a.lanes <= MAX_LANES):
                self.fail("operand {} has {} lanes", place, a.lanes)
        else:
            definition = self.visible.get(a.id)
            if definition is None:
                self.fail("%{} is used outside its scope or before it is defined", a.id)
            if a is not definition and a != definition:
                self.fail("%{} is used as {}, unlike its definition", a.id, a)
        expected = FIRST_KINDS.get(opcode, "value") if place == 0 else "value"
        if place > 1 and opcode in ASYNC_PRODUCTS:
            expected = "variable"
        actual = "value" if constant or (a.kind == "counter" and expected == "value") else a.kind
        if actual != expected:
            self.fail("operand {} is a {}, not a {}", place, a.kind, expected)

    # -- variables ---------------------------------------------------------------------------------

    def check_get(self) -> None:
        v = self.instr.args[0]
        self.same_type(self.instr.dest, v)
        self.rule(v.id in self.assigned, "%{} may not have been set on some path to here", v.id)

    def check_set(self) -> None:
        v, x = self.instr.args
        self.same_type(v, x)
        self.assigned.add(v.id)

    # -- structure ---------------------------------------------------------------------------------

    def check_loop(self) -> None:
        i, kind = self.instr, self.instr.attrs["kind"]
        for a in (i.dest, *i.args):
            self.index(a)
            self.one_lane(a)
        step = i.args[2]
        self.rule(step.is_const and step.number > 0, "the step is not a positive constant")
        self.rule(kind != "parallel" or not self.open, "a parallel loop is not at the top level")
        for scope in self.open:
            outer = scope.start.attrs
            if kind in ("grid", "block") and outer.get("kind") == kind:
                self.rule(outer.get("axis", 0) != i.attrs.get("axis", 0),
                          f"is in another {kind} loop over axis {i.attrs.get('axis', 0)}")

    def enter(self) -> None:
        """Open the scope of the current loop or if."""
        i, scope = self.instr, OpenScope(self.instr, set(self.assigned))
        self.open.append(scope)
        if i.attrs.get("kind") in PRIVATE_KINDS:
            # A trip may run on its own thread, so it cannot read values that another trip has set.
            carried = set_in_loop(self.kernel.body, self.at)
            scope.before -= carried
            self.assigned -= carried

    def close(self, opening: str) -> OpenScope:
        """Close the innermost scope, which the opcode `opening` must have opened."""
        self.rule(self.open and self.open[-1].start.opcode == opening,
                  f"there is no open {opening} to end")
        self.forget()
        return self.open.pop()

    def forget(self) -> None:
        """Hide the names of the innermost scope."""
        for defined in self.open[-1].defined:
            del self.visible[defined]
        self.open[-1].defined.clear()

    def check_end_loop(self) -> None:
        scope = self.close("loop")
        self.rule(self.instr.args == (scope.start.dest, *scope.start.args),
                  "does not repeat the operands of its loop")
        self.assigned = scope.before  # a loop of zero trips sets nothing

    def check_while(self) -> None:
        counter, condition = self.instr.args
        self.kinds(condition)
        loop = self.open[-1].start if self.open else self.instr
        self.rule(loop.dest == counter, "is in a nested block, not directly in its loop")
        self.rule(loop.attrs.get("kind") == "serial", "ends a loop whose trips may run at once")

    def check_if(self) -> None:
        self.kinds(*self.instr.args)
        self.one_lane(*self.instr.args)

    def check_else(self) -> None:
        self.rule(self.open and self.open[-1].start.opcode == "if", "there is no open if to split")
        scope = self.open[-1]
        self.rule(self.instr.args == (scope.start.dest,), "does not name its if")
        self.rule(scope.start.attrs["els"] and scope.after_then is None,
                  "this if declares no else, or has had it")
        self.forget()
        scope.after_then, self.assigned = self.assigned, set(scope.before)

    def check_end_if(self) -> None:
        scope = self.close("if")
        self.rule(self.instr.args == (scope.start.dest,), "does not name its if")
        self.rule(self.instr.attrs["els"] == scope.start.attrs["els"]
                  == (scope.after_then is not None), "els does not say whether there is an else")
        # Without an else, the branch may not be taken and sets nothing for sure.
        self.assigned = (scope.before if scope.after_then is None
                         else self.assigned & scope.after_then)
