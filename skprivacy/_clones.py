"""Models of others: clones that attacks train (seeded, silent, never charged), and safe calls.

Start with :func:`train_clone`. :func:`name_failing_model` keeps values of the data out of errors of
third-party models, and :func:`seed_globally` seeds the generators that such models may draw from.
:class:`WrappedClassifier` predicts by a model fitted to indices of classes, such as one fitted to
noisy labels.
"""

from __future__ import annotations

import random
import re
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from sklearn import get_config
from sklearn.base import MetaEstimatorMixin, clone
from sklearn.dummy import DummyClassifier
from sklearn.exceptions import NotFittedError
from sklearn.pipeline import Pipeline
from sklearn.utils.metadata_routing import get_routing_for_object
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from ._input_data import ClassifierMixin, check_numbers
from ._sklearn import InvalidParameterError, safe_indexing
from ._validation import num_samples, raise_alone
from .exceptions import BudgetExceededError, SyntheticTrainingError

if TYPE_CHECKING:
    from ._groups import Groups

SHARED_BY_CLONES = ("target", "pool")
_HERE = Path(__file__).parent
# Messages of scikit-learn that hold counts only, or their start up to a digit, quote or bracket.
_FIXED_WORDS = re.compile(
    r"X has \d+ features, but \w+ is expecting \d+ features as input"
    r"|Found (array|input variables) with .*"
    r"|Cannot have number of splits .*|Unknown label type: (continuous|unknown)[a-z-]*"
    r"|This solver needs samples of at least 2 classes in the data, but the data contains only one"
    r" class"
    r"|float\(\) argument must be a string or a (real )?number|([12]D\b|[A-Za-z ,._-])+"
)


def shadow_clone(estimator: Any, seed: int) -> Any:
    """Return a clone with its own seeds and no privacy budget."""
    model = clone(estimator)
    changes: dict[str, Any] = {}
    for name, value in model.get_params().items():
        last = name.split("__")[-1]
        # With one noise_seed, all shadow models would get the same noise.
        if last == "random_state" or (last == "noise_seed" and value is not None):
            changes[name] = int(seed)
        elif last == "budget":
            changes[name] = None
    if changes:  # FrozenEstimator.set_params returns nothing
        model.set_params(**changes)
    return model


def train_clone(
    estimator: Any,
    X: Any,
    y: Any,
    rows: NDArray[np.intp],
    seed: int,
    sample_weight: NDArray[np.float64] | None = None,
    groups: Groups | None = None,
) -> Any:
    """Train a clone on some rows, without warnings, since the target raised the same ones."""
    given: dict[str, Any] = {}
    if sample_weight is not None:
        given[weight_name(estimator)] = sample_weight[rows]
    if groups is not None:
        given |= dict.fromkeys(group_names(estimator), groups.to_series(rows))
    with warnings.catch_warnings(), name_failing_model(estimator, "trained on X and y"):
        warnings.simplefilter("ignore")
        return shadow_clone(estimator, seed).fit(safe_indexing(X, rows), y[rows], **given)


@contextmanager
def name_failing_model(model: Any, what: str) -> Iterator[None]:
    """Prefix errors of a model with its name and the call that failed."""
    try:
        yield
    except (NotFittedError, BudgetExceededError, SyntheticTrainingError):
        raise
    except (TypeError, ValueError, ArithmeticError, LookupError) as error:
        kind = TypeError if isinstance(error, TypeError) else ValueError
        raise_alone(kind(f"{type(model).__name__} cannot be {what}: {describe_error(error)}"))
    except MemoryError as error:
        if Path(traceback.extract_tb(error.__traceback__)[-1].filename).is_relative_to(_HERE):
            raise  # our own, for a GPU: it names a remedy
        text = "there is not enough memory. Pass fewer values"
        raise_alone(ValueError(f"{type(model).__name__} cannot be {what}: {text}."))


