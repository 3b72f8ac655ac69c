"""Ops that are functions of other ops and no more."""

from __future__ import annotations

from collections.abc import Callable

from ztorch.graph.op import Sample, op


def composition(*samples: Sample, results: tuple[str, ...] = (), aliases: tuple[str, ...] = ()
                ) -> Callable[[Callable], Callable]:
    """Registers a function of other ops that adds nothing to them but a name, such as one of Keras.

    It is an op in all regards. Only tests treat it differently: they compare it with Keras once,
    and do not try it on each device, since all that it is made of was tried there.

    Args:
        *samples: Arguments that documentation and the tests of gradients call it with.
        results: Names of the results, if there are several. Default: `()`.
        aliases: Other names. Default: `()`.

    Returns:
        The decorator.
    """
    return op(*samples, results=results, aliases=aliases, composed=True)
