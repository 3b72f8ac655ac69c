"""The zoo: a file a model. An installed package has it as `ztorch.models`, and so as `zt.models`
for whoever imports a model of it: the names of `keras.models` are here as well."""

from ztorch.sources.keras_models import (
    Model,
    Sequential,
    clone_model,
    load_model,
    model_from_json,
    save_model,
)

__all__ = ["Model", "Sequential", "clone_model", "load_model", "model_from_json", "save_model"]
