"""All routines of a device in one class."""

from __future__ import annotations

from ztorch.library.custom_kernels import CustomKernels
from ztorch.library.elementwise import Elementwise
from ztorch.library.networks import Networks
from ztorch.library.products import Products
from ztorch.library.reductions import Reductions
from ztorch.library.updates import Updates


class Routines(Products, Elementwise, Reductions, Networks, Updates, CustomKernels):
    """Memory, streams, routines and custom kernels."""
