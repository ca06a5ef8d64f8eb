"""ALMFineTuner: training of the encoder, stored state, cost, and callers."""

from __future__ import annotations

import traceback
from unittest import mock

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import BaseEstimator, TransformerMixin, clone
from sklearn.datasets import load_digits, make_blobs
from sklearn.decomposition import PCA
from sklearn.exceptions import NotFittedError
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, cross_validate
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, Normalizer, StandardScaler

from skprivacy.accounting import GaussianEvent, PrivacyBudget
from skprivacy.attacks import ShadowPool
from skprivacy.ensemble import PublicRecords
from skprivacy.fine_tuning import ALMFineTuner, HalfWhitening, NetworkHead, SoftmaxHead, alm, heads
from skprivacy.fine_tuning.heads import HEADS, GradientHead, LeastSquaresHead, PrototypeHead
from skprivacy.mechanisms import Mechanism
from skprivacy.mechanisms.special_noise import Logistic
from skprivacy.model_selection import PrivacySweepCV
from skprivacy.neural_network import ScatteringTransformer
from skprivacy.preprocessing import BoundedColumn, CategoricalColumn, Schema, SchemaTransformer

LINEAR = sorted(set(HEADS) - {"dpsgd"})
DIGITS, LABELS = load_digits(return_X_y=True)
X, Y, PUBLIC, TEST, TRUTH = (
    DIGITS[:500],
    LABELS[:500],
    DIGITS[900:1300],
    DIGITS[1300:],
    LABELS[1300:],
)
FROZEN = FrozenEstimator(make_pipeline(PCA(16), HalfWhitening()).fit(PUBLIC))


def tuner(encoder=FROZEN, head="auto", **params):
    return ALMFineTuner(encoder, head, **{"epsilon": 4.0, "classes": range(10), **params})


class Counting(TransformerMixin, BaseEstimator):
    """An encoder that counts its fits, over all its clones, and remembers how many rows it saw."""

    seen: list[int] = []

    def fit(self, X, y=None):
        self.seen.append(len(X))
        self.n_features_in_ = X.shape[1]
        return self

    def transform(self, X):
        return np.asarray(X)[:, 20:40]


@pytest.fixture(autouse=True)
def _no_fits():
    Counting.seen.clear()


# ---------------------------------------------------------------- learning


@pytest.mark.heavy
@pytest.mark.everyday(2)
@pytest.mark.parametrize("head", LINEAR)
def test_every_head_learns(head):
    model = tuner(head=head, epsilon=10.0).fit(X, Y)
    assert model.score(TEST, TRUTH) > 0.75
    probabilities = model.predict_proba(TEST)
    np.testing.assert_allclose(probabilities.sum(1), 1.0)
    assert (model.classes_[probabilities.argmax(1)] == model.predict(TEST)).all()


def uncentred_blobs():
    """Return 20 separable classes of which all records share one direction."""
    rows, labels = make_blobs(1600, 20, centers=20, cluster_std=4.0, random_state=3)
    return rows + 20.0, labels


@pytest.mark.heavy
@pytest.mark.filterwarnings("ignore:noise_seed")  # it repeats the same noise
def test_less_noise_does_not_lower_the_accuracy_of_gradient_descent():
    """Steps that grow as the noise falls would overshoot in the shared direction."""
    rows, labels = uncentred_blobs()
    scores = {
        epsilon: ALMFineTuner(epsilon=epsilon, classes=range(20), noise_seed=0)
        .fit(rows[:1200], labels[:1200])
        .score(rows[1200:], labels[1200:])
        for epsilon in (3.0, 10.0, 100.0, np.inf)
    }
    assert min(scores.values()) > 0.95, scores
    with mock.patch.object(heads, "_clip_spectrum", lambda step, largest: step):  # a planted bug
        overshot = ALMFineTuner(epsilon=100.0, classes=range(20), noise_seed=0)
        overshot.fit(rows[:1200], labels[:1200])
    assert overshot.score(rows[1200:], labels[1200:]) < 0.8


