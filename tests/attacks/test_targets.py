"""Any model that answers gives a score for each record, and the strong attacks work on it."""

import numpy as np
import pandas as pd
import pytest
from scipy.stats import norm
from sklearn.base import clone
from sklearn.cluster import DBSCAN, Birch, KMeans
from sklearn.datasets import make_blobs, make_classification, make_friedman1
from sklearn.decomposition import PCA
from sklearn.ensemble import (
    GradientBoostingRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
    VotingClassifier,
)
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LinearRegression, RidgeClassifier, SGDClassifier
from sklearn.mixture import GaussianMixture
from sklearn.multiclass import OneVsRestClassifier
from sklearn.multioutput import ClassifierChain, MultiOutputClassifier
from sklearn.neighbors import KernelDensity, KNeighborsRegressor
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC, LinearSVC, OneClassSVM
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor
from sklearn.utils.validation import has_fit_parameter

from skprivacy.accounting import ApproxDPEvent, PrivacyGuarantee
from skprivacy.attacks import (
    RMIA,
    LabeledRecords,
    LiRA,
    LossThreshold,
    ReferenceThreshold,
    ShadowPool,
    SignalThreshold,
    StrongestAttack,
    VulnerableRecordsAttack,
)
from skprivacy.attacks.membership.labeled_records import label_records
from skprivacy.audit import audit
from skprivacy.linear_model import FunctionalMechanismRegressor
from skprivacy.metrics.rates import auc_interval

pytestmark = pytest.mark.heavy

N = 200
X, y = make_classification(2 * N, n_features=40, n_informative=5, flip_y=0.3, random_state=0)
THREE = np.array(["ash", "elm", "oak"])[(X[:, 0] > 0).astype(int) + (y == 1)]
LABELS = np.column_stack([y, (X[:, 0] + X[:, 1] > 0) ^ (np.arange(2 * N) % 7 == 0), y ^ 1])
FRIEDMAN, WORTH = make_friedman1(2 * N, n_features=10, noise=3, random_state=0)
CLOUD = make_blobs(2 * N, n_features=20, centers=8, random_state=0)[0]
TREE = DecisionTreeClassifier(min_samples_leaf=2, random_state=0)

# The records, what is predicted of them, and a lower limit of the area under the curve: what a
# model tells of its records by nature.
TARGETS = {
    "regression forest": (RandomForestRegressor(20, random_state=0), FRIEDMAN, WORTH, 0.85),
    "regression boosting": (GradientBoostingRegressor(random_state=0), FRIEDMAN, WORTH, 0.8),
    "regression tree": (DecisionTreeRegressor(random_state=0), FRIEDMAN, WORTH, 0.99),
    "regression neighbours": (KNeighborsRegressor(3), FRIEDMAN, WORTH, 0.6),
    "two outputs": (
        RandomForestRegressor(20, random_state=0),
        FRIEDMAN,
        np.column_stack([WORTH, -(WORTH**2)]),
        0.75,
    ),
    "labels, forest": (RandomForestClassifier(20, random_state=0), X, LABELS, 0.9),
    "labels, one by one": (MultiOutputClassifier(TREE), X, LABELS, 0.7),
    "labels, one against the rest": (OneVsRestClassifier(TREE), X, LABELS, 0.7),
    "labels, margins": (OneVsRestClassifier(LinearSVC()), X, LABELS, 0.55),
    "labels, chain": (ClassifierChain(TREE), X, LABELS, 0.7),
    "margins of two classes": (SVC(C=10), X, y, 0.85),
    "margins of three classes": (SVC(C=10), X, THREE, 0.85),
    "linear margins": (LinearSVC(C=10), X, y, 0.55),
    "hinge": (make_pipeline(StandardScaler(), SGDClassifier(random_state=0)), X, THREE, 0.55),
    "ridge": (RidgeClassifier(alpha=0.1), X, y, 0.55),
    "kernel density": (KernelDensity(bandwidth=1.0), CLOUD, None, 0.9),
    "mixture": (GaussianMixture(8, reg_covar=0.1, random_state=0), CLOUD, None, 0.7),
    "one-class machine": (OneClassSVM(gamma=0.02, nu=0.2), CLOUD, None, 0.55),
    "clusters": (KMeans(60, n_init=1, random_state=0), CLOUD, None, 0.75),
    "subclusters": (make_pipeline(StandardScaler(), Birch(threshold=0.3)), CLOUD, None, 0.75),
}


