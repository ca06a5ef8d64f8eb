"""The contract of private estimators: guarantee, budget charge, public facts and frozen parts.

A fit warns of anything that voids the guarantee, states the guarantee, charges the budget, reads
the data, and sets the model and its claim together. Classes and bounds are public facts, given as
parameters. A fact that is not given is read off the data: that leak raises a warning, or an error
in strict mode, and becomes an assumption of the guarantee. Parts that were passed fitted may have
learned from private records; the guarantee then assumes that they have not.

Start with :class:`PrivateEstimatorMixin` and ``doc/development/extending.rst``.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import replace
from functools import partial, wraps
from types import BuiltinFunctionType, ModuleType, TracebackType
from typing import Any, Generic, ParamSpec, TypeVar, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special
from sklearn.base import BaseEstimator, clone
from sklearn.frozen import FrozenEstimator
from sklearn.utils import get_tags

from ._config import leak, warn_caller
from ._groups import warn_of_identifiers
from ._input_data import check_classification_targets, check_one_type
from .accounting import ComposedEvent, Event, PrivacyBudget, PrivacyGuarantee, weakest_arithmetic
from .accounting.budget.receipts import Receipt
from .accounting.event import check_relation
from .accounting.guarantee import KINDS
from .exceptions import PrivacyWarning
from .mechanisms.base import check_bounds

__all__ = [
    "PrivateEstimatorMixin",
    "PrivateFit",
    "public_classes",
]

_KNOWN_PACKAGES = {"skprivacy", "sklearn", "skorch"}  # whose `data_independent_` is true
_LIBRARY_PACKAGES = {*_KNOWN_PACKAGES, "numpy", "scipy", "torch"}  # whose functions hold no records


def list_frozen_assumptions(params: Mapping[str, Any], relation: str) -> Iterator[str]:
    """Yield the assumptions about parameters that were fitted beforehand and that no fit changes.

    Under the relation "label", features are public and such parts may have learned from them.

    **Edge cases.** A method of an estimator, as in ``FunctionTransformer(scaler.transform)``,
    contains the values that the estimator has learned. Any function may hold a value learned from
    records, such as a mean, and nothing shows it. So functions inside an estimator lead to an
    assumption. For a function that is itself a parameter, the estimator states an assumption. Parts
    that learn nothing, or declare so by ``data_independent_``, need no assumption.
    """
    private = "label" if relation == "label" else "record"
    for name, value in params.items():
        if _is_frozen(value) and _may_have_learned(value):
            yield f"the {name} depends on no private {private}"
            continue
        found = list(_find_frozen(value))
        if any(_may_have_learned(part) for part in found if _is_estimator(part)):
            yield f"what is frozen in {name} depends on no private {private}"
        if not all(map(_is_estimator, found)):
            yield f"the functions in {name} depend on no private {private}"


def is_third_party_claim(step: Any) -> bool:
    """Return True if a third-party class declares itself data-independent."""
    return hasattr(step, "data_independent_") and _package_name(type(step)) not in _KNOWN_PACKAGES


def _find_frozen(value: Any, inside: bool = False) -> Iterator[Any]:
    """Yield the frozen estimators in a parameter, at any depth, and the functions inside them."""
    if isinstance(value, Mapping):
        value = list(value.values())
    elif isinstance(value, partial):
        value = [value.func, *value.args, value.keywords]
    elif isinstance(value, np.vectorize):
        value = [value.pyfunc]
    if isinstance(value, list | tuple):
        for part in value:
            yield from _find_frozen(part, inside)
    elif _is_estimator(owner := getattr(value, "__self__", None)):
        yield owner
    elif inside and _is_function(value):
        yield value
    elif _is_frozen(value):
        yield value
        if isinstance(value, FrozenEstimator):
            yield from _find_frozen(value.estimator, inside=True)
    elif _is_estimator(value):
        for part in value.get_params(deep=False).values():
            yield from _find_frozen(part, inside=True)


def _is_function(value: Any) -> bool:
    """Return whether a value is a user's function, or a callable object that may hold data."""
    if not callable(value) or isinstance(value, type) or _is_estimator(value):
        return False
    if isinstance(value, np.ufunc):
        return not any(getattr(of, value.__name__, None) is value for of in (np, special))
    owner = getattr(value, "__self__", None)
    if isinstance(value, BuiltinFunctionType) and isinstance(owner, type | ModuleType | None):
        return False
    # Functions, numpy's dispatchers included, have __qualname__; callable objects do not.
    if isinstance(owner, type) or (owner is None and hasattr(value, "__qualname__")):
        return _package_name(value) not in _LIBRARY_PACKAGES
    return _package_name(value if owner is None else type(owner)) not in _KNOWN_PACKAGES


