"""Records with their labels as one container, which scikit-learn splits like a table.

Attackers without data synthesise such records (Shokri et al. 2017, V-C).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from ..._input_data import check_consistent_length, column_or_1d
from ..._sklearn import safe_indexing
from ..._validation import check_random_state, is_number, num_samples, probability, sequence, whole
from ...metrics.rates import as_numbers
from ..model_answers import predict_aligned, targets_as_array
from ..record_tables import as_records, concat

Labels = NDArray[Any] | None


class LabeledRecords:
    """Records with the labels that a model is trained to predict: the X of a membership attack.

    A membership attack is a classifier of records, and a record consists of its features and its
    label. Both must reach ``fit`` and every prediction, but scikit-learn passes only X to a
    prediction. This container is that X.

    Parameters
    ----------
    X : {array-like, DataFrame, sparse matrix} of shape (n_records, n_features)
        Features, in the form that the attacked model takes.
    y : array-like of shape (n_records,) or (n_records, n_outputs)
        True classes as the model was fitted with, or target values.

    Attributes
    ----------
    X : {ndarray, DataFrame, sparse matrix} of shape (n_records, n_features)
        The features.
    y : ndarray of shape (n_records,) or (n_records, n_outputs)
        The labels.
    shape : tuple of int
        The shape of ``X``.

    Raises
    ------
    ValueError
        If ``X`` and ``y`` have different lengths, or ``y`` is None.

    Notes
    -----
    ``records[rows]`` selects records by a slice, a mask or row numbers, so that every splitter of
    scikit-learn works. Models that are fitted without ``y``, such as densities, are attacked with
    plain tables instead.

    Examples
    --------
    >>> from skprivacy.attacks import LabeledRecords
    >>> records = LabeledRecords([[0.5], [1.5], [2.5]], ["ash", "beech", "ash"])
    >>> records
    LabeledRecords of shape (3, 1)
    >>> records[1:].y.tolist()
    ['beech', 'ash']
    """

    def __init__(self, X: Any, y: ArrayLike) -> None:
        if y is None:
            raise ValueError(
                "y=None must be one label for each record. Pass X itself to attacks on models that "
                "are fitted without y."
            )
        self.X = as_records(X)
        self.y = targets_as_array(y, num_samples(self.X))
        check_consistent_length(self.X, self.y)

    @classmethod
    def from_model(
        cls,
        target: Any,
        values: Sequence[ArrayLike],
        n_per_class: int,
        *,
        confidence: float = 0.2,
        max_queries: int = 1000,
        patience: int = 10,
        least_changed: int = 4,
        random_state: Any = None,
    ) -> LabeledRecords:
        """Synthesise records the target is confident about (Shokri et al. 2017, Algorithm 1).

        All searches run together, with one query for all searches in each round. A round redraws
        random features of each record, and keeps the change if the class becomes more probable.
        After ``patience`` rejections in a row, fewer features are redrawn.

        Parameters
        ----------
        target : fitted classifier with ``predict_proba``
            The model that is attacked.
        values : list of array-like, one for each feature
            Possible values, drawn with equal probability; a grid for a continuous feature.
        n_per_class : int
            Number of searches for each class. Fewer records are returned for classes that are hard
            to reach.
        confidence : float, default=0.2
            A record may be accepted if its class is predicted, with a probability above this value.
            It is then accepted with that probability.
        max_queries : int, default=1000
            Number of rounds after which a search is abandoned.
        patience : int, default=10
            Number of rejections in a row after which half as many features are redrawn.
        least_changed : int, default=4
            Minimum number of features redrawn.
        random_state : int, RandomState instance or None, default=None
            Seed of the searches.

        Returns
        -------
        LabeledRecords
            The accepted records, with the class of each one's search.

        Examples
        --------
        >>> import numpy as np
        >>> from sklearn.linear_model import LogisticRegression
        >>> from skprivacy.attacks import LabeledRecords
        >>> rng = np.random.default_rng(0)
        >>> real = rng.integers(0, 2, (200, 8))
        >>> target = LogisticRegression().fit(real, real[:, 0])
        >>> records = LabeledRecords.from_model(target, [[0, 1]] * 8, 5, random_state=0)
        >>> bool((target.predict(records.X) == records.y).all())
        True
        """
        if not hasattr(target, "classes_"):
            raise TypeError(f"target={target!r} must be a fitted classifier.")
        counts = {"n_per_class": n_per_class, "max_queries": max_queries, "patience": patience}
        for name, count in {**counts, "least_changed": least_changed}.items():
            whole(name, count, least=0)
        probability("confidence", confidence)
        rng = check_random_state(random_state)
        choices = [_check_choices(i, choice) for i, choice in enumerate(sequence("values", values))]
        classes = np.asarray(target.classes_)
        goal = np.repeat(np.arange(len(classes)), n_per_class)
        n_features = len(choices)
        if n_features != getattr(target, "n_features_in_", n_features):
            raise ValueError(
                f"values lists {n_features} features; expected {target.n_features_in_}, as the "
                "target takes."
            )
        best = _draw_features(choices, len(goal), rng)  # Algorithm 1, line 2
        reached = np.full(len(goal), -1.0)
        changed = np.full(len(goal), n_features)
        rejected = np.zeros(len(goal), dtype=int)
        searching, accepted = np.ones(len(goal), dtype=bool), np.zeros(len(goal), dtype=bool)
        trial = best.copy()
        for _ in range(max_queries):  # Algorithm 1, line 6
            here = np.flatnonzero(searching)
            if not here.size:
                break
            proba = predict_aligned(target, trial[here], classes)  # Algorithm 1, line 7: query
            of_goal = proba[np.arange(len(here)), goal[here]]
            better = of_goal >= reached[here]
            up, down = here[better], here[~better]
            # Algorithm 1, lines 14 to 16: keep the record if it is not worse
            best[up], reached[up], rejected[up] = trial[up], of_goal[better], 0
            # Algorithm 1, lines 9 to 11: accept with the probability of the class
            sure = better & (of_goal > confidence) & (proba.argmax(axis=1) == goal[here])
            taken = here[sure & (rng.uniform(size=len(here)) < of_goal)]
            accepted[taken], searching[taken] = True, False
            rejected[down] += 1
            stuck = down[rejected[down] > patience]
            floor = min(least_changed, n_features)
            # Algorithm 1, lines 19 to 21: redraw half as many features, rounded up
            changed[stuck], rejected[stuck] = np.maximum((changed[stuck] + 1) // 2, floor), 0
            # Algorithm 1, line 24: redraw some features of the best record so far
            trial[here] = _redraw_features(best[here], changed[here], choices, rng)
        return cls(best[accepted], classes[goal[accepted]])

    @classmethod
    def from_marginals(
        cls, X: Any, y: ArrayLike, n_per_class: int, *, random_state: Any = None
    ) -> LabeledRecords:
        """Draw every feature independently from its marginal distribution within the class.

        Parameters
        ----------
        X : {array-like, DataFrame} of shape (n_records, n_features)
            Records whose marginals the attacker knows.
        y : array-like of shape (n_records,)
            Their classes.
        n_per_class : int
            Number of records to draw for each class.
        random_state : int, RandomState instance or None, default=None
            Seed of the draws.

        Returns
        -------
        LabeledRecords
            Of length ``n_classes * n_per_class``, sorted by class, in the container of ``X``.
        """
        whole("n_per_class", n_per_class)
        rng = check_random_state(random_state)
        known, labels = as_records(X), np.asarray(column_or_1d(y))
        _check_features(known)
        check_consistent_length(known, labels)
        parts = []
        classes = np.unique(labels)
        for c in classes:
            rows = np.flatnonzero(labels == c)
            parts.append(rows[rng.randint(len(rows), size=(n_per_class, known.shape[1]))])
        drawn = _gather_features(known, np.concatenate(parts))
        return cls(drawn, np.repeat(classes, n_per_class))

    def noisy(self, share: float = 0.1, *, random_state: Any = None) -> LabeledRecords:
        """Replace a share of every record's features by values of other records.

        Binary features are flipped, as in the paper (Shokri et al. 2017). Other features take the
        value of a random record.

        Parameters
        ----------
        share : float, default=0.1
            Share of features replaced, in [0, 1]; the paper uses 0.1 and 0.2.
        random_state : int, RandomState instance or None, default=None
            Seed of the choice of features and of replacement records.

        Returns
        -------
        LabeledRecords
            A perturbed copy, with the same labels.
        """
        if not (is_number(share) and 0 <= share <= 1):
            raise ValueError(f"share={share!r} must lie in [0, 1]. The paper uses 0.1 and 0.2.")
        rng = check_random_state(random_state)
        known = self.X
        _check_features(known)
        n_records, n_features = known.shape
        order = rng.uniform(size=known.shape).argsort(axis=1)
        replaced = order < round(share * n_features)
        other = rng.randint(n_records, size=known.shape)
        for i in range(n_features):
            column = known.iloc[:, i] if isinstance(known, pd.DataFrame) else known[:, i]
            codes, values = pd.factorize(column, use_na_sentinel=False)
            if len(values) == 2:  # flip: take the value of a record with the other value
                other[:, i] = np.array([codes.argmax(), codes.argmin()])[codes]
        rows = np.where(replaced, other, np.arange(n_records)[:, None])
        return LabeledRecords(_gather_features(known, rows), self.y)

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.X.shape)

    def __len__(self) -> int:
        return num_samples(self.X)

    def __getitem__(self, rows: Any) -> LabeledRecords:
        if isinstance(rows, tuple):  # scikit-learn asks for array[rows, ...]
            rows = rows[0]
        if not isinstance(rows, slice):  # slicing an array copies nothing
            rows = np.atleast_1d(np.arange(len(self))[rows])
        return LabeledRecords(safe_indexing(self.X, rows), self.y[rows])

    def __array__(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise TypeError(
            "LabeledRecords is not an array: only attacks take it. Pass its X and y to other "
            "estimators."
        )

    def __repr__(self) -> str:
        return f"LabeledRecords of shape {self.shape}"


def label_records(X: Any, y: Any) -> Any:
    """Return records in the form that attacks take: with labels, or as they are if y is None."""
    return X if y is None else LabeledRecords(X, y)


def split_labels(X: Any, name: str = "X") -> tuple[Any, Labels]:
    """Return checked records, and their labels or None."""
    return (X.X, X.y) if isinstance(X, LabeledRecords) else (as_records(X, name), None)


def concat_labeled(
    first: tuple[Any, NDArray[Any]], second: tuple[Any, NDArray[Any]]
) -> tuple[Any, NDArray[Any]]:
    """Stack two samples of records and labels."""
    y_in, y_out = first[1], second[1]
    if y_in.shape[1:] != y_out.shape[1:] or not (y_in.ndim and y_out.ndim):
        raise ValueError(
            f"The labels of X_in and X_out have shapes {y_in.shape} and {y_out.shape}; expected "
            "the same shape except for the number of records."
        )
    try:
        y = np.concatenate([y_in, y_out])
    except TypeError:
        raise TypeError("X_in and X_out must have labels of the same type.") from None
    return concat(first[0], second[0]), y


def _check_choices(i: int, values: ArrayLike) -> NDArray[np.float64]:
    found = as_numbers(f"values[{i}]", values, "those that the feature may take")
    if found.ndim != 1 or not found.size or not np.isfinite(found).all():
        raise ValueError(f"values[{i}] must be a non-empty list of finite numbers.")
    return found


def _check_features(X: Any) -> None:
    if sparse.issparse(X) or X.ndim != 2:
        raise ValueError(f"X has shape {X.shape}; expected a dense table, (n_records, n_features).")


def _gather_features(known: Any, rows: NDArray[np.intp]) -> Any:
    """Return records whose feature j comes from record ``rows[i, j]``."""
    if not isinstance(known, pd.DataFrame):
        return np.take_along_axis(known, rows, axis=0)
    columns = [
        known.iloc[:, i].take(rows[:, i]).reset_index(drop=True) for i in range(known.shape[1])
    ]
    return pd.concat(columns, axis=1)


def _draw_features(choices: list[NDArray[Any]], n: int, rng: Any) -> NDArray[np.float64]:
    return np.column_stack([choice[rng.randint(len(choice), size=n)] for choice in choices])


def _redraw_features(
    best: NDArray[np.float64], changed: NDArray[np.intp], choices: list[Any], rng: Any
) -> NDArray[np.float64]:
    """Redraw ``changed`` random features of each record."""
    order = rng.uniform(size=best.shape).argsort(axis=1)
    return np.where(order < changed[:, None], _draw_features(choices, len(best), rng), best)
