"""Groups on their way to a fit: through pipelines, routing, searches, ledgers and files."""

import warnings

import numpy as np
import pandas as pd
import pytest
from sklearn import config_context
from sklearn.base import clone
from sklearn.decomposition import PCA
from sklearn.model_selection import GridSearchCV, GroupKFold, cross_val_score
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import Pipeline, make_pipeline

from skprivacy import issue_certificate, verify_certificate
from skprivacy.accounting import PrivacyBudget
from skprivacy.audit.inspection.claims import claim_of
from skprivacy.certificates import create_key
from skprivacy.defenses import SmoothedClassifier
from skprivacy.ensemble import PATEClassifier, PublicRecords
from skprivacy.fine_tuning import ALMFineTuner, NetworkHead
from skprivacy.label_privacy import ALIBIClassifier, LP2STClassifier, RandomizedResponseClassifier
from skprivacy.linear_model import (
    FunctionalMechanismClassifier,
    ObjectivePerturbationClassifier,
    OutputPerturbationClassifier,
)
from skprivacy.model_selection import PrivateSearchCV
from skprivacy.persistence import load_model, save_model
from skprivacy.preprocessing import (
    BoundedColumn,
    CategoricalColumn,
    PrivateStandardScaler,
    Schema,
    make_private_pipeline,
)

RNG = np.random.default_rng(0)
N = 600
PATIENT = pd.Series(RNG.integers(0, 150, N), name="patient")
FRAME = pd.DataFrame({"age": RNG.uniform(0, 100, N), "sex": RNG.choice(["f", "m"], N)})
Y = (FRAME["age"] > 50).astype(int).to_numpy()
X = RNG.uniform(-1, 1, (N, 3))
SCHEMA = Schema(
    {"age": BoundedColumn(0, 100), "sex": CategoricalColumn(["f", "m"])}, classes=[0, 1]
)
LINEAR = {"bounds": (-1, 1), "classes": [0, 1], "epsilon": 4.0}


def scaled(**params):
    return Pipeline(
        [
            ("scale", PrivateStandardScaler(epsilon=1.0, bounds=(-1, 1), **params)),
            ("model", OutputPerturbationClassifier(**LINEAR, **params)),
        ]
    )


@pytest.mark.parametrize(
    "model",
    [
        FunctionalMechanismClassifier(epsilon=4.0),
        ObjectivePerturbationClassifier(epsilon=4.0),
        ALMFineTuner(epsilon=4.0),
    ],
)
def test_a_private_pipeline_hands_them_on(model):
    made = make_private_pipeline(SCHEMA, model)
    made.fit(FRAME, Y, **{f"{made.steps[-1][0]}__groups": PATIENT})
    assert made[-1].privacy_.unit == "patient"
    with config_context(enable_metadata_routing=True):
        routed = make_private_pipeline(SCHEMA, clone(model).set_fit_request(groups=True))
        assert routed.fit(FRAME, Y, groups=PATIENT)[-1].privacy_ == made[-1].privacy_


def test_every_private_step_protects_who_it_is_told_of_and_two_units_are_not_added_up():
    both = scaled().fit(X, Y, scale__groups=PATIENT, model__groups=PATIENT)
    assert claim_of(both).guarantee.unit == "patient"
    one = scaled().fit(X, Y, model__groups=PATIENT)
    assert claim_of(one).guarantee is None
    budget = PrivacyBudget(epsilon=10.0)
    with pytest.raises(ValueError, match="patient"):
        scaled(budget=budget).fit(X, Y, model__groups=PATIENT)
    assert budget.entries()["unit"].tolist() == ["record"]
    with config_context(enable_metadata_routing=True):
        asking = scaled()
        for step in asking:
            step.set_fit_request(groups=True)
        routed = asking.fit(X, Y, groups=PATIENT)
    assert claim_of(routed).guarantee == claim_of(both).guarantee


def test_a_grid_search_splits_and_protects_people():
    with config_context(enable_metadata_routing=True):
        model = OutputPerturbationClassifier(**LINEAR).set_fit_request(groups=True)
        search = GridSearchCV(model, {"alpha": [0.1, 1.0]}, cv=GroupKFold(3))
        search.fit(X, Y, groups=PATIENT)
        assert search.best_estimator_.privacy_.unit == "patient"
        budget = PrivacyBudget(epsilon=100.0)
        charged = clone(model).set_params(budget=budget)
        cross_val_score(charged, X, Y, cv=GroupKFold(3), params={"groups": PATIENT})
        assert set(budget.entries()["unit"]) == {"patient"}
        assert len(budget.entries()) == 3
    plain = GridSearchCV(OutputPerturbationClassifier(**LINEAR), {"alpha": [1.0]}, cv=GroupKFold(3))
    plain.fit(X, Y, groups=PATIENT)  # without routing they are the splitter's alone
    assert plain.best_estimator_.privacy_.unit == "record"


