"""Base of membership attacks on generators: fit on generated records, score, evaluate."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, clone

from ..._docs import fill_docs
from ..._validation import num_samples
from ..attack_result import AttackResult
from ..record_tables import as_nonempty_records, as_records, concat

GENERATOR_DOCS = {
    "fit_sections": """\
Parameters
----------
generated : {array-like, DataFrame} of shape (n_generated, n_features)
    Records that the generator made.
reference : {array-like, DataFrame} of shape (n_reference, n_features)
    Records like its training records, but not among them.

Returns
-------
GeneratorAttack
    Itself, fitted.""",
    "copied_people": """\
>>> rng = np.random.default_rng(0)
>>> people = rng.normal(size=(600, 3))
>>> generated = people[rng.integers(0, 100, 900)] + 0.05 * rng.normal(size=(900, 3))""",
    "evaluate_sections": """\
Parameters
----------
X_in : {array-like, DataFrame} of shape (n_in, n_features)
    Members: training records of the generator.
X_out : {array-like, DataFrame} of shape (n_out, n_features)
    Non-members from the same population.

Returns
-------
AttackResult
    The scores of both samples.""",
}


@fill_docs(GENERATOR_DOCS)
class GeneratorAttack(BaseEstimator):
    """Base of attacks on generators; a subclass defines ``fit`` and ``_score_records``."""

    @abstractmethod
    def _score_records(self, name: str, X: Any) -> NDArray[np.float64]: ...

    def score_samples(self, X: Any) -> NDArray[np.float64]:
        """Return a membership score for each record; higher means member.

        Parameters
        ----------
        X : {array-like, DataFrame} of shape (n_records, n_features)
            Records to score.

        Returns
        -------
        ndarray of shape (n_records,)
            The scores.
        """
        return self._score_records("X", X)

    def evaluate(self, X_in: Any, X_out: Any) -> AttackResult:
        """Attack members and non-members of the generator's training set.

        %(evaluate_sections)s
        """
        X_in, X_out = as_nonempty_records(X_in, "X_in"), as_nonempty_records(X_out, "X_out")
        # together, since shadow generators make the scores of a call depend on each other
        found = self._score_records("X_in and X_out", concat(X_in, X_out))
        n_in = num_samples(X_in)
        return AttackResult(found[:n_in], found[n_in:], type(self).__name__)


def check_generated(generated: Any, reference: Any, otherwise: str = "") -> tuple[Any, Any]:
    """Check that both hold at least two records; ``otherwise`` is the advice if one is missing."""
    generated = as_records(generated, "generated")
    if num_samples(generated) < 2:
        raise ValueError(
            f"generated holds {num_samples(generated)} records; expected at least 2, better "
            "thousands. Draw more, which costs no privacy."
        )
    if reference is None:
        if otherwise:
            raise ValueError(
                f"reference=None must be records of the population, because {otherwise}"
            )
        return generated, None
    reference = as_records(reference, "reference")
    if num_samples(reference) < 2:
        raise ValueError(
            f"reference holds {num_samples(reference)} records; expected at least 2. Pass more "
            "records of the population."
        )
    return generated, reference


def clone_without_budget(estimator: Any) -> Any:
    """Return a clone whose budgets, nested ones included, are None: attackers charge nothing."""
    fresh = clone(estimator)
    budgets = [name for name in fresh.get_params() if name.split("__")[-1] == "budget"]
    return fresh.set_params(**dict.fromkeys(budgets)) if budgets else fresh