def _package_name(value: Any) -> str:
    return (getattr(value, "__module__", None) or "").split(".")[0]


def _is_estimator(value: Any) -> bool:
    return hasattr(value, "get_params") and hasattr(value, "fit") and not isinstance(value, type)


def _is_frozen(value: Any) -> bool:
    """Return whether clone() returns the estimator itself, or a copy that is already fitted."""
    if not _is_estimator(value):
        return False
    own = getattr(type(value), "__sklearn_clone__", BaseEstimator.__sklearn_clone__)
    if own is BaseEstimator.__sklearn_clone__:
        return False
    copy = clone(value)
    return copy is value or any(a.endswith("_") and not a.endswith("__") for a in vars(copy))


def _may_have_learned(frozen: Any) -> bool:
    inner = frozen.estimator if isinstance(frozen, FrozenEstimator) else frozen
    if getattr(inner, "data_independent_", False) is True:
        return is_third_party_claim(inner)
    return bool(not hasattr(inner, "__sklearn_tags__") or get_tags(inner).requires_fit)


_SEED_IS_SECRET = "nobody knows or guesses noise_seed"
# The facts that a relation does not protect.
_PUBLIC_FACTS = {
    "zero_out": "the number of records is public",
    "replace_one": "the number of records is public",
    "label": "the features of all records are public (labels alone are protected)",
}
_rehearsing: ContextVar[bool] = ContextVar("rehearsing", default=False)


class _StatedError(BaseException):
    """Ends a rehearsal. A BaseException, which no ``except Exception`` catches."""

    def __init__(self, guarantee: PrivacyGuarantee) -> None:
        super().__init__(guarantee)
        self.guarantee = guarantee


def rehearse_fit(fit: Callable[[], Any]) -> PrivacyGuarantee:
    """Return the guarantee of a fit, by running it up to the charge of its first release.

    **Guarantees.** Nothing is charged or released, and the estimator is unchanged. The guarantee
    depends on public facts alone, so it reveals nothing about the records.
    """
    token = _rehearsing.set(True)
    try:
        fit()
    except _StatedError as stated:
        return stated.guarantee
    finally:
        _rehearsing.reset(token)
    raise TypeError(
        "fit() made no charged release, so its guarantee is unknown. Rehearse an estimator of "
        "skprivacy, or one that inherits PrivateEstimatorMixin."
    )


Method = TypeVar("Method", bound=Callable[..., Any])


def rolls_back_on_error(method: Method) -> Method:
    """Decorate a method, such as ``fit``: an error in it leaves the estimator unchanged."""

    @wraps(method)
    def undoing(self: Any, *args: Any, **kwargs: Any) -> Any:
        with roll_back_on_error(self):
            return method(self, *args, **kwargs)

    return cast(Method, undoing)


@contextmanager
def roll_back_on_error(estimator: Any) -> Iterator[None]:
    """Restore the estimator's attributes if the enclosed code fails or is interrupted."""
    before = dict(vars(estimator))
    try:
        yield
    except BaseException:
        vars(estimator).clear()
        vars(estimator).update(before)
        raise


def reserve_release(
    budget: PrivacyBudget | None,
    event: Event,
    relation: str = "add_remove",
    source: str = "",
    kind: str = "proved",
    unit: str = "record",
) -> AbstractContextManager[Receipt | None]:
    """Reserve a release on ``budget``, which is charged at once; without a budget, do nothing."""
    if budget is None:
        return nullcontext()
    if not isinstance(budget, PrivacyBudget):
        raise TypeError(
            f"budget={budget!r} must be a PrivacyBudget or None. Create one with "
            "PrivacyBudget(epsilon, delta)."
        )
    if not isinstance(kind, str) or kind != "proved":
        raise ValueError(
            f"A guarantee of kind={kind!r} cannot be charged to a budget: only proved ones add up. "
            "Fit with budget=None."
        )
    return budget.reserve(event, source, relation, unit)


P = ParamSpec("P")
T = TypeVar("T")


