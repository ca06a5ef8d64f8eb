"""Private neural networks; they need ``skprivacy[torch]``, which is imported on first use.

Files, in reading order:

- ``dpsgd_classifier``: DPSGDClassifier
- ``dpsgd_regressor``: DPSGDRegressor
- ``settings``: Optimizer, Clipping and Distributed, and values for "auto", from public facts
- ``network``: the base of both: checks, plan, training and prediction
- ``network_parameters``: constraints of their parameters, and paragraphs of their docstrings
- ``_training/``: private training runs; start with ``_training/engine``
- ``_gradients/``: clipped sums of per-example gradients
- ``skorch_net``: DPNeuralNet
- ``semi_supervised``: ConsistencyStudent (FixMatch) and VATStudent
- ``augmentation``: random views of images
- ``contrastive``: loss and training loop of contrastive encoders
- ``encoders``: SCARFEncoder, for tables, and SimCLREncoder, for images
- ``scattering``: ScatteringTransformer
- ``modules``: modules of users: how they are built, and freeze_batch_norm
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from .._extras import name_missing_extra

if TYPE_CHECKING:
    from .augmentation import RandomShift
    from .dpsgd_classifier import DPSGDClassifier
    from .dpsgd_regressor import DPSGDRegressor
    from .encoders import SCARFEncoder, SimCLREncoder
    from .modules import freeze_batch_norm
    from .scattering import ScatteringTransformer
    from .semi_supervised import ConsistencyStudent, VATStudent
    from .settings import Clipping, Distributed, Optimizer
    from .skorch_net import DPNeuralNet

__all__ = [
    "Clipping",
    "ConsistencyStudent",
    "DPNeuralNet",
    "DPSGDClassifier",
    "DPSGDRegressor",
    "Distributed",
    "Optimizer",
    "RandomShift",
    "SCARFEncoder",
    "ScatteringTransformer",
    "SimCLREncoder",
    "VATStudent",
    "freeze_batch_norm",
]

# Where each name lives. A process that reads a training configuration alone then needs no torch.
_PUBLIC = {
    "Clipping": "settings",
    "ConsistencyStudent": "semi_supervised",
    "DPNeuralNet": "skorch_net",
    "DPSGDClassifier": "dpsgd_classifier",
    "DPSGDRegressor": "dpsgd_regressor",
    "Distributed": "settings",
    "Optimizer": "settings",
    "RandomShift": "augmentation",
    "SCARFEncoder": "encoders",
    "ScatteringTransformer": "scattering",
    "SimCLREncoder": "encoders",
    "VATStudent": "semi_supervised",
    "freeze_batch_norm": "modules",
}


if not TYPE_CHECKING:  # to whom any misspelt name would exist

    def __getattr__(name: str) -> Any:
        if name in _PUBLIC:
            with name_missing_extra():
                found = getattr(import_module(f".{_PUBLIC[name]}", __name__), name)
            globals()[name] = found  # not asked for again
            return found
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_PUBLIC})
