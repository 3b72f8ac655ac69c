"""A matrix product by another library on a device: one call in place of a launch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ztorch.graph.value import Value
from ztorch.ir.builder import Builder
from ztorch.ir.library_products import MANTISSA_BITS
from ztorch.ir.limits import Limits
from ztorch.lower.cpu.contract import product_of
from ztorch.lower.cpu.library_operands import library_matrix
from ztorch.lower.region import COPY, Region
from ztorch.lower.schedule import Schedule
from ztorch.lower.tuning import LIBRARY_WORK

DTYPES = ("f32", "f16", "bf16")  # of operands; sums are float32


@dataclass(frozen=True, repr=False)
class CublasltSchedule(Schedule):
    """A product by cuBLASLt, whose rules choose the algorithm."""

    kind = library = "cublaslt"

    def tile(self, lanes: int) -> str:
        return self.kind


def stored_alone(region: Region) -> Value | None:
    """What a region stores, if that is its product alone: itself, or a copy in another shape."""
    first, *others = region.members
    if first.op.kind != "contract" or any(
            v.op is not COPY or region.flat[v] != region.flat[first] or v.dtype is not first.dtype
            or v.size != first.size for v in others) or len(region.stores) != 1:
        return None
    return region.stores[0]


def propose(region: Region, limits: Limits) -> CublasltSchedule | None:
    """The call; None if the library is not there or cannot compute the region."""
    product = product_of(region)
    m, n, k = *product.shape[-2:], product.args[0].shape[-1]
    s = CublasltSchedule()
    return None if m * n * k < LIBRARY_WORK or refusal(s, region, limits) else s


def refusal(s: CublasltSchedule, region: Region, limits: Limits) -> str:
    """Why the library cannot compute a region; empty if it can."""
    product = product_of(region)
    if s.kind not in dict(limits.libraries):
        return f"{s.kind} is not there"
    if stored_alone(region) is None or product.size != product.shape[-2] * product.shape[-1]:
        return "it computes one product alone"
    left, right = (a.dtype for a in product.args)
    if left is not right or left.name not in DTYPES or product.dtype.name not in (
            left.name, "f32") or product.attrs.get("dot"):
        return f"it does not multiply {left} by {right}"
    if limits.product_mantissa_bits not in MANTISSA_BITS:
        return f"it has no products of {limits.product_mantissa_bits} bits of mantissa"
    for matrix in map(library_matrix, product.args):
        if matrix is None or matrix.first.terms:
            return "an operand has neither contiguous rows nor contiguous columns"
    return ""


def emit(b: Builder, region: Region, memory: Mapping[Value, str], target: Mapping[Value, str],
         limits: Limits, s: CublasltSchedule) -> None:
    """The call."""
    product, result = product_of(region), stored_alone(region)
    (m, n), k = product.shape[-2:], product.args[0].shape[-1]
    left, right = map(library_matrix, product.args)
    assert left is not None and right is not None and result is not None  # `refusal`
    b.library_product(
        target[result], 0, memory[left.base], 0, memory[right.base], 0, pitch=n,
        source_off=left.first.const, source_pitch=left.pitch, source_transposed=left.transposed,
        right_off=right.first.const, right_pitch=right.pitch, right_transposed=right.transposed,
        library=s.kind, m=m, n=n, k=k)
