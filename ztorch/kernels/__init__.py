"""Kernels in Python: loops over elements that become tensor operations."""

from ztorch.graph.hints import Hints as Hints
from ztorch.kernels.function import KernelFunction as KernelFunction
from ztorch.kernels.function import kernel as kernel
from ztorch.kernels.known_functions import grid as grid
from ztorch.kernels.subgroup_functions import lane as lane
from ztorch.kernels.subgroup_functions import shuffle as shuffle
from ztorch.kernels.subgroup_functions import shuffle_xor as shuffle_xor
from ztorch.kernels.subgroup_functions import subgroup_max as subgroup_max
from ztorch.kernels.subgroup_functions import subgroup_min as subgroup_min
from ztorch.kernels.subgroup_functions import subgroup_sum as subgroup_sum
from ztorch.kernels.thread_functions import atomic_add as atomic_add
from ztorch.kernels.thread_functions import atomic_cas as atomic_cas
from ztorch.kernels.thread_functions import atomic_exchange as atomic_exchange
from ztorch.kernels.thread_functions import atomic_max as atomic_max
from ztorch.kernels.thread_functions import atomic_min as atomic_min
from ztorch.kernels.thread_functions import barrier as barrier
from ztorch.kernels.thread_functions import shared as shared
from ztorch.kernels.thread_functions import threads as threads
