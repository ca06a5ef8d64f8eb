"""scikit-learn's own checks on every public estimator."""

import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.utils.estimator_checks import parametrize_with_checks

from skprivacy.additive_model import PrivateAdditiveClassifier, PrivateAdditiveRegressor
from skprivacy.defenses import CoarsenedClassifier, MemGuardClassifier
from skprivacy.ensemble import PATEClassifier, PrivateKNNClassifier
from skprivacy.federated import DPFederatedClassifier
from skprivacy.neural_network import DPSGDClassifier, DPSGDRegressor, SCARFEncoder, SimCLREncoder
from skprivacy.preprocessing import LocalPerturbation
from skprivacy.synthesis import SyntheticDataClassifier

from ..contracts.cases import SCIKIT_LEARN

pytestmark = pytest.mark.heavy

NAN = {
    "check_estimators_nan_inf": "refusing a record with NaN would tell that it is there: fit "
    "leaves it out in silence, predict refuses it",
    "check_do_not_raise_errors_in_init_or_set_params": "the check takes **module_params for a "
    "parameter of that name, and an unknown name is refused at once",
    "check_class_weight_classifiers": "features of scale 60 and 50 records: noise decides, not the "
    "weights; test_dpsgd_classifier.py shows what they do",
}
# These compare two fits. Without a noise seed, equal fits would be a breach; with one they pass.
TWICE = dict.fromkeys(
    [
        "check_fit_idempotent",
        "check_classifier_data_not_an_array",
        "check_supervised_y_2d",
        "check_regressor_data_not_an_array",
        "check_regressors_int",
        "check_classifiers_multilabel_representation_invariance",
    ],
    "every fit has noise of its own",
)


# What learns from public records alone; one seed, because a check fits twice.
ENCODERS = [
    SCARFEncoder(4, hidden_layer_sizes=(16,), epochs=2, random_state=0),
    SimCLREncoder(4, epochs=2, random_state=0),
]
DEFENCES = [
    MemGuardClassifier(LogisticRegression(), random_state=0),
    CoarsenedClassifier(LogisticRegression(), temperature=5.0, decimals=3),
]
LOADED = {
    "check_estimators_pickle": "a seed of noise is never pickled, so that a loaded transformer "
    "perturbs anew"
}


TYPES = dict.fromkeys(
    ["check_classifier_data_not_an_array", "check_regressor_data_not_an_array"],
    "that the columns of a DataFrame are integers is public of it, so that they are counted "
    "otherwise than those of an array",
)


def expected_failures(estimator):
    additive = PrivateAdditiveClassifier | PrivateAdditiveRegressor
    if isinstance(estimator, SyntheticDataClassifier | additive):
        return TYPES
    if isinstance(estimator, LocalPerturbation):
        return LOADED
    if isinstance(estimator, DPFederatedClassifier | PATEClassifier | PrivateKNNClassifier):
        return {"check_estimators_nan_inf": NAN["check_estimators_nan_inf"]}
    if not isinstance(estimator, DPSGDClassifier | DPSGDRegressor):
        return {}
    return NAN if estimator.noise_seed is not None else {**NAN, **TWICE}


CHECKED = SCIKIT_LEARN + ENCODERS + DEFENCES
# What each of them shares with one that is checked every day: its base class, or what it wraps.
AS_ANOTHER = {
    "ALIBIClassifier", "DPFederatedClassifier", "DPSGDRegressor", "LP2STClassifier",
    "LabelPATEClassifier", "MemGuardClassifier", "PrivateKNNClassifier", "SimCLREncoder",
    "SyntheticDataClassifier", "SyntheticDataRegressor",
}  # fmt: skip
FIRST = [
    estimator
    for estimator in {type(estimator): estimator for estimator in reversed(CHECKED)}.values()
    if type(estimator).__name__ not in AS_ANOTHER
]
OTHERS = [estimator for estimator in CHECKED if estimator not in FIRST]


# scikit-learn reports its own skipped checks as a warning.
# Public facts are read off the data each time, and a seed warns.
@pytest.mark.everyday(300)
@pytest.mark.filterwarnings("ignore::skprivacy.exceptions.PrivacyWarning")
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.SkipTestWarning")
@parametrize_with_checks(FIRST, expected_failed_checks=expected_failures)
def test_scikit_learn_checks(estimator, check):
    check(estimator)


@pytest.mark.slow  # the first form of one estimator of each base is checked every day
# Public facts are read off the data each time, and a seed warns.
@pytest.mark.filterwarnings("ignore::skprivacy.exceptions.PrivacyWarning")
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.SkipTestWarning")
@parametrize_with_checks(OTHERS, expected_failed_checks=expected_failures)
def test_scikit_learn_checks_of_another_form(estimator, check):
    check(estimator)
