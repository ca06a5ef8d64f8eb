"""check_disclosure(): what a model's structure discloses is found, and nothing else."""

import json
import threading
from collections import Counter

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import sparse
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.calibration import CalibratedClassifierCV
from sklearn.cluster import DBSCAN, KMeans
from sklearn.compose import make_column_transformer
from sklearn.datasets import make_classification
from sklearn.ensemble import (
    AdaBoostClassifier,
    BaggingClassifier,
    GradientBoostingClassifier,
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
    RandomForestClassifier,
    VotingClassifier,
)
from sklearn.exceptions import NotFittedError
from sklearn.frozen import FrozenEstimator
from sklearn.gaussian_process import GaussianProcessClassifier, GaussianProcessRegressor
from sklearn.impute import KNNImputer
from sklearn.isotonic import IsotonicRegression
from sklearn.linear_model import LinearRegression, LogisticRegression, Ridge
from sklearn.model_selection import GridSearchCV
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KernelDensity, KNeighborsClassifier
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import (
    KBinsDiscretizer,
    OneHotEncoder,
    OrdinalEncoder,
    QuantileTransformer,
    StandardScaler,
)
from sklearn.svm import SVC, SVR, LinearSVC, NuSVC, OneClassSVM
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

from skprivacy import audit, check_disclosure
from skprivacy.accounting import ApproxDPEvent, PrivacyGuarantee
from skprivacy.accounting.events import NonPrivateEvent
from skprivacy.attacks import LossThreshold
from skprivacy.audit.inspection import disclosure, stored_records
from skprivacy.audit.inspection.disclosure_report import SIGNS, DisclosureReport
from skprivacy.linear_model import OutputPerturbationClassifier

pytestmark = pytest.mark.heavy

X_all, y_all = make_classification(400, n_features=6, flip_y=0.2, random_state=0)
X, y, X_test, y_test = X_all[:200], y_all[:200], X_all[200:], y_all[200:]
NOISE = np.random.default_rng(0).integers(0, 2, 400)


def stored(model, records=X, labels=y, new=X_test):
    return check_disclosure(model, records, labels, new)["stored records"]


class Keeper(ClassifierMixin, BaseEstimator):
    """Keeps the records in a form that ``keep`` makes of them."""

    def __init__(self, keep=np.copy):
        self.keep = keep

    def fit(self, X, y):
        self.classes_ = np.unique(y)
        self.kept_ = self.keep(np.asarray(X))
        return self

    def predict(self, X):
        return np.full(len(X), self.classes_[0])


class Unpicklable:
    def __init__(self, X):
        self.lock, self.rows = threading.Lock(), X

    def __reduce_ex__(self, protocol):
        raise TypeError("cannot be pickled")


class Slotted:
    __slots__ = ("rows",)

    def __init__(self, X):
        self.rows = X


scaled = make_pipeline(StandardScaler(), KNeighborsClassifier())

CARRIERS = {
    "kNN": (KNeighborsClassifier(), 200),
    "density, in a compiled tree": (KernelDensity(), 200),
    "Gaussian process": (GaussianProcessRegressor(), 200),
    "Gaussian process, classes": (GaussianProcessClassifier(), 200),
    "clusters": (DBSCAN(eps=10.0), 200),
    "pipeline": (scaled, 200),
    "search": (GridSearchCV(scaled, {"kneighborsclassifier__weights": ["uniform"]}, cv=2), 200),
    "vote": (VotingClassifier([("a", LogisticRegression()), ("b", scaled)]), 200),
    "bagging of columns": (
        BaggingClassifier(scaled, max_features=0.5, bootstrap=False, n_estimators=2),
        200,
    ),
    "calibrated": (CalibratedClassifierCV(scaled, cv=2), 200),
    "imputer": (make_pipeline(KNNImputer(), StandardScaler(), LogisticRegression()), 200),
    "columns": (
        make_pipeline(make_column_transformer((StandardScaler(), [0, 3, 5])), scaled),
        200,
    ),
    "unknown": (Keeper(), 200),
    "float32": (Keeper(lambda X: X.astype(np.float32)), 200),
    "transposed": (Keeper(lambda X: X.T.copy()), 200),
    "flat": (Keeper(np.ravel), 200),
    "with labels beside": (Keeper(lambda X: [(row, 1) for row in X]), 200),
    "list of lists": (Keeper(lambda X: X.tolist()), 200),
    "dict of rows": (Keeper(lambda X: dict(enumerate(X[:50]))), 50),
    "frame": (Keeper(pd.DataFrame), 200),
    "sparse": (Keeper(sparse.csc_matrix), 200),
    "torch": (Keeper(lambda X: torch.nn.ParameterList([torch.tensor(X)])), 200),
    "not to be pickled": (Keeper(Unpicklable), 200),
    "slots": (Keeper(Slotted), 200),
}  # fmt: skip


