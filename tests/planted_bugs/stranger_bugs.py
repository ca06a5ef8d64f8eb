"""Planted bugs in another author's DP-SGD, which verify_privacy sees in the weights."""

from collections.abc import Callable
from typing import Any

import numpy as np

from skprivacy.audit import verify_privacy

from .bug import Bug, Make, calling, halved
from .stranger import StrangerDPSGD

X = np.random.default_rng(0).normal(size=(24, 3))
# Of these the middle is 0, where a gradient is 0: no other record hides a fit without noise.
# Neighbours among records that move the weights show none of these fits, and pilot runs choose
# between both kinds by chance.
CENTRED = np.concatenate([X[:12], -X[:12]])


def check_claim(
    n_runs: int, epsilon: float | None = None, delta: float = 1e-5, rows: Any = X
) -> Callable[[], None]:
    """Return a contract: the claim holds in ``n_runs`` runs a side, but once in a million."""

    def check() -> None:
        labels = (rows[:, 0] > 0).astype(int)
        found = verify_privacy(
            StrangerDPSGD(delta=delta), rows, labels, epsilon=epsilon, n_runs=n_runs, alpha=1e-6
        )
        assert not found.broken, found.verdict

    return check


# The chosen test sees 65 of 100 runs with the record, and 0 to 4 of 100 without it: at 4, 400 runs
# miss the bug, and 2,000 find it with a p-value of 1e-15.
FEW, SOME = check_claim(2_000), check_claim(8_000)
# A record takes part in 68 of 100 fits, so 3.42% of the runs show that noise is missing in 5%. The
# attack also takes up to 0.05% of the other runs for such fits. Of 20,000 runs it must then find
# 490, and finds fewer with probability 1e-15; with 1e-6 where it finds but 3%. Of 8,000 it must
# find 280 of 274.
RARE = check_claim(20_000, rows=CENTRED)
# By theory noise / 1.5 takes 1,700 runs a side at this point of the curve, at an error of 1%.
SUBTLE = check_claim(20_000, 2.0, 0.05)
# Among Poisson samples a record is missing in 32 of 100 fits, among shuffled batches in none. The
# claim allows the difference unless delta is near that share: at (1, 0.4) it takes 460 runs.
OFTEN = check_claim(4_000, 1.0, 0.4)


@calling
def long_rows_unclipped(original, self, gradients, signs):
    norms = np.sqrt((gradients**2).sum(axis=1))[:, None]
    return np.where(norms > 5 * self.max_grad_norm, gradients, original(self, gradients, signs))


@calling
def one_class_unclipped(original, self, gradients, signs):
    return np.where(signs[:, None] > 0, gradients, original(self, gradients, signs))


@calling
def one_class_weighted_after_the_clip(original, self, gradients, signs):
    return np.where(signs[:, None] > 0, 3.0, 1.0) * original(self, gradients, signs)


@calling
def clipped_to_twice_the_norm(original, self, gradients, signs):
    return 2 * original(self, gradients / 2, signs)


def two_thirds_of(original):
    return lambda self, random: original(self, random) / 1.5


def missing_in(share: float) -> Make:
    return calling(
        lambda original, self, random: (random.random() >= share) * original(self, random)
    )


@calling
def shuffled_batches(original, self: Any, n: int, random: np.random.Generator):
    """One pass in batches of one size, charged as Poisson samples."""
    return np.array_split(random.permutation(n), self.n_steps)


def _bug(attribute: str, make: Make, check: Callable[[], None], name: str) -> Bug:
    every_day = make is long_rows_unclipped  # 9 s, most of them for the choice of neighbours
    return Bug(StrangerDPSGD, attribute, make, check, name=name, nightly=not every_day)


BUGS = [
    _bug("clip", long_rows_unclipped, FEW, "long rows are not clipped"),
    _bug("clip", one_class_unclipped, FEW, "one class is not clipped"),
    _bug("clip", one_class_weighted_after_the_clip, SOME, "one class is weighted after the clip"),
    _bug("noise_scale", halved, SOME, "half the noise of a stranger"),
    _bug("sensitivity", halved, SOME, "half the sensitivity of a stranger"),
    _bug("clip", clipped_to_twice_the_norm, SUBTLE, "clipped to twice the norm"),
    _bug("noise_scale", two_thirds_of, SUBTLE, "noise divided by 1.5"),
    _bug("noise_scale", missing_in(0.05), RARE, "noise missing in 5 of 100 fits"),
    _bug("batches", shuffled_batches, OFTEN, "batches that are not Poisson samples"),
]
