"""Networks that learn from few noisy labels and many records without any."""

from __future__ import annotations

import pickle
from functools import cache

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression, RidgeClassifier
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MaxAbsScaler
from sklearn.semi_supervised import SelfTrainingClassifier
from torch import nn

from skprivacy.ensemble import PATEClassifier, PropagationStudent
from skprivacy.ensemble.student_classifier import choose_queries
from skprivacy.exceptions import PrivacyWarning
from skprivacy.neural_network import (
    ConsistencyStudent,
    DPSGDClassifier,
    RandomShift,
    ScatteringTransformer,
    VATStudent,
)
from skprivacy.neural_network.semi_supervised import ColumnCorruption, _worst_direction

DIGITS, TRUTH = load_digits(return_X_y=True)
DIGITS = DIGITS / 16.0
STUDENTS = {
    "propagation": PropagationStudent(),
    "pseudo-labels": SelfTrainingClassifier(LogisticRegression(max_iter=1000), threshold=0.9),
    "virtual adversarial": VATStudent(epochs=60, random_state=0),
    "consistency of columns": ConsistencyStudent(epochs=60, random_state=0),
    "consistency of images": ConsistencyStudent(
        strong=RandomShift((1, 8, 8), 1), epochs=60, random_state=0
    ),
}


@cache
def few_labels(n=60, wrong=3):
    """Return labels for ``n`` digits, the rest being -1, of which ``wrong`` are false."""
    queries = choose_queries(DIGITS, n, np.random.RandomState(0))
    known = np.full(len(TRUTH), -1)
    known[queries] = TRUTH[queries]
    known[queries[:wrong]] = (TRUTH[queries[:wrong]] + 1) % 10
    return known


@cache
def with_labels_alone():
    """Return the accuracy of a network that has nothing but the few labels."""
    known = few_labels()
    labelled = known >= 0
    alone = MLPClassifier((256,), max_iter=500, random_state=0)
    return alone.fit(DIGITS[labelled], known[labelled]).score(DIGITS, TRUTH)


@pytest.mark.everyday(1)
@pytest.mark.heavy
@pytest.mark.parametrize("name", STUDENTS)
def test_records_without_labels_teach(name):
    """Beside a network that has the 60 labels alone, three of them false: 0.885."""
    known, supervised = few_labels(), with_labels_alone()
    score = clone(STUDENTS[name]).fit(DIGITS, known).score(DIGITS, TRUTH)
    # Repeating its own mistakes gains nothing: see the benchmark accuracy/pate, students.
    assert score > (supervised + 0.02 if name != "pseudo-labels" else 0.8)


@pytest.mark.everyday(1)
@pytest.mark.heavy
@pytest.mark.parametrize("student", [VATStudent, ConsistencyStudent])
def test_a_student_is_an_estimator(student):
    known = few_labels(400, 0)[:400]
    pipe = make_pipeline(MaxAbsScaler(), student(epochs=2, hidden_layer_sizes=[8]))
    clone(pipe).fit(DIGITS[:400], known)
    before = torch.get_rng_state()
    first, second = (student(epochs=2, random_state=3).fit(DIGITS[:400], known) for _ in "ab")
    assert torch.equal(torch.get_rng_state(), before)
    np.testing.assert_array_equal(first.predict_proba(DIGITS), second.predict_proba(DIGITS))
    again = pickle.loads(pickle.dumps(first))
    np.testing.assert_array_equal(again.predict(DIGITS), first.predict(DIGITS))
    np.testing.assert_allclose(first.predict_proba(DIGITS).sum(axis=1), 1.0)
    assert first.classes_.tolist() == list(range(10))
    assert not first.module_.training
    with pytest.raises(ValueError, match="without a label"):
        student().fit(DIGITS, np.full(len(DIGITS), -1))
    with pytest.raises(ValueError, match="features"):
        first.predict(DIGITS[:, 1:])
    with pytest.raises(ValueError, match="epochs"):
        student(epochs=0).fit(DIGITS, few_labels())
    only = student(epochs=1).fit(DIGITS, np.r_[5, [-1] * 1796])
    assert set(only.predict(DIGITS)) == {5}
    own = student(module=lambda: nn.Linear(64, 10), epochs=1).fit(DIGITS, few_labels())
    assert isinstance(own.module_[1], nn.Linear)


@pytest.mark.everyday(1)
@pytest.mark.heavy
@pytest.mark.parametrize("student", list(STUDENTS.values()), ids=list(STUDENTS))
def test_pate_teaches_every_student(student):
    """From the labels that were paid for, and all public records."""
    quick = clone(student)
    if "epochs" in quick.get_params():
        quick.set_params(epochs=20)
    model = PATEClassifier(
        LogisticRegression(), quick, n_teachers=5, n_queries=40, classes=range(10),
        epsilon=np.inf, random_state=0,
    )  # fmt: skip
    model.fit(DIGITS[:900], TRUTH[:900], X_public=DIGITS[900:])
    assert model.score(DIGITS[900:], TRUTH[900:]) > 0.7
    assert model.student_.n_features_in_ == 64


@pytest.mark.slow
def test_pate_on_small_images_from_end_to_end():
    """As accuracy/pate on MNIST: 1,000 private digits, 40 teachers, 30 labels, epsilon 6."""
    order = np.random.RandomState(0).permutation(len(TRUTH))
    enlarged = np.kron(DIGITS[order].reshape(-1, 8, 8), np.ones((1, 2, 2)))
    features, truth = ScatteringTransformer().fit_transform(enlarged), TRUTH[order]
    model = PATEClassifier(
        RidgeClassifier(alpha=10.0), PropagationStudent(alpha=10.0), n_teachers=40, n_queries=30,
        classes=range(10), epsilon=6.0, delta=1e-4, store_labels=True, random_state=0, noise_seed=0,
    )  # fmt: skip
    with pytest.warns(PrivacyWarning, match="noise_seed"):
        model.fit(features[:1000], truth[:1000], X_public=features[1000:])
    asked = model.labels_ >= 0
    assert asked.sum() == 30
    assert np.mean(model.labels_[asked] == truth[1000:][asked]) >= 0.9
    # Which 30 digits are asked about moves it between .83 and .95, as other seeds show.
    assert model.score(features[1000:], truth[1000:]) > 0.8


def test_the_worst_direction_is_worse_than_others():
    network = nn.Linear(6, 3)
    rows = torch.randn(50, 6)
    logs = network(rows).log_softmax(1).detach()

    def change(direction):
        moved = network(rows + 0.1 * direction).log_softmax(1)
        return (logs.exp() * (logs - moved)).sum(1).detach()

    worst = change(_worst_direction(network, rows, logs, 1e-2))
    others = [change(nn.functional.normalize(torch.randn(50, 6), dim=1)).mean() for _ in range(20)]
    assert worst.mean() > 1.5 * max(others)


def test_corrupted_columns_keep_their_values():
    rows = torch.arange(200.0).reshape(50, 4)
    corrupted = ColumnCorruption(0.5)(rows)
    for before, after in zip(rows.T, corrupted.T, strict=True):
        assert set(after.tolist()) <= set(before.tolist())
    assert 60 < (corrupted != rows).sum() < 140  # Binomial(200, .49), 5 deviations and more


def test_private_training_refuses_an_augmentation_that_mixes_records():
    with pytest.raises(ValueError, match="mixes records"):
        DPSGDClassifier(augment=ColumnCorruption(), classes=range(10)).fit(DIGITS, TRUTH)