@pytest.mark.everyday(8)
@pytest.mark.parametrize("name", CARRIERS)
def test_records_inside_a_model_are_found(name):
    model, n = CARRIERS[name]
    found = stored(model.fit(X, y))
    assert (found.flagged, found.value) == (True, n)


@pytest.mark.parametrize("model", [SVC(), NuSVC(), SVR(), OneClassSVM()], ids=repr)
def test_support_vectors_are_records(model):
    found = stored(model.fit(X, y))
    assert found.value == len(model.support_vectors_)
    assert f"{type(model).__name__}.support_vectors_" in found.says


@pytest.mark.parametrize(
    "model",
    [
        LogisticRegression(), LinearSVC(), GaussianNB(), MLPClassifier((5,), max_iter=5),
        DecisionTreeClassifier(), RandomForestClassifier(20), GradientBoostingClassifier(),
        HistGradientBoostingClassifier(), AdaBoostClassifier(), KMeans(3),
        make_pipeline(StandardScaler(), Ridge()),
        GridSearchCV(DecisionTreeClassifier(), {"max_depth": [2, None]}, cv=2),
    ],
    ids=lambda model: type(model).__name__,
)  # fmt: skip
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_models_without_records_are_not_accused(model):
    found = stored(model.fit(X, y))
    assert (found.flagged, found.value) == (False, 0)


def test_records_of_text_and_sparse_records_are_found():
    table = pd.DataFrame({"name": [f"n{i}" for i in range(40)], "age": np.arange(40.0)})
    keeper = Keeper(lambda X: X).fit(table, y[:40])
    assert stored(keeper, table, y[:40], None).value == 40
    encoder = make_pipeline(OneHotEncoder(handle_unknown="ignore"), KNeighborsClassifier())
    assert stored(encoder.fit(table, y[:40]), table, y[:40], table).value == 40
    rows = sparse.random(60, 30, density=0.3, random_state=0, format="csr")
    assert stored(SVC(C=1e-3).fit(rows, y[:60]), rows, y[:60], None).value > 40


def test_one_column_is_found_where_the_model_keeps_most_of_it():
    isotonic = IsotonicRegression().fit(X[:, 0], y)
    for new in (X_test[:, :1], None):
        found = stored(isotonic, X[:, :1], y, new)
        assert found.value == len(isotonic.X_thresholds_) > 2
    tree = DecisionTreeClassifier(max_depth=3).fit(X[:, :1], y)
    assert stored(tree, X[:, :1], y, X_test[:, :1]).value == 0


def test_rows_that_many_share_are_not_counted():
    few = np.random.default_rng(0).integers(0, 2, (400, 3)).astype(float)
    model = Keeper().fit(few[:200], y)  # eight kinds of records
    assert stored(model, few[:200], y, few[200:]).value == 0


CODES = [
    RandomForestClassifier(20, random_state=0),
    GradientBoostingClassifier(n_estimators=20, random_state=0),
    HistGradientBoostingClassifier(random_state=0),
    KMeans(20, random_state=0),
    GaussianNB(),
    make_pipeline(OneHotEncoder(handle_unknown="ignore"), LogisticRegression()),
    make_pipeline(OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=-1), Ridge()),
    make_pipeline(KBinsDiscretizer(5, strategy="uniform"), Ridge()),
    make_pipeline(QuantileTransformer(n_quantiles=100), LogisticRegression()),
]


@pytest.mark.everyday(1)
@pytest.mark.parametrize(
    ("width", "values"), [(1, 100), (2, 50), (2, 300), (3, 20), (3, 100), (5, 4), (8, 2), (4, 1000)]
)
@pytest.mark.filterwarnings("ignore:Bins whose width")
def test_whole_numbers_that_arrays_hold_by_chance_are_no_records(width, values):
    """Labels, codes and the nodes of trees hold many small numbers, as these tables do."""
    rng = np.random.default_rng(0)
    table, labels = rng.integers(0, values, (1000, width)).astype(float), rng.integers(0, 2, 1000)
    for model in CODES:
        found = stored(model.fit(table, labels), table, labels, None)
        assert found.value == 0, (model, found.says)
    if width > 1:
        neighbours = KNeighborsClassifier().fit(table, labels)
        assert stored(neighbours, table, labels, None).flagged