class _BegunContext(Generic[T]):
    """A context manager that is entered at its creation and can be used once."""

    def __init__(self, context: AbstractContextManager[T]) -> None:
        self._context = context
        self._value = context.__enter__()
        self._is_used = False

    def __enter__(self) -> T:
        if self._is_used:
            raise RuntimeError("This release was already made. Charge each release by itself.")
        self._is_used = True
        return self._value

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool | None:
        return self._context.__exit__(kind, error, trace)


def enter_at_call(function: Callable[P, Iterator[T]]) -> Callable[P, AbstractContextManager[T]]:
    """Decorate a generator as a context manager that runs to its ``yield`` when called."""
    # A release is charged even if the caller forgets `with`.
    context = contextmanager(function)

    @wraps(function)
    def begin(*args: P.args, **kwargs: P.kwargs) -> AbstractContextManager[T]:
        return _BegunContext(context(*args, **kwargs))

    return begin


@enter_at_call
def private_release(
    event: Event,
    *,
    relation: str,
    at_delta: float,
    unit: str = "record",
    before: PrivacyGuarantee | None = None,
    charging: Callable[..., AbstractContextManager[Any]] = reserve_release,
    arithmetic: str = "unspecified",
    source: str,
    budget: PrivacyBudget | None = None,
    noise_seed: int | None = None,
    assumptions: tuple[str, ...] = (),
    kind: str = "proved",
) -> Iterator[PrivacyGuarantee]:
    """State the guarantee of a release and charge it; read the data only inside the ``with`` block.

    For the parameters see :meth:`PrivateFit.charged`. Yields the guarantee once the release has
    been made, including the releases ``before``. A ``noise_seed`` makes it an "estimate".
    """
    check_relation(relation)
    stated = list(assumptions)
    if relation in _PUBLIC_FACTS:
        words = _PUBLIC_FACTS[relation]
        stated.append(words if unit == "record" else words.replace("of records", "of groups"))
    if noise_seed is not None:
        warn_caller(
            f"noise_seed={noise_seed!r} makes the noise predictable: there is no privacy. Use it "
            "only in tests.",
            PrivacyWarning,
        )
        stated.append(_SEED_IS_SECRET)
        kind = "estimate"
    stated = list(dict.fromkeys(stated))
    guarantee = PrivacyGuarantee(
        event, float(at_delta), relation, kind, tuple(stated), unit, arithmetic
    )
    if before is not None:
        guarantee = _compose_guarantees(before, guarantee)
    if _rehearsing.get():
        raise _StatedError(guarantee)
    with charging(budget, event, relation, source, kind, unit):
        yield guarantee


def _compose_guarantees(before: PrivacyGuarantee, now: PrivacyGuarantee) -> PrivacyGuarantee:
    for name, old, new in (
        ("relation", before.relation, now.relation), ("unit", before.unit, now.unit)
    ):  # fmt: skip
        if old != new:
            raise ValueError(
                f"{name}={new!r} must be {old!r}, as for the earlier releases: guarantees for "
                f"different {name}s are never added up. Restore it, or call fit to start afresh."
            )
    return replace(
        now,
        event=ComposedEvent((before.event, now.event)),
        kind=max(before.kind, now.kind, key=KINDS.index),
        assumptions=tuple(dict.fromkeys((*before.assumptions, *now.assumptions))),
        arithmetic=weakest_arithmetic((before.arithmetic, now.arithmetic)),
    )


