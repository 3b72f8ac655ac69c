"""Layers that run on the host, from their records in files."""

from __future__ import annotations

from ztorch.errors import ConfigError, ZtorchError
from ztorch.tabular.categories import CategoryEncoding, Discretization, Hashing
from ztorch.tabular.host_layer import HostLayer
from ztorch.tabular.lookups import IntegerLookup, StringLookup
from ztorch.tabular.record import EncoderRecord
from ztorch.tabular.vectorization import TextVectorization

ENCODERS: dict[str, type[HostLayer]] = {cls.__name__: cls for cls in (
    CategoryEncoding, Discretization, Hashing, IntegerLookup, StringLookup, TextVectorization)}


def encoder_of(record: EncoderRecord) -> HostLayer:
    """The layer that a record describes.

    Args:
        record: The record in a file.

    Raises:
        ConfigError: The config is not one of this layer.

    Examples:
        >>> encoder_of(EncoderRecord("Hashing", {"num_bins": 3})).num_bins
        3
    """
    try:
        return ENCODERS[record.name].from_config(record.config)
    except (TypeError, ValueError, ZtorchError) as error:
        raise ConfigError(f"the config of this {record.name} is damaged: {error}") from None