def parts(records, truth):
    own, others = (None, None) if truth is None else (truth[:N], truth[N:])
    return records[:N], own, records[N:], others


@pytest.mark.everyday(2)
@pytest.mark.parametrize("name", TARGETS)
def test_an_audit_finds_what_a_model_tells(name):
    estimator, records, truth, least = TARGETS[name]
    model = clone(estimator).fit(*parts(records, truth)[:2])
    report = audit(model, *parts(records, truth), n_shadows=4, random_state=0)
    loss, strongest = report.findings
    assert strongest.result.auc > least
    assert strongest.result.auc_interval[0] > 0.5
    assert strongest.result.auc > loss.result.auc - 0.03
    assert not report.not_measured
    assert report.doubt == ""
    without_accuracy = not hasattr(model, "classes_")
    for text in (repr(report), report.to_html()):
        assert ("on new records" in text) != without_accuracy
        assert "nan %" not in text


@pytest.fixture(scope="module", params=["regression forest", "clusters", "labels, forest"])
def target(request):
    """A model, its shadow models, and the records of all."""
    estimator, records, truth, _ = TARGETS[request.param]
    model = clone(estimator).fit(*parts(records, truth)[:2])
    pool = ShadowPool(estimator, n_shadows=4, random_state=0).fit(records, truth)
    return model, pool, records, truth


@pytest.mark.parametrize("attack", [LiRA(), RMIA(online=True), ReferenceThreshold()])
def test_each_attack_works_by_itself(target, attack):
    model, pool, records, truth = target
    attack = clone(attack).set_params(target=model, pool=pool)
    labeled = label_records(records, truth)
    result = attack.fit(labeled).evaluate(labeled[:N], labeled[N:])
    assert result.auc > 0.7
    if not isinstance(attack, LiRA):  # whose variance is that of the records asked about
        one = attack.decision_function(labeled[:1])
        assert one == pytest.approx(result.scores_in[:1])


@pytest.mark.everyday(1)
@pytest.mark.parametrize("name", ["regression tree", "mixture", "margins of two classes"])
def test_models_of_other_records_tell_nothing(name):
    estimator, records, truth, _ = TARGETS[name]
    rng, misses = np.random.default_rng(0), 0
    for seed in range(4):
        order = rng.permutation(2 * N)
        rows, others = order[:240], order[240:]
        label = None if truth is None else truth[rows]
        target = clone(estimator).fit(records[others], None if truth is None else truth[others])
        pool = ShadowPool(estimator, n_shadows=4, random_state=seed).fit(records[rows], label)
        for attack in (LossThreshold(target), StrongestAttack(target, pool=pool, online=True)):
            attacked = label_records(records[rows], label)
            scores = attack.fit(attacked).decision_function(attacked)
            low, high = auc_interval(scores[:120], scores[120:])
            misses += not low <= 0.5 <= high
    assert misses <= 2  # of 8: the interval covers one half in 98%


def test_the_loss_of_a_regressor_is_its_residual():
    model = LinearRegression().fit(FRIEDMAN, WORTH)
    residual = -np.abs(WORTH - model.predict(FRIEDMAN))
    records = LabeledRecords(FRIEDMAN, WORTH)
    assert LossThreshold(model).fit(records).decision_function(records) == (pytest.approx(residual))


def test_the_mean_of_labels_is_that_of_their_probabilities():
    forest = RandomForestClassifier(20, random_state=0).fit(X, LABELS)
    by_label = forest.predict_proba(X)
    own = np.column_stack([by_label[k][np.arange(2 * N), LABELS[:, k]] for k in range(3)])
    mean = np.log(np.maximum(own, 1e-12)).mean(axis=1)
    records = LabeledRecords(X, LABELS)
    assert LossThreshold(forest).fit(records).decision_function(records) == pytest.approx(mean)


def test_a_density_of_zero_is_a_low_score():
    holes = KernelDensity(kernel="tophat", bandwidth=0.5).fit(CLOUD[:N])
    for attack in (LossThreshold(holes), RMIA(holes, pool=4, random_state=0)):
        assert attack.fit(CLOUD).evaluate(CLOUD[:N], CLOUD[N:]).auc > 0.99