@contextmanager
def trial_fit(who: str, records: str, remedy: str) -> Iterator[None]:
    """Run a fit to made-up labels without warnings; an error says that nothing was charged."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    except Exception as error:
        raise_alone(
            ValueError(
                f"{who} cannot be fitted to {records} ({describe_error(error)}). Nothing was "
                f"charged. {remedy}"
            )
        )


def call_model(model: Any, method: str, X: Any) -> Any:
    """Call a method of a model on records; errors name the model and quote no values."""
    with name_failing_model(model, "asked about X"):
        return getattr(model, method)(X)


def describe_error(error: BaseException) -> str:
    """Return a description of a model's error that quotes no values of the data.

    Messages of scikit-learn are cut where a value may follow. Errors of other packages are reduced
    to their type and place. Errors of this library contain no values.
    """
    if isinstance(error, InvalidParameterError):
        return str(error).partition(" Got ")[0]
    place = traceback.extract_tb(error.__traceback__)[-1]
    package, _, file = Path(place.filename).as_posix().rpartition("/site-packages/")
    if Path(place.filename).is_relative_to(_HERE):
        return str(error)
    file = file if package else Path(place.filename).name
    text = f"{type(error).__name__} in {file}, line {place.lineno}"
    words = _FIXED_WORDS.match(str(error))
    if package and file.startswith("sklearn/") and words:
        text += f", {words[0].strip()!r}"
        if "Reshape your data" in str(error):
            text += ". Reshape your data to rows of records"
    return f"{text}; its text is left out, as it may quote records"


def check_weights(estimator: Any, sample_weight: Any, n_records: int) -> NDArray[np.float64] | None:
    """Return weights of records as an array, after checking that ``fit`` takes them."""
    if sample_weight is None:
        return None
    check_numbers(sample_weight, "sample_weight")
    weights = np.asarray(sample_weight, dtype=float)
    if weights.shape != (n_records,) or not np.isfinite(weights).all() or (weights < 0).any():
        raise ValueError(
            f"sample_weight has shape {weights.shape}; expected one finite number of at least 0 "
            f"for each of the {n_records} records."
        )
    last = estimator[-1] if isinstance(estimator, Pipeline) else estimator
    taken = signature(last.fit).parameters
    if "sample_weight" not in taken and not any(p.kind is p.VAR_KEYWORD for p in taken.values()):
        raise ValueError(
            f"sample_weight cannot be passed on: {type(last).__name__}.fit takes none. Leave it "
            "out, if the target was fitted without it."
        )
    return weights


def weight_name(estimator: Any) -> str:
    """Return the argument of ``fit`` for weights, prefixed with a pipeline's last step."""
    routed = get_config()["enable_metadata_routing"]
    if isinstance(estimator, Pipeline) and not routed:
        return f"{estimator.steps[-1][0]}__sample_weight"
    return "sample_weight"


def group_names(estimator: Any) -> list[str]:
    """Return the arguments of ``fit`` for groups: none, one, or one for each pipeline step."""
    if get_config()["enable_metadata_routing"]:
        return sorted(get_routing_for_object(estimator).consumes("fit", ["groups"]))
    return list(_group_names(estimator))


def _group_names(estimator: Any) -> Iterator[str]:
    if isinstance(estimator, Pipeline):
        for step, part in estimator.steps:
            yield from (f"{step}__{name}" for name in _group_names(part))
    elif hasattr(estimator, "fit") and "groups" in signature(estimator.fit).parameters:
        yield "groups"


@contextmanager
def seed_globally(seed: int) -> Iterator[None]:
    """Seed the global generators of Python, numpy and torch, and restore their states on exit.

    **Guarantees.** The restored states are independent of the draws inside the block.

    **Edge cases.** torch is seeded only if it is loaded. Generators of GPUs keep their states.
    """
    torch = sys.modules.get("torch")
    generator = torch and torch.default_generator
    # NPY002 asks for a local generator, but third-party models draw from numpy's global one.
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


