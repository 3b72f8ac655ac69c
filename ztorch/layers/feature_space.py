"""Columns of a table as features of declared kinds: `zt.utils.FeatureSpace`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ztorch.errors import ConfigError, DataError, Unsupported, ZtorchError
from ztorch.layers.core import Input
from ztorch.layers.feature_kinds import MODES, FeatureCross, FeatureKinds, TableFeature
from ztorch.layers.joining import Concatenate
from ztorch.tabular.categories import CategoryEncoding, Hashing
from ztorch.tabular.host_layer import HostLayer

_WAY_OUT = ("; call the space on columns, as in dataset.map(lambda x, y: (space(x), y)), or use "
            "zt.Pipeline, which artifacts store with their model")


class FeatureSpace(FeatureKinds):
    """Columns of a table as features, as in Keras.

    Called on a dict of columns or a data frame, it returns NumPy arrays, and ignores undeclared
    columns. `get_config` includes the learned state. Hashes differ from Keras'.

    Args:
        features: By column: `FeatureSpace.float_normalized()` or a similar function, or its name,
            such as `"float_normalized"`.
        output_mode: "concat" for one array, or "dict" for an array per feature. Default:
            `"concat"`.
        crosses: Tuples of feature names, or `FeatureSpace.cross(...)`. Default: `None`.
        crossing_dim: Number of hash values of a cross. Default: `32`.
        hashing_dim: Number of hash values of features given by name. Default: `32`.
        num_discretization_bins: Number of bins of features given by name. Default: `32`.
        name: Has no effect. Default: `None`.

    Examples:
        >>> space = FeatureSpace({"age": "float", "kind": "string_categorical"})
        >>> rows = {"age": [3, 7, 5], "kind": ["cat", "dog", "cat"]}
        >>> space.adapt(rows)
        >>> space(rows).tolist()
        [[3.0, 0.0, 1.0, 0.0], [7.0, 0.0, 0.0, 1.0], [5.0, 0.0, 1.0, 0.0]]
    """

    def __init__(self, features: Mapping[str, Any], output_mode: str = "concat",
                 crosses: Sequence[Any] | None = None, crossing_dim: int = 32,
                 hashing_dim: int = 32, num_discretization_bins: int = 32,
                 name: str | None = None):
        if not isinstance(features, Mapping) or not features:
            raise ConfigError("FeatureSpace(features=...) takes a dict from columns to features")
        if output_mode not in ("concat", "dict"):
            raise ConfigError(f"FeatureSpace(output_mode={output_mode!r}) must be 'concat' or "
                              "'dict'")
        self.output_mode, self.name = output_mode, name
        self.crossing_dim, self.hashing_dim = crossing_dim, hashing_dim
        self.num_discretization_bins = num_discretization_bins
        self.features = {key: self._feature(key, x) for key, x in features.items()}
        self.crosses = [self._cross(cross) for cross in crosses or ()]
        self._adapting = [key for key, feature in self.features.items() if feature.adapts]
        self._inputs: dict[str, Any] = {}
        modes = {key: feature.output_mode for key, feature in self.features.items()}
        for key, mode in (modes | {c.name: c.output_mode for c in self.crosses}).items():
            if output_mode == "concat" and mode == "int":
                raise ConfigError(f"feature {key!r} has output_mode='int', whose values cannot be "
                                  "concatenated; use 'one_hot', or output_mode='dict' of the "
                                  "space")

    def _feature(self, key: str, x: Any) -> TableFeature:
        if isinstance(x, Mapping):
            x = TableFeature.from_config(x["config"])
        named: dict[str, Callable[[], TableFeature]] = {
            "float_discretized": lambda: self.float_discretized(self.num_discretization_bins),
            "integer_hashed": lambda: self.integer_hashed(self.hashing_dim),
            "string_hashed": lambda: self.string_hashed(self.hashing_dim),
            **{kind: getattr(self, kind) for kind in (
                "float", "float_rescaled", "float_normalized", "integer_categorical",
                "string_categorical")}}
        feature = named[x]() if isinstance(x, str) and x in named else x
        if not isinstance(feature, TableFeature):
            raise ConfigError(f"feature {key!r}: {x!r} is none; use one of {', '.join(named)}")
        modes = MODES["int" if isinstance(feature.preprocessor, HostLayer) else "float"]
        if feature.output_mode not in modes:
            raise ConfigError(f"feature {key!r}: output_mode={feature.output_mode!r} must be "
                              f"{' or '.join(map(repr, modes))}")
        return feature

    def _cross(self, x: Any) -> FeatureCross:
        if isinstance(x, Mapping):
            x = FeatureCross(**x["config"])
        cross = x if isinstance(x, FeatureCross) else FeatureCross(tuple(x), self.crossing_dim)
        for key in cross.feature_names:
            if key not in self.features or self.features[key].output_mode == "float":
                raise ConfigError(f"the cross {cross.name}: {key!r} is not a category among the "
                                  "features")
        return cross

    def get_config(self) -> dict[str, Any]:
        """The arguments and the learned state, as values for JSON."""
        return {"features": {key: {"class_name": "Feature", "config": feature.get_config()}
                             for key, feature in self.features.items()},
                "output_mode": self.output_mode,
                "crosses": [{"class_name": "Cross", "config": cross.get_config()}
                            for cross in self.crosses],
                "crossing_dim": self.crossing_dim, "hashing_dim": self.hashing_dim,
                "num_discretization_bins": self.num_discretization_bins}

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> FeatureSpace:
        """The space that `get_config` described, including its learned state."""
        return cls(**config)

    # -- learning and preparing --------------------------------------------------------------------

    def adapt(self, dataset: Any) -> None:
        """Learns vocabularies, statistics and bins that were not passed.

        Args:
            dataset: A dict of columns, a data frame, or an iterable of batches: dicts, or tuples
                whose first item is a dict.
        """
        tables = [dataset] if _is_table(dataset) else [
            batch[0] if isinstance(batch, tuple) else batch for batch in dataset]
        if not tables:
            raise DataError("adapt() of FeatureSpace needs at least one row")
        for key in self._adapting:
            column = np.concatenate([self._column(key, table)[0] for table in tables])
            _of_feature(key, self.features[key].preprocessor.adapt, column)

    def __call__(self, data: Any) -> Any:
        """Prepares columns: arrays, or single values for one row.

        Args:
            data: A dict of columns, or a data frame.
        """
        columns = {key: self._column(key, data) for key in self.features}
        features = self._made({key: column for key, (column, _) in columns.items()})
        out = {key: np.asarray(x) for key, x in features.items()}
        if all(single for _, single in columns.values()):
            out = {key: x[0] for key, x in out.items()}
        if self.output_mode == "dict":
            return out
        rows = {key: len(column) for key, (column, _) in columns.items()}
        if len({*rows.values()}) > 1:
            raise DataError(f"the columns of a FeatureSpace have different numbers of rows: {rows}")
        return np.concatenate([*out.values()], -1)

    def get_inputs(self) -> dict[str, Any]:
        """An Input for each feature, for a model that takes the raw columns."""
        self._inputs = self._inputs or {key: Input((1,), dtype=feature.dtype, name=key)
                                        for key, feature in self.features.items()}
        return self._inputs

    def get_encoded_features(self) -> Any:
        """The features as symbolic tensors, computed from `get_inputs()`.

        Raises:
            Unsupported: There are crosses or hashes of integers, which only the host computes.
        """
        if self.crosses:
            raise Unsupported(f"the cross {self.crosses[0].name} cannot be part of a model"
                              f"{_WAY_OUT}")
        for key, feature in self.features.items():
            if isinstance(feature.preprocessor, Hashing) and feature.dtype != "string":
                raise Unsupported(f"feature {key!r}: a hash of integers cannot be part of a "
                                  f"model{_WAY_OUT}")
        features = self._made(self.get_inputs())
        if self.output_mode == "dict" or len(features) == 1:
            return features if self.output_mode == "dict" else next(iter(features.values()))
        return Concatenate()([*features.values()])

    def _made(self, columns: Mapping[str, Any]) -> dict[str, Any]:
        """The features of columns, or of Inputs, in Keras' order: by name, with crosses last."""
        if unready := [key for key, feature in self.features.items() if not feature.knows]:
            raise ConfigError(f"feature {unready[0]!r} is not adapted; call adapt(dataset) of "
                              "the FeatureSpace first")
        numbers = {key: x if (layer := self.features[key].preprocessor) is None else
                   _of_feature(key, layer, x) for key, x in sorted(columns.items())}
        crossed = {cross.name: cross([numbers[key] for key in cross.feature_names])
                   for cross in sorted(self.crosses, key=lambda cross: cross.name)}
        sizes = {key: feature.categories() for key, feature in self.features.items()
                 if feature.output_mode == "one_hot"}
        sizes |= {c.name: c.crossing_dim for c in self.crosses if c.output_mode == "one_hot"}
        return {key: CategoryEncoding(sizes[key])(x) if key in sizes else x
                for key, x in (numbers | crossed).items()}

    def _column(self, key: str, table: Any) -> tuple[np.ndarray, bool]:
        """A column with an axis of size 1, and whether it is a single value."""
        if not _is_table(table):
            raise DataError("a FeatureSpace takes a dict of columns or a data frame, not a "
                            f"{type(table).__name__}")
        names = [*table] if isinstance(table, Mapping) else [*table.columns]
        if key not in names:
            raise DataError(f"feature {key!r}: no such column; the columns are "
                            f"{', '.join(map(str, names[:8]))}")
        column, dtype = np.asarray(table[key]), self.features[key].dtype
        if dtype == "float32":
            column = _of_feature(key, lambda x: x.astype(np.float32), column)
        elif dtype == "int32" and column.dtype.kind not in "iub":
            raise DataError(f"feature {key!r} takes integers, not {column.dtype}")
        return (column.reshape(-1, 1) if column.ndim < 2 else column), column.ndim == 0


def _is_table(x: Any) -> bool:
    return isinstance(x, Mapping) or hasattr(x, "columns")


def _of_feature(key: str, function: Callable[[Any], Any], x: Any) -> Any:
    """function(x), with errors that name the feature."""
    try:
        return function(x)
    except ZtorchError as error:
        raise type(error)(f"feature {key!r}: {error}") from None
    except (TypeError, ValueError) as error:
        raise DataError(f"feature {key!r}: {error}") from None