def test_a_step_of_gradient_descent_moves_a_unit_row_by_a_limited_distance():
    step = np.random.default_rng(0).normal(size=(9, 4))
    clipped = heads._clip_spectrum(step, 2.0)
    assert np.linalg.norm(clipped, 2) == pytest.approx(2.0)
    np.testing.assert_allclose(heads._clip_spectrum(step, 100.0), step)


@pytest.mark.slow
def test_a_network_is_trained_with_noise_and_costs_what_that_costs():
    budget = PrivacyBudget(9.0, 1e-5)
    model = tuner(head=NetworkHead((20,), epochs=20), relation="zero_out", budget=budget).fit(X, Y)
    assert model.score(TEST, TRUTH) > 0.7
    assert model.weights_.privacy_event_ == model.privacy_event_
    assert budget.spent() == pytest.approx(4.0, rel=1e-3)
    assert model.privacy_.relation == "zero_out"
    head = NetworkHead((), epochs=2, n_records=1000)
    assert tuner(head=head).fit(X, Y).privacy_.relation == "add_remove"


@pytest.mark.heavy
@pytest.mark.everyday(1)
@pytest.mark.parametrize("mechanism", ["gaussian", "k_norm", "laplace", "logistic"])
def test_every_mechanism_noises_softmax_weights(mechanism):
    model = tuner(head="softmax", mechanism=mechanism, epsilon=50.0).fit(X, Y)
    assert model.score(TEST, TRUTH) > 0.7


@pytest.mark.heavy
@pytest.mark.parametrize("n_classes", [2, 3])
def test_without_noise_the_softmax_head_is_that_of_scikit_learn(n_classes):
    """The same penalty, contrasts that lose nothing, and the log-odds of the right class."""
    few = n_classes > Y
    model = tuner(head=SoftmaxHead(ridge=1.0), epsilon=np.inf, classes=range(n_classes))
    model.fit(X[few], Y[few])
    rows = model._records(X[few], Y[few]).rows
    plain = LogisticRegression(fit_intercept=False, C=1.0, tol=1e-10, max_iter=10_000)
    plain.fit(rows, Y[few])
    np.testing.assert_allclose(
        model.predict_proba(X[few]), plain.predict_proba(rows), atol=1e-3, rtol=1e-2
    )


@pytest.mark.slow
def test_auto_is_chosen_by_public_facts():
    def kind(**params):
        return type(tuner(**params).fit(X, Y).head_)

    assert kind() is GradientHead
    assert kind(mechanism="gaussian") is GradientHead
    assert kind(delta=0.0) is kind(mechanism="laplace") is PrototypeHead
    assert kind(sensitivity=0.1) is SoftmaxHead
    assert kind(head=LeastSquaresHead()) is LeastSquaresHead


def test_half_whitening_needs_public_records_and_helps():
    """Here uninformative directions vary most."""
    rng = np.random.default_rng(0)
    y = rng.integers(2, size=4000)
    records = rng.normal(size=(4000, 6)) * [50, 50, 50, 50, 2, 2]
    records[:, 4:] += 2 * y[:, None]
    scores = []
    for public in (None, records[:1000]):
        model = ALMFineTuner(None, "prototypes", classes=[0, 1], epsilon=5.0)
        model.fit(records[1000:3000], y[1000:3000], X_public=public)
        assert (model.whitening_ is None) == (public is None)
        scores.append(model.score(records[3000:], y[3000:]))
    assert scores[1] > scores[0] + 0.1  # by 0.169 +- 0.007; at epsilon 1 the noise made it 0.024


def test_half_whitening():
    public = np.random.default_rng(0).normal(size=(20_000, 3)) * [1.0, 16.0, 0.0] + 7.0
    whitening = HalfWhitening().fit(public)
    scaled = (public - whitening.mean_) @ whitening.components_
    np.testing.assert_allclose(sorted(scaled.std(0)), [0, 1, 4], rtol=0.02)  # square roots
    np.testing.assert_allclose(np.linalg.norm(whitening.transform(public), axis=1), 1.0)
    assert not whitening.transform(whitening.mean_[None]).any()


