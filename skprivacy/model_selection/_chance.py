"""The global random numbers of numpy, Python and torch, of which trials may draw."""

from __future__ import annotations

import random as python
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from sklearn.utils import check_random_state

from ..mechanisms import SecureRandom

__all__ = ["secret_global_chance"]


@contextmanager
def secret_global_chance(random: SecureRandom) -> Iterator[None]:
    """Seed all global generators by secure chance, and put them back afterwards.

    **Guarantees.** Whoever knows their seeds, as of ``numpy.random.seed(0)`` in a published script,
    learns neither from their state afterwards how many trials there were, nor from the weights
    that a network began with which of the trials was the best.

    **Edge cases.** Without a torch that is loaded, only the generators of numpy and Python.
    """
    seeds = random.integers(1 << 32, 17)
    numpy = check_random_state(None)
    numpy_state, python_state = numpy.get_state(), python.getstate()
    torch = sys.modules.get("torch")
    torch_state = None if torch is None else torch.get_rng_state()
    try:
        numpy.seed(seeds[:8])
        python.seed(seeds[8:16].tobytes())
        if torch is not None:
            torch.default_generator.manual_seed(int(seeds[16]))
        yield
    finally:
        numpy.set_state(numpy_state)
        python.setstate(python_state)
        if torch is not None:
            torch.set_rng_state(torch_state)
