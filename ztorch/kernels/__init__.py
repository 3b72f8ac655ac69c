"""Kernels in Python: loops over elements that become tensor operations."""

from ztorch.kernels.kernel import Kernel as Kernel
from ztorch.kernels.kernel import kernel as kernel
from ztorch.kernels.words import grid as grid
