"""The rates of a unit of a GPU, which choose its tiles."""

from __future__ import annotations

from typing import NamedTuple


class UnitRates(NamedTuple):
    """The rates of one unit per cycle while all units are busy. The defaults are an A100's."""

    products: float = 1024  # 16-bit multiply-adds of asynchronous matrix instructions
    subgroup_products: float = 1024  # 16-bit multiply-adds of a subgroup's matrix instructions
    tf32: float = 512  # tf32 multiply-adds of asynchronous matrix instructions
    subgroup_tf32: float = 512  # tf32 multiply-adds of a subgroup's matrix instructions
    f32: float = 64  # float32 multiply-adds of threads
    l2_bytes: float = 47  # bytes from the L2 cache
    memory_bytes: float = 12  # bytes from memory or to it
    shared_bytes: float = 128  # bytes to or from shared memory: 32 banks of 4 bytes on all rows
    copy_cycles: int = 1200  # latency of a tile copy in cycles


ANY_UNIT = UnitRates()  # the rates of chips without a row