# ---------------------------------------------------------------- whose encoder it is


def test_an_unfitted_encoder_learns_from_public_records_alone():
    model = tuner(Counting()).fit(X, Y, X_public=PUBLIC)
    assert Counting.seen == [len(PUBLIC)]
    assert "the public records depend on no private record" in model.privacy_.assumptions
    assert "the encoder depends on no private record" not in model.privacy_.assumptions
    with pytest.raises(ValueError, match=r"never fitted to the private X.*X_public"):
        tuner(Counting()).fit(X, Y)
    assert len(X) not in Counting.seen


@pytest.mark.heavy
def test_a_fitted_encoder_is_frozen_or_refused():
    fitted = PCA(16).fit(PUBLIC)
    for public in (None, PUBLIC):
        with pytest.raises(ValueError, match=r"is fitted.*FrozenEstimator\(encoder\)"):
            tuner(fitted).fit(X, Y, X_public=public)
    for public in (None, PUBLIC):
        model = tuner(FrozenEstimator(fitted)).fit(X, Y, X_public=public)
        assert "the encoder depends on no private record" in model.privacy_.assumptions
    again = clone(model)
    assert again.encoder.components_ is fitted.components_, "a clone has lost what was learned"
    with pytest.raises(NotFittedError):
        tuner(FrozenEstimator(StandardScaler())).fit(X, Y)


@pytest.mark.everyday(1)
@pytest.mark.heavy
@pytest.mark.parametrize(
    "encoder",
    [None, Normalizer(), ScatteringTransformer(), ScatteringTransformer().fit(np.zeros((1, 144)))],
    ids=["none", "stateless", "scattering", "scattering-fitted"],
)  # fmt: skip
def test_an_encoder_that_learns_nothing_needs_no_public_records(encoder):
    images = np.random.default_rng(0).uniform(size=(60, 144))
    model = tuner(encoder).fit(images, np.arange(60) % 10)
    assert model.predict(images).shape == (60,)


def test_a_torch_module_is_an_encoder():
    torch.manual_seed(0)
    module = torch.nn.Sequential(torch.nn.Linear(64, 40), torch.nn.Tanh()).eval()

    def encode(records):
        with torch.inference_mode():
            return module(torch.as_tensor(records / 16, dtype=torch.float32)).numpy()

    model = tuner(FunctionTransformer(encode)).fit(X, Y, X_public=PUBLIC)
    assert "the encoder depends on no private record" in model.privacy_.assumptions
    assert model.score(TEST, TRUTH) > 0.7


class Mixing(TransformerMixin, BaseEstimator):
    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.requires_fit = False
        return tags

    def fit(self, X, y=None):
        return self

    def transform(self, X):
        return X - X.mean(axis=0)


@pytest.mark.parametrize("public", [None, PUBLIC], ids=["none", "public"])
def test_an_encoder_that_mixes_records_is_refused(public):
    budget = PrivacyBudget(10.0, 1e-4)
    with pytest.raises(ValueError, match="from other records too"):
        tuner(Mixing(), budget=budget).fit(X, Y, X_public=public)
    assert budget.spent() == 0


def test_public_records_of_another_kind_are_refused():
    with pytest.raises(ValueError, match="X_public has 3 features and X has 64"):
        tuner().fit(X, Y, X_public=PUBLIC[:, :3])


def test_a_table_with_words():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"age": rng.uniform(0, 90, 600), "job": rng.choice(["a", "b"], 600)})
    y = np.where(frame["job"] == "a", "yes", "no")
    schema = Schema({"age": BoundedColumn(0, 90), "job": CategoricalColumn(["a", "b"])})
    model = ALMFineTuner(SchemaTransformer(schema), classes=["no", "yes"], epsilon=4.0)
    model.fit(frame[:400], y[:400], X_public=frame[400:])
    assert model.score(frame[400:], y[400:]) > 0.9
    with pytest.raises(ValueError, match="columns that are not numbers"):
        model.fit(frame[:400], y[:400])


