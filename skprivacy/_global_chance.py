"""The generators that numpy, Python and torch share, from which user-defined models may draw."""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

__all__ = ["seeded_globally"]


@contextmanager
def seeded_globally(seed: int) -> Iterator[None]:
    """Seed the shared generators, and put them back afterwards.

    Parameters
    ----------
    seed : int
        In [0, 2**32).

    Notes
    -----
    **Guarantees.** Afterwards their states tell nothing of what was drawn in between.

    **Edge cases.** Without a torch that is loaded, only the generators of numpy and Python; those
    of GPUs are left alone.
    """
    torch = sys.modules.get("torch")
    generator = torch and torch.default_generator
    # NPY002 asks for a generator of one's own; the one that NumPy shares is what is meant.
    of_python, of_numpy = random.getstate(), np.random.get_state()  # noqa: NPY002
    of_torch = generator and generator.get_state()
    random.seed(seed)
    np.random.seed(seed)  # noqa: NPY002 (as above)
    if generator:
        generator.manual_seed(seed)
    try:
        yield
    finally:
        random.setstate(of_python)
        np.random.set_state(of_numpy)  # noqa: NPY002 (as above)
        if generator:
            generator.set_state(of_torch)
