"""Threads, blocks and shared memory, for explicit control of parallel execution.

Loops over elements suit most kernels: the compiler finds threads and memory for each device. Here
blocks of threads share memory, meet at barriers, and update elements that others update too.
"""

import math

import numpy as np

import ztorch as zt


@zt.kernel
def block_histogram(labels, bins=64, size=64):
    """How often each label from 0 to bins - 1 occurs. A block counts for itself first."""
    counts = np.zeros(bins, np.int32)
    n = labels.shape[0]
    for block, thread in zt.threads(math.ceil(n / size), size):
        own = zt.shared(bins, np.int32)
        for k in range(thread, bins, size):
            own[k] = 0
        zt.barrier()
        i = block * size + thread
        if i < n:
            zt.atomic_add(own, labels[i], 1)
        zt.barrier()
        for k in range(thread, bins, size):
            zt.atomic_add(counts, k, own[k])
    return counts


@zt.kernel
def block_sums(x, size=64):
    """The sum of each part of `size` elements, added as a tree in shared memory."""
    n = x.shape[0]
    out = np.empty(math.ceil(n / size), x.dtype)
    for block, thread in zt.threads(out.shape[0], size):
        part = zt.shared(size, x.dtype)
        i = block * size + thread
        part[thread] = x[i] if i < n else 0.0
        zt.barrier()
        half = size // 2
        while half > 0:
            if thread < half:
                part[thread] += part[thread + half]
            zt.barrier()
            half //= 2
        if thread == 0:
            out[block] = part[0]
    return out


@zt.kernel
def row_norms(x, size=64):
    """The length of each row: a block a row. Subgroups add without memory, where there are any."""
    rows, columns = x.shape
    out = np.empty(rows, x.dtype)
    for row, thread in zt.threads(rows, size):
        parts = zt.shared(size // 32, x.dtype)
        total = 0.0
        for j in range(thread, columns, size):
            total += x[row, j] * x[row, j]
        total = zt.subgroup_sum(total)
        if zt.lane(thread) == 0:
            parts[thread // 32] = total
        zt.barrier()
        if thread == 0:
            whole = 0.0
            for k in range(size // 32):
                whole += parts[k]
            out[row] = math.sqrt(whole)
    return out


@zt.kernel
def extent(x, size=64):
    """The smallest and the largest element."""
    low, high = np.full(1, math.inf, x.dtype), np.full(1, -math.inf, x.dtype)
    n = x.shape[0]
    for block, thread in zt.threads(math.ceil(n / size), size):
        i = block * size + thread
        if i < n:
            zt.atomic_min(low, 0, x[i])
            zt.atomic_max(high, 0, x[i])
    return low, high


@zt.kernel
def label_products(labels, x, groups=4, size=64):
    """The product of the numbers of each label: an update that no word has, by compare-and-swap."""
    out = np.ones(groups, x.dtype)
    n = labels.shape[0]
    for block, thread in zt.threads(math.ceil(n / size), size):
        i = block * size + thread
        if i < n:
            at = labels[i]
            old = zt.atomic_add(out, at, 0.0)
            while True:
                seen = zt.atomic_cas(out, at, old, old * x[i])
                if seen == old:
                    break
                old = seen
    return out


@zt.kernel(max_steps=16)
def running_median(x, width=5, size=64):
    """The median of each `width` neighbors. A thread sorts them in an array of its own."""
    n = x.shape[0] - width + 1
    out = np.empty(n, x.dtype)
    for block, thread in zt.threads(math.ceil(n / size), size):
        i = block * size + thread
        if i < n:
            row = np.empty(width, x.dtype)
            for k in range(width):
                at = k
                while at > 0 and row[at - 1] > x[i + k]:
                    row[at] = row[at - 1]
                    at -= 1
                row[at] = x[i + k]
            out[i] = row[width // 2]
    return out
