"""The kinds of features in a FeatureSpace."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ztorch.config import described, positive
from ztorch.errors import ConfigError
from ztorch.layers.core import Rescaling
from ztorch.layers.layer import Layer
from ztorch.layers.preprocessing import Normalization
from ztorch.tabular.categories import Discretization, Hashing
from ztorch.tabular.host_layer import HostLayer
from ztorch.tabular.lookups import IntegerLookup, StringLookup

Number = float  # FeatureKinds.float hides the name
MODES = {"float": ("float",), "int": ("int", "one_hot")}


@dataclass
class TableFeature:
    """How a column becomes numbers. Create one with functions such as
    `FeatureSpace.float_normalized()`."""

    dtype: str  # of the column: "float32", "int32" or "string"
    preprocessor: Any  # a layer; None leaves the numbers unchanged
    output_mode: str  # "float", or "int" or "one_hot" for categories

    def get_config(self) -> dict[str, Any]:
        layer = described(self.preprocessor, "TableFeature(preprocessor=...)")
        if isinstance(self.preprocessor, Normalization) and self.preprocessor.own_weights:
            mean, variance = (np.asarray(w.value).tolist() for w in self.preprocessor.own_weights)
            layer["config"] |= {"mean": mean, "variance": variance}
        return {"dtype": self.dtype, "preprocessor": layer, "output_mode": self.output_mode}

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> TableFeature:
        layer = config["preprocessor"]
        if layer is not None:
            family: Any = HostLayer if layer["class_name"] in HostLayer.known else Layer
            layer = family.get(layer)
        return cls(config["dtype"], layer, config["output_mode"])

    @property
    def adapts(self) -> bool:
        """Whether `adapt` has something to learn."""
        return hasattr(self.preprocessor, "adapt") and not self.knows

    @property
    def knows(self) -> bool:
        """Whether everything it needs was passed or learned."""
        layer = self.preprocessor
        if isinstance(layer, Normalization):
            return layer.input_mean is not None or layer.built
        if isinstance(layer, Discretization):
            return layer.bin_boundaries is not None
        return not hasattr(layer, "adapt") or layer.vocabulary is not None

    def categories(self) -> int:
        """The number of outputs of the preprocessor."""
        layer = self.preprocessor
        if isinstance(layer, Discretization):
            return len(layer.bin_boundaries or ()) + 1
        return int(layer.num_bins if isinstance(layer, Hashing) else layer.vocabulary_size())


@dataclass
class FeatureCross:
    """Features whose combined values form one category, by their hash."""

    feature_names: tuple[str, ...]
    crossing_dim: int
    output_mode: str = "one_hot"

    def __post_init__(self) -> None:
        self.feature_names = tuple(self.feature_names)
        if len(self.feature_names) < 2:
            raise ConfigError(f"a cross takes at least two features, not {self.feature_names}")
        self.hashing = Hashing(positive(f"crossing_dim of {self.name}", self.crossing_dim))
        if self.output_mode not in MODES["int"]:
            raise ConfigError(f"the cross {self.name}: output_mode={self.output_mode!r} must be "
                              "'one_hot' or 'int'")

    @property
    def name(self) -> str:
        return "_X_".join(self.feature_names)

    def get_config(self) -> dict[str, Any]:
        return {"feature_names": list(self.feature_names), "crossing_dim": self.crossing_dim,
                "output_mode": self.output_mode}

    def __call__(self, columns: Sequence[np.ndarray]) -> np.ndarray:
        rows = np.stack(columns, -1)
        joined = np.empty(rows.shape[:-1], object)
        joined.reshape(-1)[:] = [repr(row) for row in rows.reshape(-1, len(columns)).tolist()]
        return self.hashing(joined)


class FeatureKinds:
    """The functions of FeatureSpace that create features, as in Keras."""

    @staticmethod
    def feature(dtype: str, preprocessor: Any, output_mode: str) -> TableFeature:
        """A feature with a custom layer."""
        return TableFeature(dtype, preprocessor, output_mode)

    @staticmethod
    def float(name: str | None = None) -> TableFeature:
        """Unchanged numbers."""
        return TableFeature("float32", None, "float")

    @staticmethod
    def float_rescaled(scale: Number = 1.0, offset: Number = 0.0,
                       name: str | None = None) -> TableFeature:
        """Numbers as `x * scale + offset`."""
        return TableFeature("float32", Rescaling(scale, offset), "float")

    @staticmethod
    def float_normalized(name: str | None = None) -> TableFeature:
        """Numbers scaled to mean 0 and variance 1."""
        return TableFeature("float32", Normalization(axis=-1), "float")

    @staticmethod
    def float_discretized(num_bins: int, bin_boundaries: Sequence[Number] | None = None,
                          output_mode: str = "one_hot", name: str | None = None) -> TableFeature:
        """Numbers as bins of equal counts, or with given boundaries."""
        return TableFeature("float32", Discretization(bin_boundaries, num_bins), output_mode)

    @staticmethod
    def integer_categorical(max_tokens: int | None = None, num_oov_indices: int = 1,
                            output_mode: str = "one_hot", name: str | None = None) -> TableFeature:
        """Integers as categories, by a vocabulary."""
        return TableFeature("int32", IntegerLookup(max_tokens, num_oov_indices), output_mode)

    @staticmethod
    def string_categorical(max_tokens: int | None = None, num_oov_indices: int = 1,
                           output_mode: str = "one_hot", name: str | None = None) -> TableFeature:
        """Texts as categories, by a vocabulary."""
        return TableFeature("string", StringLookup(max_tokens, num_oov_indices), output_mode)

    @staticmethod
    def integer_hashed(num_bins: int, output_mode: str = "one_hot",
                       name: str | None = None) -> TableFeature:
        """Integers as categories, by their hash."""
        return TableFeature("int32", Hashing(num_bins), output_mode)

    @staticmethod
    def string_hashed(num_bins: int, output_mode: str = "one_hot",
                      name: str | None = None) -> TableFeature:
        """Texts as categories, by their hash."""
        return TableFeature("string", Hashing(num_bins), output_mode)

    @staticmethod
    def cross(feature_names: Sequence[str], crossing_dim: int,
              output_mode: str = "one_hot") -> FeatureCross:
        """Several features as one category, by the hash of their values."""
        return FeatureCross(tuple(feature_names), crossing_dim, output_mode)