class PrivateFit:
    """A fit in progress: the facts assumed to be public so far, and the charging of releases.

    Parameters
    ----------
    estimator : PrivateEstimatorMixin
        The estimator that is being fitted.
    """

    def __init__(self, estimator: PrivateEstimatorMixin) -> None:
        self._estimator = estimator
        self._assumptions: list[str] = []
        self._kind = "proved"
        self._is_charged = False

    @property
    def source(self) -> str:
        """Name of the estimator, for errors and ledgers."""
        return type(self._estimator).__name__

    def assume(self, *statements: str) -> None:
        """Add to the assumptions of the guarantee.

        Parameters
        ----------
        *statements : str
            Conditions of the guarantee.
        """
        self._assumptions.extend(statements)

    def assume_unproved(self, kind: str, statement: str) -> None:
        """Add an assumption that makes the guarantee one of kind "random_dp" or "estimate".

        Parameters
        ----------
        kind : {"random_dp", "estimate"}
            Kind of the guarantee.
        statement : str
            Why it is not proved.
        """
        self._kind = kind
        self.assume(statement)

    def read_off_data(self, warning: str, assumption: str) -> None:
        """Warn that a fact was read off the private data, and assume that it is public.

        Parameters
        ----------
        warning : str
            The leak, and the parameter that avoids it.
        assumption : str
            The fact that is assumed to be public.
        """
        leak(warning)
        self.assume(assumption)

    @enter_at_call
    def charged(
        self,
        event: Event,
        *,
        relation: str,
        at_delta: float,
        unit: str = "record",
        before: PrivacyGuarantee | None = None,
        charging: Callable[..., AbstractContextManager[Any]] = reserve_release,
        arithmetic: str = "unspecified",
    ) -> Iterator[None]:
        """State the guarantee and charge the budget; read the data only inside the ``with`` block.

        The call itself charges the budget. On leaving without an error, the estimator has
        ``privacy_``, ``privacy_event_``, ``epsilon_`` and ``delta_``.

        Parameters
        ----------
        event : Event
            The accounting event of the release.
        relation : {"add_remove", "label", "zero_out", "replace_one"}
            Neighbouring relation.
        at_delta : float
            The delta at which epsilon is stated; 0 for pure differential privacy.
        unit : str, default="record"
            Unit in which neighbouring data sets differ: "record", or the name of ``groups``.
        before : PrivacyGuarantee, default=None
            The guarantee of earlier releases, with which this one is composed.
        charging : callable, default=reserve_release
            Called as ``charging(budget, event, relation, source, kind, unit)``; returns a context
            manager.
        arithmetic : {"exact", "floating_point", "unspecified"}, default="unspecified"
            Arithmetic of the noise: ``mechanism.arithmetic``, or ``weakest_arithmetic`` of several.

        Raises
        ------
        ValueError
            If ``before`` holds for another relation or unit, or the budget accepts no such
            guarantee.
        BudgetExceededError
            If the budget cannot afford the release. Nothing is charged in that case.
        RuntimeError
            At a second charge of this fit, which neither ``privacy_`` nor a rehearsal would cover.
        """
        if self._is_charged:
            raise RuntimeError(
                f"{self.source} charges two releases in one fit, and its guarantee would state one "
                "of them. Charge ComposedEvent of all releases, before the first."
            )
        self._is_charged = True
        model: Any = self._estimator
        if unit == "record" and hasattr(model, "feature_names_in_"):
            warn_of_identifiers(model.feature_names_in_)
        self.assume(*list_frozen_assumptions(model.get_params(deep=False), relation))
        with private_release(
            event,
            relation=relation,
            at_delta=at_delta,
            source=self.source,
            budget=getattr(model, "budget", None),
            noise_seed=model.noise_seed,
            assumptions=tuple(dict.fromkeys(self._assumptions)),
            unit=unit,
            before=before,
            charging=charging,
            arithmetic=arithmetic,
            kind=self._kind,
        ) as guarantee:
            yield
        model.privacy_ = guarantee
        model.privacy_event_ = guarantee.event
        model.epsilon_ = guarantee.epsilon()
        model.delta_ = float(at_delta)


def check_n_records(relation: str, n_records: int | None) -> None:
    """Require ``n_records`` under "add_remove", and refuse it under other relations."""
    if (relation == "add_remove") != (n_records is not None):
        raise ValueError(
            f"n_records={n_records!r} does not fit relation={relation!r}: 'add_remove' hides the "
            "number of records and needs a public figure for it, other relations take none. Set "
            "both, or neither."
        )


