"""Every membership attack is a classifier of scikit-learn: its checks, and cross-validation."""

import inspect
from functools import cache

import numpy as np
import pytest
from sklearn.base import BaseEstimator, TransformerMixin, clone, is_classifier
from sklearn.datasets import make_classification
from sklearn.ensemble import RandomForestClassifier
from sklearn.model_selection import StratifiedKFold, cross_validate
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.tree import DecisionTreeClassifier
from sklearn.utils.estimator_checks import parametrize_with_checks

from skprivacy import attacks
from skprivacy.attacks import LabeledRecords, ShadowPool, Updates

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


class RowSums(TransformerMixin, BaseEstimator):
    """One feature, whatever the number of columns: the checks ask about many widths."""

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.requires_fit = False
        return tags

    def fit(self, X, y=None):
        return self

    def transform(self, X):
        return np.sin(np.nan_to_num(np.asarray(X.sum(axis=1), dtype=float).reshape(-1, 1)))


def any_width(model):
    X = np.random.default_rng(0).normal(size=(60, 1))
    return make_pipeline(RowSums(), model).fit(X, (X[:, 0] > 0).astype(int))


TREE = any_width(DecisionTreeClassifier(random_state=0))
NETWORK = any_width(MLPClassifier((4,), solver="lbfgs", max_iter=20, random_state=0))
WEIGHTS = Updates.weights_of(NETWORK[-1])
UPDATES = Updates(NETWORK, [WEIGHTS, WEIGHTS], [WEIGHTS * 0.99] * 2, step=0.1, n_records=30)
POOL = {"pool": 2, "random_state": 0}
SUPERVISED = attacks.SupervisedAttack(TREE, attack_model=DecisionTreeClassifier(max_depth=2))
# One instance of each attack. A new attack must be added.
CHECKED = [
    attacks.IndirectInference(TREE, **POOL),
    attacks.LabelOnlyAttack(TREE, n_queries=9),
    attacks.LearnedRatio(TREE, pool=4, random_state=0),
    attacks.LiRA(TREE, **POOL),
    attacks.LossThreshold(TREE),
    attacks.MLLeaksAttack(TREE, **POOL),
    attacks.QuantileAttack(TREE),
    attacks.ReferenceThreshold(TREE, **POOL),
    attacks.RMIA(TREE, **POOL),
    attacks.ShadowThreshold(TREE, **POOL),
    attacks.ShokriAttack(TREE, **POOL),
    attacks.SignalThreshold(TREE),
    attacks.StolenMemoriesAttack(NETWORK, epochs=1),
    attacks.StrongestAttack(TREE, **POOL),
    SUPERVISED,
    attacks.UpdatesMembership(UPDATES),
    attacks.VulnerableRecordsAttack(TREE, **POOL),
    attacks.WhiteBoxAttack(NETWORK, epochs=1, random_state=0),
    attacks.WhiteBoxAttack(NETWORK, attack_model="linear"),
]


@cache
def labelling(kind):
    """Return a subclass of an attack that labels rows by itself: the rows of the checks have none.

    Everything else is the attack's own code.
    """

    def split(self, X, name="X"):
        X, labels = kind._split_labels(self, X, name)
        if X.ndim != 2:
            return X, labels
        return X, np.floor(97 * np.asarray(X.sum(axis=1), dtype=float).ravel()).astype(int) % 2

    labels_rows = type(kind.__name__, (kind,), {"_split_labels": split, "__module__": __name__})
    labels_rows.__init__ = kind.__init__
    globals()[kind.__name__] = labels_rows  # where pickle looks for it
    return labels_rows


def test_every_attack_is_checked():
    public = [getattr(attacks, name) for name in attacks.__all__]
    kinds = {k for k in public if inspect.isclass(k) and issubclass(k, attacks.MembershipAttack)}
    assert {type(attack) for attack in CHECKED} == kinds - {attacks.MembershipAttack}


FOR_THE_TARGET = "X is read by the target; the attack refuses it in words of its own"
EXEMPT = {
    "check_dtype_object": FOR_THE_TARGET,
    "check_estimators_empty_data_messages": FOR_THE_TARGET,
    "check_fit2d_predict1d": FOR_THE_TARGET,
    "check_classifiers_classes": "of two texts nothing tells which one marks members",
    "check_classifiers_train": "predict compares a score with threshold_, which may be infinite, "
    "and not with 0; members of the check are not those of the target",
    "check_estimators_overwrite_params": "the fitted target is a parameter, shared and not cloned; "
    "the check compares pickles of it, which differ although its values are equal",
    "check_classifier_data_not_an_array": "it has 4 distinct rows: all shadow models agree",
}
# Fewer rows in a call round differently, and the threshold is the score of a record.
TIES = {"check_methods_subset_invariance": "a score equal to the threshold moves by its last bit"}
OWN_POOL = {"check_fit_idempotent": "it scores the records of its own pool alone"}
OF_ONE_ATTACK = {
    "IndirectInference": OWN_POOL | TIES,
    "LearnedRatio": OWN_POOL | TIES,
    "WhiteBoxAttack": TIES,
    "LabelOnlyAttack": {"check_dict_unchanged": "queries_ counts the queries of each scoring"},
    "UpdatesMembership": {
        "check_estimators_pickle": "it refuses records with NaN",
        "check_fit1d": "it refuses them by a TypeError, since the model is part of the updates",
    },
}
# These fit 40 records or fewer. Stolen memories trains proxies on dozens of non-members.
FEW_RECORDS = dict.fromkeys(
    [
        "check_dict_unchanged", "check_dont_overwrite_parameters", "check_estimator_sparse_array",
        "check_estimator_sparse_matrix", "check_estimator_sparse_tag", "check_estimators_dtypes",
        "check_estimators_fit_returns_self", "check_estimators_pickle",
        "check_f_contiguous_array_estimator", "check_fit2d_1feature", "check_fit_score_takes_y",
        "check_methods_sample_order_invariance", "check_methods_subset_invariance",
        "check_n_features_in_after_fitting", "check_pipeline_consistency",
        "check_readonly_memmap_input", "check_supervised_y_2d",
    ],
    "dozens of non-members are needed",
)  # fmt: skip
OF_ONE_ATTACK["StolenMemoriesAttack"] = FEW_RECORDS