@pytest.mark.heavy
def test_a_frame_of_numbers_keeps_its_names():
    columns = [f"pixel {i}" for i in range(64)]
    frame, public = pd.DataFrame(X, columns=columns), pd.DataFrame(PUBLIC, columns=columns)
    model = tuner(make_pipeline(StandardScaler(), PCA(8))).fit(frame, Y, X_public=public)
    assert model.predict(pd.DataFrame(TEST, columns=columns)).shape == TRUTH.shape


@pytest.mark.heavy
@pytest.mark.everyday(1)
@pytest.mark.parametrize("head", LINEAR)
def test_a_record_that_is_not_finite_contributes_nothing_and_nobody_is_told(head):
    kept = X.copy()
    kept[5], kept[6] = np.nan, np.inf
    without = np.delete(X, [5, 6], axis=0), np.delete(Y, [5, 6])
    models = [tuner(head=head, epsilon=np.inf).fit(*data) for data in ((kept, Y), without)]
    np.testing.assert_allclose(models[0].weights_, models[1].weights_, atol=1e-5, rtol=1e-5)
    np.testing.assert_allclose(models[0].predict_proba(kept[5:7]), 0.1)


# ---------------------------------------------------------------- what is kept


def check_traceback(head):
    """A failing release leaves no frame in which a reader of the error finds exact weights."""
    exact = []

    def broken(self, value, random):
        exact.append(np.array(value).ravel())
        raise MemoryError

    with mock.patch.object(Mechanism, "release", broken), pytest.raises(MemoryError) as caught:
        tuner(head=head).fit(X, Y)
    assert caught.value.__cause__ is caught.value.__context__ is None
    for frame, _ in traceback.walk_tb(caught.value.__traceback__):
        held = [v for v in frame.f_locals.values() if isinstance(v, np.ndarray)]
        same = [v for v in held if v.size == exact[0].size and np.allclose(v.ravel(), exact[0])]
        assert not same, f"{frame.f_code.co_name} holds the exact weights"


@pytest.mark.heavy
@pytest.mark.everyday(1)
@pytest.mark.parametrize("head", LINEAR)
def test_the_traceback_of_a_failure_holds_no_exact_weights(head):
    check_traceback(head)


@pytest.mark.heavy
def test_exact_weights_in_a_traceback_are_caught():
    with (
        mock.patch.object(alm, "_call_without_frames", lambda compute, *given: compute(*given)),
        pytest.raises(AssertionError, match="holds the exact weights"),
    ):
        check_traceback("softmax")


# ---------------------------------------------------------------- what it costs


@pytest.mark.heavy
def test_a_sensitivity_that_is_given_is_used_and_assumed():
    used = []
    release = Mechanism.release

    def recorded(self, value, random):
        used.append(self.sensitivity)
        return release(self, value, random)

    with mock.patch.object(Mechanism, "release", recorded):
        model = tuner(sensitivity=0.25).fit(X, Y)
    assert used == [0.25]
    assert any("at most 0.25 in L2, as given" in a for a in model.privacy_.assumptions)
    with pytest.raises(ValueError, match="does not apply to head='prototypes'"):
        tuner(head="prototypes", sensitivity=0.25).fit(X, Y)


@pytest.mark.heavy
def test_the_cost_is_that_of_what_is_released():
    few = X[:200], Y[:200]
    model = tuner(head=GradientHead(n_steps=9)).fit(*few)
    assert model.privacy_event_.count == 9
    assert isinstance(model.privacy_event_.event, GaussianEvent)
    pure = tuner(delta=0.0).fit(*few)
    assert (pure.epsilon_, pure.delta_) == (pytest.approx(4.0), 0.0)
    assert pure.privacy_.relation == "add_remove"
    logistic = tuner(head="softmax", mechanism="logistic").fit(*few)
    assert isinstance(logistic.head_.mechanism(_task(logistic)), Logistic)