class PrivateEstimatorMixin:
    """Mixin for all private estimators and transformers.

    A subclass has a parameter ``noise_seed`` and usually ``budget``. Its ``fit`` looks as follows.

    .. code-block:: python

        def fit(self, X, y, *, groups=None):
            with self._private_fit() as fit:
                rows, target, groups = read_records(self, X, y, groups)
                classes = public_classes(fit, target, self.classes)
                mechanism = Laplace(1 / self.epsilon, sensitivity=2.0)
                with fit.charged(
                    mechanism.event,
                    relation=self.relation,
                    at_delta=0.0,
                    unit=groups.unit,
                    arithmetic=mechanism.arithmetic,
                ):
                    value = statistic(rows, groups.exact_shares())
                    noisy = mechanism.release(value, SecureRandom(self.noise_seed))
                self.coef_ = ...
            return self

    Notes
    -----
    **Guarantees.** A fit that is refused, fails or is interrupted leaves the estimator unchanged:
    an earlier model keeps its own claim, and a new estimator stays unfitted. Charges are not
    undone. The noise seed is never pickled with a fitted model.
    """

    @contextmanager
    def _private_fit(self) -> Iterator[PrivateFit]:
        with roll_back_on_error(self):
            yield PrivateFit(self)

    def _validate_params(self) -> None:
        super()._validate_params()  # type: ignore[misc]
        if hasattr(self, "relation") and hasattr(self, "n_records"):
            check_n_records(self.relation, self.n_records)

    def __getstate__(self) -> dict[str, Any]:
        # A mixin: scikit-learn's BaseEstimator, which mypy does not see here, has both methods.
        state: dict[str, Any] = super().__getstate__()  # type: ignore[misc]
        return state | {"noise_seed": None} if "privacy_" in state else state

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()  # type: ignore[misc]  # as above
        tags.non_deterministic = True
        return tags


def public_classes(
    fit: PrivateFit, y: NDArray, given: ArrayLike | None
) -> tuple[NDArray, NDArray[np.int64]]:
    """Return the sorted classes, and the labels as indices into them.

    Parameters
    ----------
    fit : PrivateFit
        The fit that is under way.
    y : ndarray of shape (n_samples,)
        Private labels.
    given : array-like of shape (n_classes,) or None
        The parameter ``classes``.

    Returns
    -------
    classes : ndarray of shape (n_classes,)
        The classes, sorted.
    codes : ndarray of shape (n_samples,)
        Indices into them.

    Raises
    ------
    ValueError
        If there are fewer than two classes, or ``y`` holds others; the message does not name them.
    TypeError
        If ``given`` holds classes that cannot be sorted.
    """
    if given is not None:
        check_one_type("classes", given)
    else:
        check_classification_targets(y)
        fit.read_off_data(
            "classes=None: the labels are read off y, which reveals whether a rare class occurs. "
            "Pass classes=[...] with all labels that are publicly possible.",
            "the set of class labels is public (it was read off y)",
        )
    classes = np.unique(np.asarray(y if given is None else given))
    if len(classes) < 2:
        shown = None if given is None else classes.tolist()  # those of y are private
        raise ValueError(
            f"classes={shown!r}: {fit.source} needs at least two classes, got {len(classes)} "
            "class. Pass classes=[...] with all possible labels."
        )
    if not np.isin(y, classes).all():
        raise ValueError(
            f"y holds labels that are not in classes={classes.tolist()!r}. They are not named here "
            "because labels are private: compare numpy.unique(y) with classes. Add the missing "
            "labels to classes, or drop those records."
        )
    return classes, np.searchsorted(classes, y)


def public_bounds(
    fit: PrivateFit, X: NDArray, given: Any
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the lower and the upper bound of each feature, (n_features,), in its units."""
    if given is not None:
        lower, upper = check_bounds("bounds", given, X.shape[1])
        return np.array(lower), np.array(upper)
    fit.read_off_data(
        "bounds=None: the bounds of the features are read off X. Pass bounds=(lower, upper), "
        "numbers or one per feature, from public knowledge.",
        "the bounds of the features are public (they were read off X)",
    )
    finite = np.where(np.isfinite(X), X, np.nan)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # a column without any number
        lower, upper = np.nanmin(finite, axis=0), np.nanmax(finite, axis=0)
    return np.nan_to_num(lower), np.nan_to_num(upper)


def public_target_bounds(fit: PrivateFit, y: NDArray, given: Any) -> tuple[float, float]:
    """Return the lower and the upper bound of the target, which are never equal."""
    if given is None:
        fit.read_off_data(
            "target_bounds=None: the bounds of the target are read off y, which reveals its "
            "extremes. Pass target_bounds=(lower, upper) from public knowledge.",
            "the bounds of the target are public (they were read off y)",
        )
        low, high = float(y.min()), float(y.max())
        return (low, high) if low < high else (low - 1.0, high + 1.0)
    lower, upper = check_bounds("target_bounds", given, 1)
    if lower[0] == upper[0]:
        raise ValueError(
            f"target_bounds={given!r} must be a lower bound below an upper one; they are equal, so "
            "there is nothing to learn. Pass the public range of the target."
        )
    return float(lower[0]), float(upper[0])
