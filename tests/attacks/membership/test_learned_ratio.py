"""The learned ratio: stronger where neighbours explain an answer, for records of every kind."""

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.datasets import make_classification
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.tree import DecisionTreeClassifier

from skprivacy.attacks import RMIA, LabeledRecords, LearnedRatio, LiRA, ShadowPool
from skprivacy.attacks.membership import strongest as learned
from skprivacy.attacks.record_tables import NearestRecords, fingerprints

from ..conftest import attack_halves

pytestmark = pytest.mark.heavy


def measured(attack, case):
    return attack_halves(attack.set_params(target=case.target, pool=case.pool), case.X, case.y)


@pytest.mark.slow
def test_neighbours_explain_what_the_formulas_cannot(neighbours):
    best = max(
        measured(kind(online=online), neighbours).auc
        for kind in (LiRA, RMIA)
        for online in (False, True)
    )
    assert measured(LearnedRatio(), neighbours).auc > best + 0.02


@pytest.mark.slow
def test_without_neighbours_it_is_no_worse_than_the_formulas(neighbours, monkeypatch):
    monkeypatch.setattr(learned, "MOST_SEARCHED", 100)
    best = max(measured(kind(online=True), neighbours).auc for kind in (LiRA, RMIA))
    # of one target, the AUC has a standard error of .014
    assert measured(LearnedRatio(), neighbours).auc > best - 0.02


def test_records_that_fit_did_not_see_are_scored(neighbours):
    attack = LearnedRatio(neighbours.target, pool=neighbours.pool)
    records = LabeledRecords(neighbours.X, neighbours.y)
    half = attack.fit(records[:800])
    assert np.isfinite(half.decision_function(records[800:])).all()
    with pytest.raises(ValueError, match="1 records are not in the pool"):
        half.decision_function(LabeledRecords(neighbours.X[:1] + 1, neighbours.y[:1]))


def test_two_shadow_models_cannot_be_learned_from(neighbours):
    given = {"pool": 2}, {"pool": ShadowPool(KNeighborsClassifier(), n_shadows=2)}
    refusals = "must be an int in the range .4", "pool holds 2 shadow models"
    for params, words in zip(given, refusals, strict=True):
        with pytest.raises(ValueError, match=words):
            LearnedRatio(neighbours.target, **params).fit(
                LabeledRecords(neighbours.X, neighbours.y)
            )


def of_every_kind():
    random = np.random.default_rng(0)
    X, y = make_classification(300, flip_y=0.3, random_state=0)
    tree = DecisionTreeClassifier(min_samples_leaf=3, random_state=0)
    frame = pd.DataFrame(
        {
            "age": random.integers(18, 90, 300).astype(float),
            "city": random.choice(["Bern", "Basel", None], 300),
            "sign": pd.Categorical(random.choice(["a", "b"], 300)),
        }
    )
    frame.loc[::7, "age"] = np.nan
    coded = make_pipeline(FunctionTransformer(_codes), tree)
    words = random.choice(["red", "blue", "green", "grey", "teal"], (300, 6))
    texts = np.array([" ".join(row) for row in words], dtype=object)
    flat = make_pipeline(FunctionTransformer(_flat), tree)
    return {
        "numbers": (X, y, tree),
        "sparse": (sparse.csr_matrix(np.where(np.abs(X) > 1, X, 0)), y, tree),
        "frame": (frame, y, coded),
        "objects": (frame.to_numpy(dtype=object), y, coded),
        "texts": (texts, y, make_pipeline(CountVectorizer(), tree)),
        "images": (X.reshape(300, 4, 5), y, flat),
    }


def _codes(records):
    columns = [pd.factorize(column)[0] for _, column in pd.DataFrame(records).items()]
    return np.column_stack(columns)


def _flat(images):
    return images.reshape(len(images), -1)


@pytest.mark.everyday(2)
@pytest.mark.parametrize("kind", of_every_kind())
def test_records_of_every_kind(kind):
    X, y, model = of_every_kind()[kind]
    target = model.fit(X[:150], y[:150])
    records = LabeledRecords(X, y)
    attack = LearnedRatio(target, pool=4, random_state=0).fit(records)
    assert np.isfinite(attack.decision_function(records)).all()
    assert (attack._near is None) == (kind == "texts")


def test_no_record_is_its_own_neighbour_nor_a_copy_of_it():
    X = np.random.default_rng(0).normal(size=(40, 3))
    prints = fingerprints(X)
    near = NearestRecords(X, prints, 39)
    others = [np.delete(np.arange(40), i) for i in range(40)]
    assert (np.sort(near.find_nearest(X, prints)) == others).all()
    twice = near.find_nearest(X[[7, 7]], prints[[7, 7]])
    assert twice[:, 0].tolist() == [_nearest(X, 7)] * 2
    new = X[[7]] + 1e-9
    assert near.find_nearest(new, fingerprints(new))[0, 0] == 7


def _nearest(X, i):
    scaled = X / X.std(axis=0)
    distance = np.linalg.norm(scaled - scaled[i], axis=1)
    return int(np.argsort(distance)[1])