def _task(model):
    from skprivacy.fine_tuning.head import Task

    return Task(17, 10, model.epsilon, model.delta, model.relation, len(X), model.mechanism)


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"head": "gradient", "delta": 0.0}, "must be above 0 for head='gradient'"),
        ({"head": "gradient", "mechanism": "laplace"}, "does not fit head='gradient'"),
        ({"head": "softmax", "mechanism": "gaussian", "delta": 0.0}, "has no pure guarantee"),
        ({"head": "dpsgd"}, "public figure for the number of records"),
        ({"head": "dpsgd", "relation": "replace_one"}, "not supported by head='dpsgd'"),
        ({"head": "dpsgd", "mechanism": "laplace"}, "does not fit head='dpsgd'"),
        ({"head": "dpsgd", "delta": 0.0}, "must be above 0 for head='dpsgd'"),
        ({"head": NetworkHead(epochs=0), "relation": "zero_out"}, "epochs"),
        ({"head": NetworkHead(n_records=9), "relation": "zero_out"}, "Remove n_records"),
        ({"delta": 0.2}, r"delta=0\.2 must be far below"),
        ({"relation": "replace_one", "delta": 0.01}, "delta=0.01"),
        ({"head": "forest"}, "head"),
        ({"sensitivity": -1.0}, "sensitivity"),
        ({"encoder": object()}, "encoder"),
    ],
)
def test_impossible_settings_are_refused_before_any_charge(params, message):
    budget = PrivacyBudget(10.0, 1e-4)
    with pytest.raises(ValueError, match=message):
        tuner(**params, budget=budget).fit(X, Y)
    assert budget.spent() == 0


def test_wrong_numbers_of_heads_are_refused():
    for make in (
        lambda: GradientHead(n_steps=0),
        lambda: GradientHead(max_grad_norm=3.0),
        lambda: SoftmaxHead(-1.0),
        lambda: NetworkHead((0,)),
    ):
        with pytest.raises(ValueError, match=r"must (be|hold)"):
            make()


# ---------------------------------------------------------------- who calls it


def test_public_records_as_long_as_the_private_ones_are_not_cut():
    same = DIGITS[-len(X) :]
    cross_validate(tuner(Counting()), X, Y, cv=3, params={"X_public": PublicRecords(same)})
    assert Counting.seen == [len(same)]


@pytest.mark.heavy
def test_a_search_fits_an_unfitted_encoder_once_to_public_records():
    """Not once per fold, candidate or refit; only if its parameters change."""
    public = PublicRecords(PUBLIC)
    grid = {"epsilon": [1.0, 4.0], "head": ["prototypes", "softmax"]}
    search = GridSearchCV(tuner(Counting()), grid, cv=3).fit(X, Y, X_public=public)
    assert Counting.seen == [len(PUBLIC)]
    assert search.best_score_ > 0.5
    assert "the public records depend on no private record" in (
        search.best_estimator_.privacy_.assumptions
    )
    search.best_estimator_.fit(X, Y, X_public=PUBLIC)
    assert Counting.seen == [len(PUBLIC)] * 2, "records that are not wrapped keep no encoder"

    wider = GridSearchCV(tuner(PCA()), {"encoder__n_components": [2, 16]}, cv=2)
    wider.fit(X, Y, X_public=public)
    assert wider.best_params_ == {"encoder__n_components": 16}
    assert wider.best_estimator_.encoder_.components_.shape == (16, 64)
    alone = PCA(16).fit(PUBLIC)
    np.testing.assert_allclose(wider.best_estimator_.encoder_.components_, alone.components_)


@pytest.mark.heavy
def test_an_unfitted_encoder_where_no_public_records_can_be_passed_is_refused():
    """A sweep and shadow models have private records alone; the error says what to do."""
    budget = PrivacyBudget(10.0, 1e-4)
    model = tuner(Counting(), budget=budget)
    for call in (
        PrivacySweepCV(model, epsilons=[0.5, 8.0], cv=2).fit,
        ShadowPool(model, n_shadows=4, random_state=0).fit,
    ):
        with pytest.raises(
            ValueError, match=r"never fitted to the private X.*FrozenEstimator\(encoder\)"
        ):
            call(X, Y)
    assert set(Counting.seen) == {1}, "but for the one record of zeros that it is tried on"
    assert budget.spent() == 0