def test_planted_trust_in_every_match_is_caught(monkeypatch):
    monkeypatch.setattr(stored_records._Chance, "explains", lambda *arguments: False)
    with pytest.raises(AssertionError):
        test_whole_numbers_that_arrays_hold_by_chance_are_no_records(2, 50)


def test_a_buffer_with_other_rows_is_found():
    others = np.random.default_rng(0).normal(size=(1000, 6))
    assert stored(Keeper(lambda X: np.concatenate([X[:150], others])).fit(X, y)).value == 150


def test_planted_blindness_for_what_pipelines_pass_on_is_caught(monkeypatch):
    monkeypatch.setattr(stored_records, "_view_all", lambda X, parts: iter([X]))
    with pytest.raises(AssertionError):
        test_records_inside_a_model_are_found("pipeline")


def test_planted_blindness_for_compiled_classes_is_caught(monkeypatch):
    def attributes_alone(self, value):
        return list, ([getattr(value, "__dict__", None)],)

    monkeypatch.setattr(stored_records._Collector, "reducer_override", attributes_alone)
    with pytest.raises(AssertionError):
        test_records_inside_a_model_are_found("density, in a compiled tree")


def test_a_class_that_predicts_in_context_is_known_by_its_name():
    class TabPFNClassifier(Keeper):
        pass

    model = TabPFNClassifier(lambda X: bytes(X)).fit(X, y)
    found = stored(make_pipeline(StandardScaler(), model).fit(X, y))
    assert found.flagged
    assert "TabPFNClassifier predicts from the training records" in found.says


def test_private_models_hold_no_records_and_their_claim_is_told():
    model = OutputPerturbationClassifier(epsilon=1.0, bounds=(-3, 3), classes=[0, 1]).fit(X, y)
    report = check_disclosure(model, X, y, X_test, y_test)
    assert report["stored records"].value == 0
    assert "1.00-DP" in report.claim
    assert "1.00-DP" in repr(report)
    assert check_disclosure(LogisticRegression().fit(X, y), X, y).claim == "none"


def test_records_in_a_model_that_claims_to_hide_them_are_told():
    model = OutputPerturbationClassifier(epsilon=1.0, bounds=(-3, 3), classes=[0, 1]).fit(X, y)
    model.kept_ = X[:20].copy()
    says = check_disclosure(model, X, y)["stored records"].says
    assert says.startswith("20 of 200 training records are stored in ")
    assert says.endswith(" rules out unless they are public or coincidences")


def test_many_fitted_numbers_are_no_reproach_to_a_private_model():
    """Networks have them, and the sign stood without a word under a verdict of "consistent"."""
    private = OutputPerturbationClassifier(epsilon=1.0, bounds=(-3, 3), classes=[0, 1]).fit(X, y)
    for model, more in (
        (private, "; so many could hold every record, but a proved claim limits what they reveal"),
        (LogisticRegression().fit(X, y), "; so many could hold every record"),
    ):
        says = check_disclosure(model, X[:9])["degrees of freedom"].says
        assert says.startswith(f"9 records minus 7 fitted numbers leave 2{more}")
        assert says.endswith("reveal" if model is private else "record")
        few = check_disclosure(model, X[:9])
        assert ("degrees of freedom" in few.flagged) is (model is not private)
        enough = check_disclosure(model, X)["degrees of freedom"].says
        assert enough == "200 records minus 7 fitted numbers leave 193"


def test_a_claim_without_a_proof_does_not_excuse_many_fitted_numbers():
    model = LogisticRegression().fit(X, y)
    model.privacy_ = PrivacyGuarantee(ApproxDPEvent(1.0), kind="estimate")
    assert "degrees of freedom" in check_disclosure(model, X[:9]).flagged
    model.privacy_ = PrivacyGuarantee(NonPrivateEvent())
    assert "degrees of freedom" in check_disclosure(model, X[:9]).flagged
    model.privacy_ = PrivacyGuarantee(ApproxDPEvent(1.0))
    checks = check_disclosure(model, X[:9])
    assert "degrees of freedom" not in checks.flagged
    assert "? degrees" not in repr(checks)
    assert "! degrees of freedom" not in repr(checks)
    report = audit(model, X[:9], y[:9], X[9:], y[9:], claim=1.0, attacks=[LossThreshold()])
    assert "degrees of freedom" in report.disclosure.flagged  # a passed claim is not proved


