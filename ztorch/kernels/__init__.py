"""Kernels in Python: loops over elements that become tensor operations."""

from ztorch.graph.hints import Hints as Hints
from ztorch.kernels.function import KernelFunction as KernelFunction
from ztorch.kernels.function import kernel as kernel
from ztorch.kernels.subgroup_words import lane as lane
from ztorch.kernels.subgroup_words import shuffle as shuffle
from ztorch.kernels.subgroup_words import shuffle_xor as shuffle_xor
from ztorch.kernels.subgroup_words import subgroup_max as subgroup_max
from ztorch.kernels.subgroup_words import subgroup_min as subgroup_min
from ztorch.kernels.subgroup_words import subgroup_sum as subgroup_sum
from ztorch.kernels.thread_words import atomic_add as atomic_add
from ztorch.kernels.thread_words import atomic_cas as atomic_cas
from ztorch.kernels.thread_words import atomic_exchange as atomic_exchange
from ztorch.kernels.thread_words import atomic_max as atomic_max
from ztorch.kernels.thread_words import atomic_min as atomic_min
from ztorch.kernels.thread_words import barrier as barrier
from ztorch.kernels.thread_words import shared as shared
from ztorch.kernels.thread_words import threads as threads
from ztorch.kernels.words import grid as grid
