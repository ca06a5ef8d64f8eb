"""The functional mechanism beyond its sensitivities: what it fits, claims and refuses."""

import math

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import load_diabetes
from sklearn.linear_model import LinearRegression, LogisticRegression

from skprivacy import config_context
from skprivacy.accounting import events
from skprivacy.exceptions import PrivacyLeakWarning, PrivacyWarning
from skprivacy.linear_model import (
    AdaSSPRegressor,
    FunctionalMechanismClassifier,
    FunctionalMechanismRegressor,
    ObjectivePerturbationClassifier,
    OutputPerturbationClassifier,
)

LOWER, UPPER = np.array([0.0, -1.0, 5.0]), np.array([1.0, 10.0, 5.5])
REGRESSORS = [FunctionalMechanismRegressor, AdaSSPRegressor]
CLASSIFIERS = [
    FunctionalMechanismClassifier,
    ObjectivePerturbationClassifier,
    OutputPerturbationClassifier,
]


def regression_data(n=3000, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(LOWER, UPPER, size=(n, 3))
    y = 3 * X[:, 0] - 0.4 * X[:, 1] + 2 * (X[:, 2] - 5) + 0.3 * rng.normal(size=n)
    return X, y


def classification_data(n=3000, k=2, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(LOWER, UPPER, size=(n, 3))
    Z = (X - LOWER) / (UPPER - LOWER)
    return X, np.argmax(Z[:, :k] @ (3 * np.eye(min(k, 3), k)) + rng.gumbel(size=(n, k)) / 2, 1)


def regressor(kind=FunctionalMechanismRegressor, **params):
    return kind(**{"bounds": (LOWER, UPPER), "target_bounds": (-5, 5), **params})


def classifier(kind=FunctionalMechanismClassifier, k=2, **params):
    return kind(**{"bounds": (LOWER, UPPER), "classes": range(k), **params})


# ---------------------------------------------------------------- without noise


@pytest.mark.parametrize("kind", REGRESSORS)
@pytest.mark.parametrize("fit_intercept", [True, False])
def test_without_noise_it_is_least_squares(kind, fit_intercept):
    X, y = regression_data()
    if not fit_intercept:  # the constant that is left out is the middle of the bounds
        y = y - y.mean()
    model = regressor(kind, epsilon=np.inf, radius=3, fit_intercept=fit_intercept).fit(X, y)
    centred = X - (LOWER + UPPER) / 2
    ordinary = LinearRegression(fit_intercept=fit_intercept).fit(centred, y)
    np.testing.assert_allclose(model.coef_, ordinary.coef_, rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(model.predict(X), ordinary.predict(centred), atol=1e-2)
    assert model.privacy_event_ == events.NonPrivateEvent()
    assert math.isinf(model.epsilon_)


def test_weighting_keeps_the_fit_unbiased():
    """Records beyond the radius count less; the coefficients stay those of the data."""
    X, y = regression_data(20_000)
    whole = regressor(epsilon=np.inf, radius=3).fit(X, y)
    weighted = regressor(epsilon=np.inf, radius=0.5).fit(X, y)
    np.testing.assert_allclose(weighted.coef_, whole.coef_, rtol=0.05)


def test_without_noise_binary_is_the_parabola_through_the_logistic_loss():
    X, y = classification_data()
    model = classifier(epsilon=np.inf, radius=3).fit(X, y)
    design = np.column_stack([X - (LOWER + UPPER) / 2, np.ones(len(X))])
    # argmin sum (1/2 - y) t + t**2 / 8: least squares for 4 (y - 1/2)
    solution = np.linalg.lstsq(design, 4 * (y - 0.5), rcond=None)[0]
    np.testing.assert_allclose(model.coef_[0], solution[:3], rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize("k", [2, 3])
def test_without_noise_it_classifies_as_logistic_regression_does(k):
    X, y = classification_data(k=k)
    plain = LogisticRegression().fit((X - LOWER) / (UPPER - LOWER), y)
    reference = plain.score((X - LOWER) / (UPPER - LOWER), y)
    for kind in CLASSIFIERS:
        model = classifier(kind, k, epsilon=np.inf).fit(X, y)
        assert model.score(X, y) > reference - 0.01
        assert model.coef_.shape == ((1, 3) if k == 2 else (k, 3))


def test_two_classes_given_as_three_agree():
    """The multinomial expansion with an empty third class decides as the binary one."""
    X, y = classification_data()
    two = classifier(epsilon=np.inf).fit(X, y)
    three = classifier(k=3, epsilon=np.inf).fit(X, y)
    assert (two.predict(X) == three.predict(X)).mean() > 0.999


# ---------------------------------------------------------------- with noise


@pytest.mark.heavy
@pytest.mark.parametrize("kind", REGRESSORS)
def test_more_privacy_more_noise_and_never_far_below_the_midpoint(kind):
    X, y = regression_data(400)
    scores = {
        epsilon: np.median(
            [regressor(kind, epsilon=epsilon, delta=1e-6).fit(X, y).score(X, y) for _ in range(15)]
        )
        for epsilon in (1e-4, 0.5, 50.0)
    }
    midpoint = 1 - (y**2).mean() / y.var()
    assert scores[50.0] > 0.9
    assert scores[50.0] > scores[0.5] > scores[1e-4]
    if kind is FunctionalMechanismRegressor:
        assert scores[1e-4] > midpoint - 0.05


@pytest.mark.heavy
@pytest.mark.parametrize("kind", CLASSIFIERS)
@pytest.mark.parametrize("k", [2, 3])
@pytest.mark.parametrize("delta", [0.0, 1e-6])
def test_private_classification_is_useful(kind, k, delta):
    X, y = classification_data(20_000, k=k)
    # The noise of a perturbed output is 1 / (4 alpha), however many records there are.
    params = {"alpha": 5.0} if kind is OutputPerturbationClassifier else {}
    model = classifier(kind, k, epsilon=2.0, delta=delta, **params).fit(X, y)
    best = classifier(kind, k, epsilon=np.inf).fit(X, y).score(X, y)
    assert model.score(X, y) > best - 0.06
    proba = model.predict_proba(X)
    assert proba.shape == (20_000, k)
    np.testing.assert_allclose(proba.sum(axis=1), 1.0)
    assert (model.classes_[proba.argmax(axis=1)] == model.predict(X)).all()


@pytest.mark.heavy
@pytest.mark.filterwarnings("ignore:.*noise_seed:skprivacy.exceptions.PrivacyWarning")
def test_where_noise_hides_the_features_the_mean_is_predicted():
    """Wide bounds; the middle of the target's scores -0.19, as the regularised constant did."""
    X, y = load_diabetes(return_X_y=True)
    model = FunctionalMechanismRegressor(bounds=(-0.2, 0.2), target_bounds=(25, 346))
    scores = [clone(model).set_params(noise_seed=i).fit(X, y).score(X, y) for i in range(50)]
    assert np.median(scores) > 0
    assert np.quantile(scores, 0.1) > -0.1
    everything_is_noise = clone(model).set_params(epsilon=1e-4)
    scores = [everything_is_noise.set_params(noise_seed=i).fit(X, y).score(X, y) for i in range(50)]
    assert np.median(scores) == pytest.approx(1 - np.mean((y - 185.5) ** 2) / y.var())


# ---------------------------------------------------------------- the guarantee


def everyone():
    X, y = regression_data(60)
    for kind in REGRESSORS:
        yield regressor(kind, epsilon=0.8, delta=1e-6), X, y
    yield regressor(epsilon=0.8), X, y
    for kind in CLASSIFIERS:
        for delta in (0.0, 1e-6):
            yield classifier(kind, epsilon=0.8, delta=delta), *classification_data(60)


@pytest.mark.parametrize(
    "case", list(everyone()), ids=lambda c: f"{type(c[0]).__name__}-{c[0].delta}"
)
class TestEveryone:
    def test_fits_differ_and_a_seed_voids_the_guarantee(self, case):
        model, X, y = case
        X, y = np.repeat(X, 50, axis=0), np.repeat(y, 50)  # else all may be noise, and shrink to 0
        first, second = (clone(model).fit(X, y).coef_ for _ in range(2))
        assert (first != second).all()
        with pytest.warns(PrivacyWarning, match="noise_seed=3"):
            seeded = [clone(model).set_params(noise_seed=3).fit(X, y) for _ in range(2)]
        np.testing.assert_array_equal(seeded[0].coef_, seeded[1].coef_)
        assert seeded[0].privacy_.kind == "estimate"

    def test_odd_records_are_taken_in_silence(self, case):
        """An error or a warning would reveal a record, or that no other label occurs."""
        model, X, y = case
        for bad in (np.nan, np.inf, -np.inf, 1e300):
            dirty = X.copy()
            dirty[0, 1] = bad
            assert np.isfinite(clone(model).fit(dirty, y).coef_).all()
        for rows, target in ((X, np.full_like(y, y[0])), (X[:1], y[:1])):
            assert np.isfinite(clone(model).fit(rows, target).coef_).all()

    def test_data_read_off_is_confessed(self, case):
        model, X, y = case
        with pytest.warns(PrivacyLeakWarning, match="bounds=None"):
            fitted = clone(model).set_params(bounds=None).fit(X, y)
        assert any("bounds" in a for a in fitted.privacy_.assumptions)
        with config_context(strict=True), pytest.raises(ValueError, match="bounds=None"):
            clone(model).set_params(bounds=None).fit(X, y)

    @pytest.mark.heavy
    @pytest.mark.parametrize(
        ("params", "named"),
        [
            ({"epsilon": 0}, "epsilon"),
            ({"delta": 1.0}, "delta"),
            ({"delta": 0.9}, r"delta=0\.9 must be far below"),
            ({"bounds": (1, 0)}, "bounds="),
            ({"bounds": ([0, 0], [1, 1])}, "bounds="),
            ({"bounds": ([0], [1])}, "sequences of length 3"),
            ({"bounds": (0, [1])}, "sequences of length 3"),
            ({"bounds": ([[0, 0, 0]], [[1, 1, 1]])}, "sequences of length 3"),
            ({"bounds": (-1e308, 1e308)}, "bounds="),
            ({"bounds": (0, 5e-324)}, "bounds="),
            ({"bounds": (0, np.inf)}, "bounds="),
            ({"bounds": (0, 1, 2)}, "bounds="),
            ({"radius": 0.0}, "radius"),
            ({"relation": "substitute"}, "relation"),
            ({"noise_seed": "x"}, "noise_seed"),
        ],
    )
    def test_bad_parameters_are_named(self, case, params, named):
        model, X, y = case
        with pytest.raises(ValueError, match=named):
            clone(model).set_params(**params).fit(X, y)

    def test_odd_records_are_predicted_or_refused(self, case):
        model, X, y = case
        lower, upper = LOWER.copy(), UPPER.copy()
        lower[1] = upper[1] = 3.0
        constant = clone(model).set_params(bounds=(lower, upper)).fit(X, y)
        assert not np.atleast_2d(constant.coef_)[:, 1].any()
        fitted = clone(model).fit(X, y)
        with pytest.raises(ValueError, match="infinity"):
            fitted.predict(np.full((1, 3), np.inf))
        middle = fitted.predict((LOWER + UPPER)[None] / 2)
        np.testing.assert_array_equal(fitted.predict(np.full((1, 3), np.nan)), middle)
        assert len(fitted.predict(np.array([[1e308, -1e308, 1e308], [-1e308] * 3]))) == 2


def test_replace_one_delta_must_be_below_one_over_n():
    X, y = regression_data(60)
    with pytest.raises(ValueError, match="1/n"):
        regressor(delta=0.05, relation="zero_out").fit(X, y)


def test_labels():
    X, y = classification_data(200)
    names = np.array(["no", "yes"])[y]
    model = classifier(classes=["yes", "no"]).fit(X, names)
    assert model.classes_.tolist() == ["no", "yes"]
    assert set(model.predict(X)) <= {"no", "yes"}
    with pytest.raises(ValueError, match="not in classes"):
        classifier(classes=["yes", "maybe"]).fit(X, names)
    with pytest.raises(ValueError, match="at least two classes"):
        classifier(classes=["yes"]).fit(X, names)
    with pytest.warns(PrivacyLeakWarning, match="classes=None"):
        assert classifier(classes=None).fit(X, names).privacy_.assumptions


@pytest.mark.parametrize("kind", REGRESSORS)
def test_targets_that_are_no_numbers_are_refused(kind):
    X, y = regression_data(20)
    for strange in (np.where(y > 0, "a", "b"), np.where(y > 0, "a", "b").astype(object)):
        with pytest.raises(ValueError, match="holds text or dates"):
            regressor(kind, delta=1e-6).fit(X, strange)


def test_target_bounds():
    X, y = regression_data(200)
    with pytest.warns(PrivacyLeakWarning, match="target_bounds=None"):
        model = regressor(target_bounds=None).fit(X, y)
    assert model.target_bounds_ == (y.min(), y.max())
    assert model.predict(X).max() <= y.max()
    with pytest.raises(ValueError, match="nothing to learn"):
        regressor(target_bounds=(1, 1)).fit(X, y)
    clipped = regressor(epsilon=np.inf).fit(X, np.where(y > 1, 1e9, y))
    assert (clipped.predict(X) <= 5).all()


# ---------------------------------------------------------------- path and other losses


def test_the_path_is_free_and_ends_where_it_should():
    X, y = regression_data()
    model = regressor(epsilon=1.0, alpha=0.3).fit(X, y)
    event = model.privacy_event_
    coefs, intercepts = model.regularization_path([0.0, 0.3, 1e9])
    np.testing.assert_allclose(coefs[1], model.coef_)
    np.testing.assert_allclose(intercepts[1], model.intercept_)
    assert np.abs(coefs[2]).max() < 1e-6
    assert intercepts[2] == pytest.approx(0.0, abs=1e-6)  # the middle of target_bounds
    assert model.privacy_event_ is event
    many = classifier(k=3).fit(*classification_data(k=3))
    coefs, intercepts = many.regularization_path([1.0, 2.0])
    assert coefs.shape == (2, 3, 3)
    assert intercepts.shape == (2, 3)
    np.testing.assert_allclose(coefs[0], many.coef_)
    for bad in ([], [-1.0], [np.nan], 1.0):
        with pytest.raises(ValueError, match="alphas="):
            model.regularization_path(bad)