def test_rules_of_the_loss_without_known_members():
    forest = RandomForestRegressor(20, random_state=0).fit(FRIEDMAN[:N], WORTH[:N])
    error = float(np.abs(WORTH[:N] - forest.predict(FRIEDMAN[:N])).mean())
    records = LabeledRecords(FRIEDMAN, WORTH)
    for attack in (LossThreshold(forest), LossThreshold(forest, training_loss=error)):
        called = attack.fit(records).predict(records)
        assert called[:N].mean() > called[N:].mean() + 0.2


@pytest.mark.parametrize(
    ("model", "truth", "error", "words"),
    [
        (LossThreshold(DBSCAN().fit(X)), None, TypeError, "DBSCAN must score single records"),
        (LossThreshold(LinearRegression()), y, NotFittedError, "not fitted"),
        (LossThreshold(LinearRegression().fit(X, y)), None, ValueError, "compare the residuals"),
        (LossThreshold(TREE.fit(X, y)), None, ValueError, "to compare the class probab"),
        (SignalThreshold(LinearRegression().fit(X, y)), y, TypeError, "returns residuals, or y"),
        (SignalThreshold(PCA().fit(X)), None, TypeError, "returns log-densities"),
        (VulnerableRecordsAttack(KMeans().fit(X)), None, TypeError, "returns distances"),
        (SignalThreshold(MLPClassifier(max_iter=2)), LABELS, TypeError, "returns label probabilit"),
        (LossThreshold(LinearRegression().fit(X, LABELS)), y, ValueError, "y has 1 values for"),
        (LossThreshold(TREE.fit(X, y)), y[:, None], ValueError, "one column for each label of y"),
        (LossThreshold(SVC().fit(X, y)), LABELS, ValueError, "decision_function returned shape"),
        (
            LossThreshold(VotingClassifier([("tree", TREE)]).fit(X, y)),
            y,
            TypeError,
            "must have predict_proba or decision_function",
        ),
        (
            LossThreshold(SVC(decision_function_shape="ovo").fit(X, np.arange(2 * N) % 5)),
            np.arange(2 * N) % 5,
            ValueError,
            "Use decision_function_shape='ovr'",
        ),
    ],
)  # fmt: skip
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_unusable_targets_are_named(model, truth, error, words):
    if isinstance(model.target, MLPClassifier):
        model.target.fit(X, LABELS)
    with pytest.raises(error, match=words):
        model.fit(label_records(X, truth))


def test_labels_may_be_objects_and_frames():
    told = []
    for label in (THREE, THREE.astype(object), pd.Series(THREE)):
        model = DecisionTreeClassifier(random_state=0).fit(X[:N], label[:N])
        attacks = [LossThreshold(), RMIA(pool=4, random_state=0)]
        report = audit(model, *parts(X, label), attacks=attacks, random_state=0)
        told.append([report.majority_share, *(f.result.auc for f in report.findings)])
    assert told[1:] == [told[0]] * 2


class Claiming(DecisionTreeRegressor):
    """A tree that memorises and claims epsilon = 0.1."""

    privacy_ = PrivacyGuarantee(ApproxDPEvent(0.1, 1e-6), at_delta=1e-6, relation="zero_out")


def test_claims_of_regressors_are_tested():
    scaled, worth = np.clip(FRIEDMAN, 0, 1), np.clip(WORTH, -10, 40)
    liar = Claiming(random_state=0).fit(scaled[:N], worth[:N])
    assert audit(liar, *parts(scaled, worth), n_shadows=4).verdict == "violated"
    honest = FunctionalMechanismRegressor(epsilon=1.0, bounds=(0, 1), target_bounds=(-10, 40)).fit(
        scaled[:N], worth[:N]
    )
    # The noise is fresh, so this alpha is how often it is accused, or doubted.
    report = audit(honest, *parts(scaled, worth), n_shadows=4, alpha=1e-8)
    assert report.verdict == "consistent"
    assert report.claimed_epsilon == pytest.approx(1.0)