def test_a_private_search_takes_groups_for_all_of_its_parts_or_for_none():
    budget = PrivacyBudget(10.0, 1e-3)
    model = make_pipeline(OutputPerturbationClassifier(**LINEAR, relation="zero_out"))
    grid = {"outputperturbationclassifier__alpha": [0.1, 1.0]}
    search = PrivateSearchCV(model, grid, epsilon=2.0, budget=budget)
    with pytest.raises(ValueError, match="Pass groups itself"):
        search.fit(X, Y, outputperturbationclassifier__groups=PATIENT)
    with pytest.raises(ValueError, match="groups has 80 values for 600 records"):
        search.fit(X, Y, groups=PATIENT[:80])
    assert not len(budget.entries())
    with pytest.warns(UserWarning, match="chooses nearly at random"):
        search.fit(X, Y, groups=PATIENT)
    assert set(budget.entries()["unit"]) == {"patient"}


@pytest.mark.heavy
def test_groups_and_public_records_go_their_own_ways():
    public = PublicRecords(RNG.uniform(-1, 1, (100, 3)))
    tuned = ALMFineTuner(PCA(2), classes=[0, 1], epsilon=4.0)
    taught = PATEClassifier(
        GaussianNB(), GaussianNB(), n_teachers=10, classes=[0, 1], epsilon=4.0, random_state=0
    )
    for model in (tuned, taught):
        assert model.fit(X, Y, X_public=public, groups=PATIENT).privacy_.unit == "patient"


def test_a_smoothed_classifier_hands_them_on():
    smoothed = SmoothedClassifier(OutputPerturbationClassifier(**LINEAR), n_samples=10)
    assert smoothed.fit(X, Y, groups=PATIENT).estimator_.privacy_.unit == "patient"
    assert smoothed.fit(X, Y).estimator_.privacy_.unit == "record"


def test_a_fine_tuned_network_protects_them_as_a_network_does():
    pytest.importorskip("torch")
    head = NetworkHead((4,), epochs=2, max_group_size=3, group_contribution="sum")
    model = ALMFineTuner(head=head, classes=[0, 1], relation="zero_out")
    model.fit(X, Y, groups=PATIENT)
    network = model.weights_
    assert (network.max_group_size, network.max_grad_norm.group_contribution) == (3, "sum")
    assert network.privacy_.unit == model.privacy_.unit == "patient"
    assert network.privacy_event_ == model.privacy_event_
    plain = model.fit(X, Y)
    assert plain.weights_.privacy_.unit == plain.privacy_.unit == "record"


def test_a_sensitivity_that_is_sampled_takes_no_groups():
    model = ALMFineTuner(
        head="softmax", sensitivity="sampled", relation="replace_one", classes=[0, 1]
    )
    with pytest.raises(
        ValueError, match="by leaving out single records, which does not cover groups"
    ):
        model.fit(X, Y, groups=PATIENT)


@pytest.mark.heavy
@pytest.mark.parametrize("kind", [RandomizedResponseClassifier, LP2STClassifier, ALIBIClassifier])
def test_labels_are_of_one_record_of_each_group_and_it_is_said_of_which(kind):
    model = kind(GaussianNB(), classes=[0, 1], epsilon=50.0, store_labels=True)
    drawn = []
    for _ in range(5):
        model.fit(X, Y, groups=PATIENT)
        drawn.append(tuple(model.labelled_))
        assert sorted(PATIENT[model.labelled_]) == sorted(PATIENT.unique())
        assert len(model.labels_) == len(model.labelled_)
        if kind is not ALIBIClassifier:  # which keeps indicators
            np.testing.assert_array_equal(model.labels_, Y[model.labelled_])
    assert len(set(drawn)) == 5
    assert model.privacy_.assumptions == (
        "whose labels they are is public",
        "the features of all records are public (labels alone are protected)",
    )
    with pytest.raises(ValueError, match="groups holds 1 group"):
        model.fit(X, Y, groups=np.zeros(N))


@pytest.mark.heavy
@pytest.mark.parametrize(
    "make",
    [
        lambda: FunctionalMechanismClassifier(**LINEAR),
        lambda: PrivateStandardScaler(bounds=(-1, 1)),
        lambda: RandomizedResponseClassifier(classes=[0, 1]),
    ],
)
def test_files_and_certificates_name_them(make, tmp_path):
    model = make().fit(X, Y, groups=PATIENT)
    save_model(model, tmp_path / "model.safetensors")
    assert load_model(tmp_path / "model.safetensors").privacy_ == model.privacy_
    create_key(tmp_path / "key.pem")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        issue_certificate(
            model, tmp_path / "certificate.json", key=tmp_path / "key.pem",
            model_file=tmp_path / "model.safetensors",
        )  # fmt: skip
    found = verify_certificate(
        tmp_path / "certificate.json", model_file=tmp_path / "model.safetensors"
    )
    assert "per patient" in str(found)
