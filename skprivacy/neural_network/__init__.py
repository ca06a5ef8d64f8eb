"""Private neural networks; they need ``skprivacy[torch]``, which is imported on first use."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from .._torch import torch_is_named

if TYPE_CHECKING:
    from ._training.optimizers import PrivateAdam
    from .augmentation import RandomFlip, RandomShift
    from .batch_norm import freeze_batch_norm
    from .consistency import ColumnCorruption, ConsistencyStudent
    from .distortion import RandomDistortion
    from .dp_net import DPNeuralNet
    from .dpsgd import DPSGDClassifier
    from .encoders import SCARFEncoder, SimCLREncoder
    from .regression import DPSGDRegressor
    from .scattering import ScatteringTransformer
    from .vat import VATStudent

__all__ = [
    "ColumnCorruption",
    "ConsistencyStudent",
    "DPNeuralNet",
    "DPSGDClassifier",
    "DPSGDRegressor",
    "PrivateAdam",
    "RandomDistortion",
    "RandomFlip",
    "RandomShift",
    "SCARFEncoder",
    "ScatteringTransformer",
    "SimCLREncoder",
    "VATStudent",
    "freeze_batch_norm",
]

# Where each name lives. A process that reads a training configuration alone then needs no torch.
_PUBLIC = {
    "ColumnCorruption": "consistency",
    "ConsistencyStudent": "consistency",
    "DPNeuralNet": "dp_net",
    "DPSGDClassifier": "dpsgd",
    "DPSGDRegressor": "regression",
    "PrivateAdam": "_training.optimizers",
    "RandomDistortion": "distortion",
    "RandomFlip": "augmentation",
    "RandomShift": "augmentation",
    "SCARFEncoder": "encoders",
    "ScatteringTransformer": "scattering",
    "SimCLREncoder": "encoders",
    "VATStudent": "vat",
    "freeze_batch_norm": "batch_norm",
}


if not TYPE_CHECKING:  # to whom any misspelt name would exist

    def __getattr__(name: str) -> Any:
        if name in _PUBLIC:
            with torch_is_named():
                return getattr(import_module(f".{_PUBLIC[name]}", __name__), name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_PUBLIC})