class TestWeights:
    WEIGHTS = np.where(np.arange(2 * N) % 2, 5.0, 0.1)

    def test_shadow_models_are_trained_with_weights(self):
        plain = ShadowPool(TREE, n_shadows=2, random_state=0).fit(X, y)
        weighted = ShadowPool(TREE, n_shadows=2, random_state=0).fit(X, y, self.WEIGHTS)
        rows = np.flatnonzero(plain.membership(X)[0][0])
        for pool, weight in ((plain, None), (weighted, self.WEIGHTS[rows])):
            model = pool.estimators_[0]
            same = clone(model).fit(X[rows], y[rows], sample_weight=weight)
            assert (same.predict_proba(X) == model.predict_proba(X)).all()
        assert (plain.logits(X, y) != weighted.logits(X, y)).any()

    def test_a_pipeline_passes_weights_to_its_last_step(self):
        bare = ShadowPool(TREE, n_shadows=2, random_state=0).fit(X, y, self.WEIGHTS)
        piped = ShadowPool(make_pipeline(StandardScaler(), TREE), n_shadows=2, random_state=0)
        assert (piped.fit(X, y, self.WEIGHTS).logits(X, y) == bare.logits(X, y)).mean() > 0.95

    def test_an_audit_weighs_members_and_others(self):
        class Noting(DecisionTreeClassifier):
            noted = []

            def fit(self, records, truth, sample_weight=None):
                self.noted.append((records, sample_weight))
                return super().fit(records, truth, sample_weight)

        model = Noting(max_depth=6).fit(X[:N], y[:N], self.WEIGHTS[:N])
        Noting.noted.clear()
        audit(model, *parts(X, y), n_shadows=4, sample_weight=self.WEIGHTS)
        assert len(Noting.noted) == 4
        of = {row.tobytes(): weight for row, weight in zip(X, self.WEIGHTS, strict=True)}
        for records, weights in Noting.noted:
            assert weights.tolist() == [of[row.tobytes()] for row in records]

    def test_weights_are_part_of_a_saved_pool(self, tmp_path):
        ShadowPool(TREE, n_shadows=2, path=tmp_path).fit(X, y, self.WEIGHTS)
        ShadowPool(TREE, n_shadows=2, path=tmp_path).fit(X, y, self.WEIGHTS)
        with pytest.raises(ValueError, match="of other records, of another estimator"):
            ShadowPool(TREE, n_shadows=2, path=tmp_path).fit(X, y)

    @pytest.mark.parametrize(
        ("estimator", "weight", "words"),
        [
            (TREE, np.ones(3), r"sample_weight has shape \(3,\); expected one finite number"),
            (TREE, WEIGHTS * np.nan, "one finite number"),
            (KNeighborsRegressor(), WEIGHTS, "KNeighborsRegressor.fit takes none"),
        ],
    )
    def test_weights_that_cannot_be_used_are_named(self, estimator, weight, words):
        with pytest.raises(ValueError, match=words):
            ShadowPool(estimator, n_shadows=2).fit(X, y, weight)

    def test_stacked_training_takes_no_weights(self):
        net = MLPClassifier((4,), max_iter=2)
        takes_weights = has_fit_parameter(net, "sample_weight")  # from scikit-learn 1.7 on
        words = "and neither sample_weight nor groups" if takes_weights else "fit takes none"
        with pytest.raises(ValueError, match=words):
            ShadowPool(net, n_shadows=2, stacked=True).fit(X, y, self.WEIGHTS)


def test_halves_do_not_depend_on_what_is_predicted():
    """Classes must be in both halves; numbers have none."""
    rare = np.r_[np.ones(1), np.zeros(2 * N - 1)]
    pool = ShadowPool(LinearRegression(), n_shadows=2, random_state=0).fit(X, rare)
    assert pool.classes_ is None
    with pytest.raises(ValueError, match="class that is too rare"):
        ShadowPool(TREE, n_shadows=2, random_state=0).fit(X, rare)


def test_log_odds_of_a_score_are_standard_normal_where_it_is():
    class Normal(LinearRegression):
        def predict(self, records):
            return np.zeros(len(records))

    worth = np.abs(norm.ppf((np.arange(2 * N) + 0.5) / (2 * N)))
    pool = ShadowPool(Normal(), n_shadows=2, random_state=0).fit(X, worth)
    low, centre, high = np.quantile(pool.logits(X, worth), [0.25, 0.5, 0.75])
    assert centre == pytest.approx(0, abs=1e-9)
    assert high - low == pytest.approx(1.349)