@pytest.mark.parametrize(
    "make",
    [
        lambda n: DecisionTreeClassifier(min_samples_leaf=n),
        lambda n: DecisionTreeRegressor(min_samples_leaf=n),
        lambda n: RandomForestClassifier(5, min_samples_leaf=n, bootstrap=False),
        lambda n: GradientBoostingClassifier(n_estimators=5, min_samples_leaf=n),
        lambda n: HistGradientBoostingClassifier(max_iter=5, min_samples_leaf=n),
        lambda n: HistGradientBoostingRegressor(max_iter=5, min_samples_leaf=n),
        lambda n: make_pipeline(StandardScaler(), DecisionTreeClassifier(min_samples_leaf=n)),
        lambda n: CalibratedClassifierCV(
            FrozenEstimator(DecisionTreeClassifier(min_samples_leaf=n).fit(X, NOISE[:200]))
        ),
    ],
)
def test_small_leaves_are_found_at_any_depth(make):
    for least in (10, 3):
        found = check_disclosure(make(least).fit(X, NOISE[:200]), X)["smallest leaf"]
        assert least <= found.value < least + 8
        assert found.flagged is (least < 10)
    loose = check_disclosure(make(3).fit(X, NOISE[:200]), X, min_records=3)["smallest leaf"]
    assert loose.flagged is False


def test_leaves_are_counted_as_the_model_learned_them():
    tree = DecisionTreeClassifier(random_state=0).fit(X, y)
    assert sorted(disclosure.leaf_sizes([tree])) == sorted(Counter(tree.apply(X)).values())


def test_groups_of_equal_predictions_are_counted():
    tree = DecisionTreeClassifier(max_depth=4, random_state=0).fit(X, y)
    proba = [tuple(row) for row in tree.predict_proba(X)]
    sizes = Counter(proba)
    report = check_disclosure(tree, X, y)
    assert report["k-anonymity"].value == min(sizes.values())
    labels = {p: {label for q, label in zip(proba, y, strict=True) if q == p} for p in sizes}
    told = [max(p) == 1 or (sizes[p] > 1 and len(labels[p]) == 1) for p in proba]
    assert 0 < report["class disclosure"].value == sum(told)


def test_predictions_that_vary_form_no_groups():
    report = check_disclosure(LogisticRegression().fit(X, y), X, y)
    assert report["k-anonymity"].flagged is None
    assert report["class disclosure"].value == 0
    twice = np.r_[X, X[:5]], np.r_[y, y[:5]]  # equal rows have equal predictions
    assert not check_disclosure(LogisticRegression().fit(*twice), *twice).flagged
    assert check_disclosure(DecisionTreeRegressor().fit(X, X[:, 0]), X)["k-anonymity"].value == 1


@pytest.mark.parametrize(
    ("model", "parameters"),
    [
        (LinearRegression(), 7),
        (LogisticRegression(), 7),
        (make_pipeline(StandardScaler(), LogisticRegression()), 7),
        (GaussianNB(), 24),
        (MLPClassifier((5,), max_iter=5), 6 * 5 + 5 + 5 + 1),
        (DecisionTreeClassifier(max_leaf_nodes=4), 3 + 4),
        (RandomForestClassifier(2, max_leaf_nodes=4), 2 * (3 + 4)),
        (HistGradientBoostingClassifier(max_iter=3, max_leaf_nodes=4), 3 * (3 + 4)),
        (GridSearchCV(Ridge(), {"alpha": [1.0, 2.0]}, cv=2), 7),
        (VotingClassifier([("a", LogisticRegression()), ("b", LogisticRegression(C=2))]), 14),
        (Keeper(lambda X: torch.nn.Sequential(torch.nn.Linear(6, 3), torch.nn.Linear(3, 2))), 29),
    ],
    ids=lambda value: type(value).__name__,
)
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_degrees_of_freedom_are_records_minus_parameters(model, parameters):
    found = check_disclosure(model.fit(X, y), X)["degrees of freedom"]
    assert found.value == 200 - parameters
    few = check_disclosure(model, X[: parameters + 9])["degrees of freedom"]
    assert few.flagged
    assert not check_disclosure(model, X[: parameters + 10])["degrees of freedom"].flagged