def constant_model(code: int) -> DummyClassifier:
    """Return a fitted model that always predicts one class, for labels of that class only."""
    return DummyClassifier(strategy="constant", constant=code).fit([[0.0]], [code])


def feed_constant_model(model: Any, rows: Any) -> Any:
    """Return the rows, or as many zeros for a constant model, which uses no feature."""
    return np.zeros((num_samples(rows), 1)) if isinstance(model, DummyClassifier) else rows


def delegates_to(method: str) -> Callable[..., Any]:
    """Return a decorator that hides a method if the wrapped model lacks ``method``."""

    def has(self: Any) -> bool:
        fitted = hasattr(self, self._wrapped)
        return hasattr(getattr(self, self._wrapped) if fitted else self._unfitted_model(), method)

    return available_if(has)


class DelegatingMixin:
    """Prediction methods that call the model in the attribute ``_wrapped``."""

    estimator: Any
    _wrapped: ClassVar[str]

    def _unfitted_model(self) -> Any:
        """Return the model whose methods exist before a fit."""
        return self.estimator

    def _call(self, method: str, X: Any) -> NDArray[Any]:
        check_is_fitted(self, self._wrapped)
        found: NDArray[Any] = call_model(getattr(self, self._wrapped), method, X)
        return found

    @delegates_to("predict")
    def predict(self, X: Any) -> NDArray[Any]:
        """Return the predictions of the kept model, of shape (n_samples,)."""
        return self._call("predict", X)

    @delegates_to("predict_proba")
    def predict_proba(self, X: Any) -> NDArray[Any]:
        """Return the probabilities of the kept model, of shape (n_samples, n_classes)."""
        return self._call("predict_proba", X)

    @delegates_to("predict_log_proba")
    def predict_log_proba(self, X: Any) -> NDArray[Any]:
        """Return the log-probabilities of the kept model, of shape (n_samples, n_classes)."""
        return self._call("predict_log_proba", X)

    @delegates_to("decision_function")
    def decision_function(self, X: Any) -> NDArray[Any]:
        """Return the scores of the kept model, of shape (n_samples,) or (n_samples, n_classes)."""
        return self._call("decision_function", X)

    @property
    def classes_(self) -> NDArray[Any]:
        """Class labels of the kept model."""
        check_is_fitted(self, self._wrapped)
        return getattr(self, self._wrapped).classes_


class WrappedClassifier(MetaEstimatorMixin, ClassifierMixin):
    """Mixin that predicts by a fitted model of indices of ``classes_``."""

    _wrapped: ClassVar[str] = "estimator_"  # name of the attribute that holds the fitted model

    if TYPE_CHECKING:  # real methods would hide methods of a subclass's other bases

        def _unfitted_model(self) -> Any:
            """Return a model with the methods of the one that will be fitted."""

        def _rows(self, X: Any) -> Any:
            """Check that a model is fitted; return records in the form that it takes."""

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the class of each row.

        Parameters
        ----------
        X : array-like or DataFrame of shape (n_samples, n_features)
            Records.

        Returns
        -------
        ndarray of shape (n_samples,)
            Elements of ``classes_``.
        """
        rows = self._rows(X)
        model = getattr(self, self._wrapped)
        with name_failing_model(model, "asked about X"):
            return self.classes_[model.predict(feed_constant_model(model, rows))]

    @delegates_to("predict_proba")
    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Return the probability of each class; 0 for a class without any label.

        Parameters
        ----------
        X : array-like or DataFrame of shape (n_samples, n_features)
            Records.

        Returns
        -------
        ndarray of shape (n_samples, n_classes)
            Columns in the order of ``classes_``.
        """
        rows = self._rows(X)
        model = getattr(self, self._wrapped)
        found = np.zeros((num_samples(rows), len(self.classes_)))
        with name_failing_model(model, "asked about X"):
            found[:, model.classes_] = model.predict_proba(feed_constant_model(model, rows))
        return found
