"""Records with their labels as one container, which scikit-learn splits like a table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..._input_data import check_consistent_length
from ..._sklearn import safe_indexing
from ..._validation import num_samples
from ..candidate_records import replace_features, resample_marginals, synthesize_records
from ..model_answers import targets_as_array
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
        settings = (confidence, max_queries, patience, least_changed, random_state)
        return cls(*synthesize_records(target, values, n_per_class, *settings))

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
        return cls(*resample_marginals(X, y, n_per_class, random_state))

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
        return LabeledRecords(replace_features(self.X, share, random_state), self.y)

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
