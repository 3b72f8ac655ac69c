"""The time of work that needs several parts of a GPU, one after another.

Several subgroups use different parts at the same time, and sometimes wait for the same one. With
many of them the busiest part decides; one alone uses each part in turn. In between it is a closed
network of queues, whose throughput mean value analysis computes (Reiser and Lavenberg, 1980).
"""

from __future__ import annotations

from collections.abc import Collection

# Subgroups that want the same part at once, because barriers keep them in step. On an H200,
# attention whose subgroups load, multiply and exponentiate for about as long each took 461 us of
# 227 at best, products of tf32 1,140 of 803. Asynchronous copies and products keep no one in step.
IN_STEP = 2
MOST = 64  # subgroups, beyond which no time changes


def overlapped(demands: Collection[float], subgroups: int) -> float:
    """The time of work by subgroups that each need all parts.

    Args:
        demands: The time for which each part is busy with all of the work.
        subgroups: The number that is independent of one another.

    >>> [round(overlapped([3.0, 2.0, 1.0], n), 2) for n in (1, 4, 64)]
    [6.0, 3.34, 3.0]
    >>> overlapped([1.0, 1.0, 1.0], 2)  # of n parts that are equally busy: 1 + (n - 1) / 2
    2.0
    """
    waiting = [0.0] * len(demands)  # mean number of subgroups at each part
    time = 0.0
    for n in range(1, min(max(subgroups, 1), MOST) + 1):
        stays = [demand * (1.0 + queue) for demand, queue in zip(demands, waiting, strict=True)]
        if not (total := sum(stays)):
            return 0.0
        waiting, time = [n * stay / total for stay in stays], total / n
    return time