def test_a_bare_torch_module_is_looked_into():
    module = torch.nn.Linear(6, 2)
    module.register_buffer("memory", torch.tensor(X[:30]))
    report = check_disclosure(module, X, y)
    assert report["stored records"].value == 30
    assert report["degrees of freedom"].value == 200 - 14
    assert report["k-anonymity"].flagged is None


def test_leaves_of_three_classes_hold_two_numbers():
    tree = DecisionTreeClassifier(max_leaf_nodes=4).fit(X, np.arange(200) % 3)
    assert disclosure.n_parameters([tree]) == 3 + 4 * 2


def test_the_error_gap_is_that_of_accuracies():
    tree = DecisionTreeClassifier(random_state=0).fit(X, NOISE[:200])
    found = check_disclosure(tree, X, NOISE[:200], X_test, NOISE[200:])["error gap"]
    assert found.value == pytest.approx(1 - tree.score(X_test, NOISE[200:]))
    assert found.flagged
    column = check_disclosure(tree, X, NOISE[:200], X_test, NOISE[200:, None])["error gap"]
    assert column.value == found.value  # as with a frame of one column
    shallow = DecisionTreeClassifier(max_depth=1).fit(X, y)
    assert check_disclosure(shallow, X, y, X_test, y_test)["error gap"].flagged is False
    regressor = DecisionTreeRegressor(random_state=0).fit(X, X[:, 0] + NOISE[:200])
    parts = X, X[:, 0] + NOISE[:200], X_test, X_test[:, 0] + NOISE[200:]
    assert check_disclosure(regressor, *parts)["error gap"].flagged
    few = check_disclosure(tree, X[:3], NOISE[:3], X_test[:3], 1 - tree.predict(X_test[:3]))
    assert few["error gap"].value == 1
    assert not few["error gap"].flagged  # three records show nothing


def test_results_are_plain_and_escaped():
    class Odd(Keeper):
        def __repr__(self):
            return "<script>"

    report = check_disclosure(Odd().fit(X, y), X, y, X_test, y_test)
    told = report.to_dict()
    assert told["flagged"] == list(report.flagged)
    assert [check["name"] for check in told["checks"]] == [check.name for check in report.checks]
    assert isinstance(report, DisclosureReport)
    for text in (repr(report), report._repr_html_(), json.dumps(told)):
        assert SIGNS in text
        assert "Keeper" not in text.replace("Keeper.kept_", "")
    assert "<script>" not in report._repr_html_()
    with pytest.raises(KeyError, match="the checks are"):
        report["nothing"]


def test_no_value_of_a_record_is_shown():
    report = check_disclosure(KNeighborsClassifier().fit(X, y), X, y, X_test, y_test)
    assert not any(f"{value:.6g}"[:6] in json.dumps(report.to_dict()) for value in X.ravel()[:50])


def test_it_is_a_section_of_the_audit():
    tree = DecisionTreeClassifier(random_state=0).fit(X, y)
    report = audit(tree, X, y, X_test, y_test, attacks=LossThreshold())
    assert report.disclosure == check_disclosure(tree, X, y, X_test, y_test)
    assert report.to_dict()["disclosure"]["flagged"]
    told = (
        "signs of disclosure, which do not prove a leak: 3 of 6 flagged\n    smallest leaf: fewest"
    )
    assert told in repr(report)
    page = report.to_html()
    assert "Signs of disclosure" in page
    assert SIGNS in page
    assert report.disclosure["smallest leaf"].says in page


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"y_train": y[:3]}, "X_train and y_train differ in length"),
        ({"X_test": X_test, "y_test": y[:3]}, "X_test and y_test differ in length"),
        ({"y_test": y_test}, "without X_test"),
        ({"min_records": 0}, "min_records=0 must be"),
        ({"min_degrees_of_freedom": 1.5}, "min_degrees_of_freedom=1.5 must be"),
        ({"max_gap": 2}, "max_gap=2 must be"),
    ],
)
def test_wrong_input_is_told(arguments, words):
    model = LogisticRegression().fit(X, y)
    with pytest.raises(ValueError, match=words):
        check_disclosure(model, **{"X_train": X, **arguments})


def test_what_is_not_fitted_is_refused():
    with pytest.raises(NotFittedError):
        check_disclosure(LogisticRegression(), X, y)