def exemptions(attack):
    return {**EXEMPT, **OF_ONE_ATTACK.get(type(attack).__name__, {})}


# scikit-learn reports its own skipped checks as a warning
@pytest.mark.everyday(60)
@pytest.mark.heavy
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.SkipTestWarning")
@parametrize_with_checks(
    [labelling(type(attack))(**attack.get_params(deep=False)) for attack in CHECKED],
    expected_failed_checks=exemptions,
)
def test_scikit_learn_checks(estimator, check):
    check(estimator)


@pytest.fixture(scope="module")
def leak():
    """Records with their membership, targets that leak it, and their shadow models."""
    X, y = make_classification(300, flip_y=0.4, random_state=0)
    member = np.random.default_rng(0).permutation(300) < 150
    forest = RandomForestClassifier(10, random_state=0).fit(X[member], y[member])
    network = MLPClassifier((30,), solver="lbfgs", random_state=0).fit(X[member], y[member])
    pools = {
        id(model): ShadowPool(model, n_shadows=4, random_state=0).fit(X, y)
        for model in (forest, network)
    }
    return LabeledRecords(X, y), member, forest, network, pools


def aimed(attack, leak):
    """Return the attack on a target that leaks, with fitted shadow models if it uses any."""
    records, member, forest, network, pools = leak
    target = network if type(attack).__name__ in ON_NETWORKS else forest
    if isinstance(attack.target, Updates):
        party = MLPClassifier((20,), solver="sgd", momentum=0, batch_size=50, random_state=0)
        X, y = records.X[member], records.y[member]
        sent = [Updates.weights_of(party.partial_fit(X, y, classes=[0, 1])) for _ in range(4)]
        target = Updates(party, sent[:-1], sent[1:], step=0.003, n_records=len(y))
    attack = clone(attack).set_params(target=target)
    return attack.set_params(pool=pools[id(target)]) if hasattr(attack, "pool") else attack


ON_NETWORKS = {"IndirectInference", "StolenMemoriesAttack", "WhiteBoxAttack"}
# Few records and weak signals: these need not be above chance here.
WEAK = {"IndirectInference", "StolenMemoriesAttack", "WhiteBoxAttack", "UpdatesMembership"}


@pytest.mark.parametrize("attack", CHECKED, ids=lambda attack: type(attack).__name__)
def test_cross_validation_scores_every_attack(attack, leak):
    attack, (records, member, *_) = aimed(attack, leak), leak
    scored = {"area": "roc_auc", "balanced": "balanced_accuracy", "own": own_score}
    found = cross_validate(attack, records, member, cv=3, scoring=scored, error_score="raise")
    assert found["test_own"] == pytest.approx(found["test_area"])
    assert np.isfinite(found["test_balanced"]).all()
    if type(attack).__name__ not in WEAK:
        assert found["test_area"].mean() > 0.55
    assert is_classifier(attack)
    assert not hasattr(attack, "threshold_")  # clones were fitted
    assert attack.get_metadata_routing().fit.requests == {}
    assert type(attack).__name__ in attack._repr_html_()


def own_score(attack, records, member):
    return attack.score(records, member)


def test_nothing_is_learned_from_the_membership_of_the_fold_that_is_scored(leak):
    """The scores of a fold are the same, whatever its own membership is said to be."""
    records, member, forest, _, _ = leak
    train, test = next(StratifiedKFold(3).split(records, member))
    lied = member.copy()
    lied[test] = ~lied[test]
    for attack in (SUPERVISED, attacks.LiRA(forest, pool=4, random_state=0)):
        attack = clone(attack).set_params(target=forest)
        said = [
            clone(attack).fit(records[train], told[train]).decision_function(records[test])
            for told in (member, lied)
        ]
        np.testing.assert_array_equal(*said)
        if "pool" in attack.get_params():
            fitted = clone(attack).fit(records[train], member[train])
            assert not fitted.pool_.membership(records.X[test])[1].any()


def test_classes_and_columns_are_those_of_scikit_learn(leak):
    records, member, forest, _, _ = leak
    attack = attacks.LossThreshold(forest)
    assert attack.fit(records).classes_.tolist() == [False, True]
    for told in (np.where(member, 1, -1), member.astype(int)):
        called = attack.fit(records, told).predict(records)
        assert set(called) == set(attack.classes_) == set(told)
    assert attack.n_features_in_ == 20
    with pytest.raises(ValueError, match="X has 3 features, but LossThreshold is expecting 20"):
        attack.decision_function(LabeledRecords(records.X[:, :3], records.y))
    with pytest.raises(ValueError, match=r"X must be LabeledRecords\(X, y\), as in fit"):
        attack.decision_function(records.X)
    with pytest.raises(ValueError, match="X must have labels"):
        attack.fit(records.X, member)
    with pytest.raises(TypeError, match="not an array"):
        np.asarray(records)
