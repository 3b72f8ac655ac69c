"""Graphs whose products become stages of chains: small models that predict a few rows."""

from __future__ import annotations

from ztorch.graph.value import Graph
from ztorch.ir.limits import Limits
from ztorch.lower.tuning import CHAIN_BYTES, CHAIN_MOST, CHAIN_ROWS


def becomes_chains(graph: Graph, limits: Limits) -> bool:
    """Whether all products of a graph are of few rows and a small matrix, and there are several."""
    if limits.grid is None or not limits.grid.launch_barriers:
        return False
    products = [v for v in graph.nodes() if v.op.kind == "contract"]
    return 1 < len(products) <= CHAIN_MOST and all(
        v.rank == 2 and v.shape[0] <= CHAIN_ROWS and v.args[1].nbytes <= CHAIN_BYTES
        for v in products)
