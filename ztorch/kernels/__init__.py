"""Kernels in Python: loops over elements that become tensor operations."""

from ztorch.kernels.function import KernelFunction as KernelFunction
from ztorch.kernels.function import kernel as kernel
from ztorch.kernels.words import grid as grid
