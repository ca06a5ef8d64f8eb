"""Membership inference on generators with a discriminator: LOGAN (Hayes et al. 2019)."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import sparse
from sklearn.base import clone
from sklearn.compose import ColumnTransformer
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OrdinalEncoder
from sklearn.utils.validation import check_is_fitted

from ..._clones import name_failing_model
from ..._docs import fill_docs
from ..._environment import one_thread
from ..._sklearn import safe_indexing
from ..._validation import flag, num_samples
from ..membership.classifiers import fit_folds, score_folds
from ..model_answers import logit
from ..record_tables import as_records, concat, numeric_columns
from .generator_attack import GENERATOR_DOCS, GeneratorAttack

N_FOLDS = 3


@fill_docs(GENERATOR_DOCS)
class GenerativeAttack(GeneratorAttack):
    """Score records with a discriminator of generated records: LOGAN (Hayes et al. 2019).

    Black-box, a discriminator learns to distinguish generated records from the attacker's own.
    Records that it takes for generated are called members. White-box, the generator's own
    discriminator is used.

    Parameters
    ----------
    discriminator : classifier with ``predict_proba``, default=None
        Cloned and fitted, with class 1 for "generated". None: gradient boosting.
    prefit : bool, default=False
        Whether ``discriminator`` is the generator's own. It must then be fitted, with class 1 (the
        last column) for "real training record", and ``fit`` learns nothing.

    Notes
    -----
    Each of the attacker's records is scored by a discriminator that was not fitted on it (3 folds,
    assigned by fingerprint).

    References
    ----------
    J. Hayes, L. Melis, G. Danezis, E. De Cristofaro. LOGAN: membership inference attacks against
    generative models. PoPETs 2019.

    Examples
    --------
    >>> import numpy as np
    >>> from skprivacy.attacks import GenerativeAttack
    %(copied_people)s
    >>> attack = GenerativeAttack().fit(generated, people[300:])
    >>> attack.evaluate(people[:100], people[100:300]).auc > 0.7
    True
    """

    def __init__(self, discriminator: Any = None, *, prefit: bool = False) -> None:
        self.discriminator = discriminator
        self.prefit = prefit

    def fit(self, generated: Any, reference: Any) -> GenerativeAttack:
        """Learn to distinguish generated records from the attacker's own.

        %(fit_sections)s
        """
        flag("prefit", self.prefit)
        if self.prefit:
            if self.discriminator is None:
                raise ValueError(
                    "discriminator=None must be the generator's fitted discriminator if "
                    "prefit=True. Pass it, or use prefit=False."
                )
            if not hasattr(self.discriminator, "predict_proba"):
                raise TypeError(
                    f"discriminator={self.discriminator!r} must be a fitted classifier with "
                    "predict_proba."
                )
            self.models_ = [self.discriminator] * N_FOLDS
            return self
        base = self.discriminator
        if base is not None and not hasattr(base, "fit"):
            raise TypeError(f"discriminator={base!r} must be a classifier, or None.")
        generated = as_records(generated, "generated")
        X = concat(generated, as_records(reference, "reference"), "generated and reference")
        base = _default_discriminator(X) if base is None else base
        made = np.arange(num_samples(X)) < num_samples(generated)

        def fit_discriminator(rows: NDArray[np.intp], _: int) -> Any:
            with name_failing_model(base, "trained on generated and reference"):
                return clone(base).fit(safe_indexing(X, rows), made[rows].astype(int))

        with one_thread(math.prod(np.shape(X))):
            names = "generated records", "reference records"
            self.models_ = fit_folds(X, made, fit_discriminator, N_FOLDS, names)
        return self

    def _score_records(self, name: str, X: Any) -> NDArray[np.float64]:
        check_is_fitted(self, "models_")
        X = as_records(X, name)

        def score(model: Any, rows: NDArray[np.intp]) -> NDArray[np.float64]:
            with name_failing_model(model, f"asked about {name}"):
                proba = np.asarray(model.predict_proba(safe_indexing(X, rows)), float)[:, -1]
            last = np.ones(len(rows), dtype=np.intp)
            return logit(np.column_stack([1 - proba, proba]), last)

        return score_folds(self.models_, X, score)


def _default_discriminator(X: Any) -> Any:
    """Return boosted trees, with an ordinal encoding of non-numeric columns."""
    trees = HistGradientBoostingClassifier(max_iter=60, class_weight="balanced", random_state=0)
    if sparse.issparse(X) or not (isinstance(X, pd.DataFrame) or X.dtype == object):
        return trees
    texts = np.flatnonzero(~numeric_columns(X))
    encoder = OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=-1)
    return make_pipeline(
        ColumnTransformer([("texts", encoder, texts)], remainder="passthrough"), trees
    )
