"""Memory that is used again in every step."""

from __future__ import annotations

from collections.abc import Hashable

from torch import Tensor

__all__ = ["Workspace"]


class Workspace:
    """Tensors to compute into, one for each name, kept at the largest size that was asked for.

    Poisson batches differ in length. Memory that goes back to the system after every step comes
    back page by page, which takes longer than a small network's arithmetic.

    Examples
    --------
    >>> import torch
    >>> from skprivacy.neural_network._workspace import Workspace
    >>> room = Workspace()
    >>> room("hidden", (100, 8), torch.zeros(1)).shape
    torch.Size([100, 8])
    >>> room("hidden", (90, 8), torch.zeros(1)).shape
    torch.Size([90, 8])
    """

    def __init__(self) -> None:
        self._kept: dict[Hashable, Tensor] = {}

    def __call__(self, name: Hashable, shape: tuple[int, ...], like: Tensor) -> Tensor:
        """Return a tensor of ``shape`` on the device and of the type of ``like``, not cleared.

        A name always goes with the same shape but for the number of rows.
        """
        rows = shape[0]
        kept = self._kept.get(name)
        if kept is None or kept.shape[0] < rows:
            kept = self._kept[name] = like.new_empty((rows + rows // 8, *shape[1:]))
        return kept.narrow(0, 0, rows)
