"""What we know of a machine that we generate code for: a row of the table of targets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from ztorch.errors import unknown
from ztorch.ir.halves import HALVES
from ztorch.ir.limits import Limits
from ztorch.machines.processors import Processor

# The least number of mantissa bits that float32 operands keep in a product. "exact" also forbids
# transformed convolutions (Winograd).
PRECISIONS = {"float32": 23, "high": 20, "tf32": 10, "exact": 23}


@dataclass(frozen=True)
class Target:
    """A machine: its language and its capabilities."""

    name: str  # its name in devices and artifacts
    template_folders: tuple[str, ...]  # folders of its language, the most specific first
    template_suffix: str  # suffix of the files in them
    limits: Limits  # numbers for lowering
    arch: str = ""  # instruction set of a processor
    llvm_triple: str = ""  # architecture and operating system
    llvm_cpu: str = ""  # processor or chip
    llvm_features: tuple[str, ...] = ()  # instruction sets that LLVM may use
    required_features: tuple[str, ...] = ()  # features that a processor must have to run the code
    missing_opcodes: frozenset = field(default_factory=frozenset)  # opcode, or (opcode, dtype)
    stored_dtypes: tuple[str, ...] = tuple(d.name for d in HALVES)  # dtypes without arithmetic
    converted_dtypes: tuple[str, ...] = ()  # those with instructions that convert from and to f32
    frame_data: tuple[tuple[str, int | str], ...] = ()  # other values for the module's template
    backend: str = "cpu"  # the driver that runs the code
    chip: str = ""  # the chip that the code is for; empty: all devices of the backend
    assembler: str = ""  # module of `codegen` that assembles the text; empty: the text is the code
    one_module_per_kernel: bool = False  # whether each kernel is a module of its own
    linked_by_assembler: bool = False  # whether the assembler's output needs no linking
    declares_registers: bool = False  # whether the text declares its registers
    emits_source: bool = False  # whether C libraries can include the text itself
    llvm_opt_level: int = 1  # optimization level of LLVM's code generator, 0 to 3
    llvm_strength_reduction: bool = True  # whether LLVM runs loop strength reduction
    llvm_in_child: bool = False  # whether LLVM runs in a process of its own, and leaves no memory
    byte_dots: str = ""  # optional feature: products of words of bytes; also its template folder
    template_root: str = ""  # parent of a third party's template folders; empty: ours

    def on_device(self, limits: Mapping[str, Any]) -> Target:
        """The target with the limits that a device reports, by field names of GridLimits.

        >>> from ztorch.codegen.targets import target
        >>> target("vulkan").on_device({"threads": 1024}).limits.grid.threads
        1024
        """
        assert self.limits.grid is not None, f"{self.name} is a processor"
        return replace(self, limits=replace(self.limits, grid=replace(self.limits.grid, **limits)))

    def on_processor(self, processor: Processor) -> Target:
        """The target with the caches and ports of one processor.

        >>> from ztorch.codegen.targets import target
        >>> from ztorch.machines.processors import processor
        >>> target("avx2").on_processor(processor("zen3")).limits.processor.l2_bytes
        524288
        """
        assert self.limits.grid is None, f"{self.name} is not a processor"
        return replace(self, limits=replace(self.limits, processor=processor))

    def with_libraries(self, libraries: tuple[tuple[str, str], ...]) -> Target:
        """The target with libraries whose functions its kernels may call.

        >>> from ztorch.codegen.targets import target
        >>> target("avx2").with_libraries((("openblas", "0.3.31"),)).limits.libraries
        (('openblas', '0.3.31'),)
        """
        return replace(self, limits=replace(self.limits, libraries=libraries))

    def with_byte_dots(self) -> Target:
        """The target with products of words of bytes, if processors of its level may have them."""
        return self if not self.byte_dots else replace(
            self, template_folders=(self.byte_dots, *self.template_folders),
            llvm_features=(*self.llvm_features, self.byte_dots),
            required_features=(*self.required_features, self.byte_dots),
            limits=replace(self.limits, byte_dots=True))

    def with_precision(self, precision: str) -> Target:
        """The target with a precision of float32 products, by its name in PRECISIONS.

        >>> from ztorch.codegen.targets import target
        >>> target("cuda:sm_80").with_precision("tf32").limits.product_mantissa_bits
        10
        """
        if str(precision) not in PRECISIONS:
            raise unknown("matmul_precision", precision, PRECISIONS)
        return replace(self, limits=replace(
            self.limits, product_mantissa_bits=PRECISIONS[precision],
            transforms=precision != "exact"))

    def without_tensor_cores(self) -> Target:
        """The target without matrix instructions.

        >>> from ztorch.codegen.targets import target
        >>> target("cuda:sm_80").without_tensor_cores().limits.grid.mma_shapes
        ()
        """
        return self if self.limits.grid is None else self.on_device(
            {"mma_shapes": (), "mma_layout": ""})
