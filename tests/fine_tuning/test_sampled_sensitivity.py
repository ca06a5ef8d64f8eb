"""Sampled sensitivities: their values, their cost, and their kind of guarantee."""

from __future__ import annotations

from dataclasses import replace
from unittest import mock

import numpy as np
import pytest
from sklearn.base import clone

from skprivacy.accounting import PrivacyBudget
from skprivacy.audit import claim_of
from skprivacy.fine_tuning import ALMFineTuner, SampledSensitivity, SoftmaxHead
from skprivacy.fine_tuning import leave_one_out as left_out_module
from skprivacy.fine_tuning import sampled_sensitivity as sensitivity_module
from skprivacy.fine_tuning.features import with_constant
from skprivacy.fine_tuning.head import HeadInput, Task
from skprivacy.fine_tuning.heads import PrototypeHead
from skprivacy.fine_tuning.leave_one_out import leave_one_out
from skprivacy.fine_tuning.sampled_sensitivity import (
    random_gamma,
    sample_on_private,
    sample_on_public,
)
from skprivacy.fine_tuning.sensitivity import Sensitivity
from skprivacy.linear_model.logistic_regression import LogisticLoss

pytestmark = pytest.mark.filterwarnings("ignore::skprivacy.exceptions.PrivacyWarning")


def records(n=120, size=5, n_classes=3, seed=0, marred=()):
    random = np.random.default_rng(seed)
    labels = random.integers(n_classes, size=n)
    features = random.normal(size=(n, size)) + 2.0 * random.normal(size=(n_classes, size))[labels]
    features[list(marred)] = np.nan
    rows, counts = with_constant(features)
    return HeadInput(rows, counts.astype(float), labels, n_classes)


def task(size=6, n_classes=3, **more):
    return Task(size, n_classes, 1.0, 1e-5, "replace_one", 100, **more)


def retrained(head, job, found, i):
    """Train from zero on a data set that does not have record i at all."""
    kept = np.delete(np.arange(len(found.rows)), i)
    less = HeadInput(found.rows[kept], found.counts[kept], found.labels[kept], found.n_classes)
    return head.statistic(job, less)


@pytest.mark.parametrize("n_classes", [2, 3, 7])
@pytest.mark.parametrize("ridge", [0.02, 1.0, 50.0])
def test_a_head_without_a_record_is_that_of_full_retraining(n_classes, ridge):
    found = records(n_classes=n_classes, marred=[3])
    job, head = task(n_classes=n_classes), SoftmaxHead(ridge)
    which = np.array([0, 7, 3, 119, 7, 40])
    fast = leave_one_out(head, job, found, which)
    # a retrained head stops at a gradient of 1e-6, hence within 1e-6 / ridge of its minimiser
    close = 1e-6 + 1e-6 / ridge
    for one, i in zip(fast, which, strict=True):
        assert np.linalg.norm(one - retrained(head, job, found, i)) < close
    assert np.linalg.norm(fast[0] - head.statistic(job, found)) > 10 * close
    np.testing.assert_allclose(fast[2], head.statistic(job, found), atol=close)  # it never counted
    np.testing.assert_array_equal(fast[1], fast[4])


def test_steps_that_go_astray_end_in_full_retraining():
    found, job, head = records(n=12), task(), SoftmaxHead(1e-3)
    which = np.arange(12)
    with mock.patch.object(left_out_module, "_STEPS", 1):
        fast = leave_one_out(head, job, found, which)
    for one, i in zip(fast, which, strict=True):
        assert np.linalg.norm(one - retrained(head, job, found, i)) < 2.1e-3  # 2 * 1e-6 / ridge


def test_other_heads_are_computed_anew():
    found, job, head = records(), task(), PrototypeHead()
    which = np.array([5, 60])
    for one, i in zip(leave_one_out(head, job, found, which), which, strict=True):
        np.testing.assert_allclose(one, retrained(head, job, found, i), atol=1e-12)


@pytest.mark.slow
def test_a_thousand_heads_pass_over_the_records_a_few_times_each():
    """Full retraining needs dozens of passes: a gradient or a product with the Hessian is one."""
    found, job, head = records(n=3000, size=20, n_classes=5), task(21, 5), SoftmaxHead(2.0)
    passes = []
    original = left_out_module._gradients_without

    def counted(loss, points, part, largest):
        passes.append(len(part))
        return original(loss, points, part, largest)

    with mock.patch.object(left_out_module, "_gradients_without", counted):
        leave_one_out(head, job, found, np.arange(1000))
    with (
        mock.patch.object(
            LogisticLoss, "gradient", autospec=True, side_effect=LogisticLoss.gradient
        ) as a,
        mock.patch.object(
            LogisticLoss, "hessian_product", autospec=True, side_effect=LogisticLoss.hessian_product
        ) as b,
    ):
        head.statistic(job, found)
    assert sum(passes) <= 4 * 1000
    assert a.call_count + b.call_count >= 20


@pytest.mark.heavy
def test_the_sample_is_of_pairs_that_differ_in_one_record_and_within_what_is_proved():
    found, job, head = records(n=30), task(), SoftmaxHead(0.5)
    every = leave_one_out(head, job, found, np.arange(30))
    gaps = every[:, None] - every[None]
    l2 = np.linalg.norm(gaps, axis=2).max()
    l1 = np.abs(gaps).sum(axis=2).max()
    many = sample_on_private(head, job, found, 5000, np.random.default_rng(0))
    few = sample_on_private(head, job, found, 3, np.random.default_rng(0))
    assert many.l2 == pytest.approx(l2)  # 870 pairs: each is met but for a chance of e**-5.7
    assert many.l1 == pytest.approx(l1)
    assert 0 < few.l2 <= many.l2 < head.sensitivity(job).l2


@pytest.mark.slow
@pytest.mark.parametrize("order", [1, 2])
def test_a_matrix_norm_for_that_of_the_vector_is_caught(order, monkeypatch):
    """The largest column sum, the largest singular value: of 6 features and 3 classes."""
    right = sensitivity_module._largest_movements

    def wrong(moved):
        found, matrices = right(moved), moved.reshape(len(moved), 6, 2)
        norm = float(np.linalg.norm(matrices, order, axis=(1, 2)).max())
        return replace(found, **{f"l{order}": norm})

    monkeypatch.setattr(sensitivity_module, "_largest_movements", wrong)
    with pytest.raises(AssertionError):
        test_the_sample_is_of_pairs_that_differ_in_one_record_and_within_what_is_proved()


def test_gamma_is_that_of_rubinstein_and_alda():
    for m, expected in ((100, 0.160), (1000, 0.0565)):
        assert random_gamma(m) == pytest.approx(expected, abs=5e-4)
    for m in (30, 300, 3000):  # no other split of the error gives a smaller gamma
        rhos = np.linspace(1e-6, 0.5, 200_001)
        assert random_gamma(m) == pytest.approx(
            (rhos + np.sqrt(-np.log(rhos) / (2 * m))).min(), rel=1e-6
        )
    assert random_gamma(1) == 1.0
    sampled = SampledSensitivity(100, sampler=lambda n, random: None)
    assert sampled.unseen == pytest.approx(0.0295, abs=5e-5)
    assert SampledSensitivity(100).gamma == SampledSensitivity(100).unseen == 1.0


def test_unseen_pairs_are_as_rare_as_is_said():
    """The mass above the largest of m draws, 20,000 times: seeded."""
    sampled = SampledSensitivity(50, sampler=lambda n, random: None, alpha=0.1)
    largest = np.random.default_rng(0).random((20_000, 50)).max(axis=1)
    assert (1 - largest > sampled.unseen).mean() == pytest.approx(0.1, abs=0.01)


def draw(n, random):
    labels = random.integers(3, size=n)
    return random.normal(size=(n, 4)) + 3 * labels[:, None], np.array(["a", "b", "c"])[labels]


X, y = draw(60, np.random.default_rng(0))


def tuner(sensitivity="sampled", **more):
    return ALMFineTuner(
        head="softmax", sensitivity=sensitivity, relation="replace_one", classes=["a", "b", "c"],
        **more,
    )  # fmt: skip


FROM_PRIVATE = {"by name": "sampled", "by number": SampledSensitivity(5)}
FROM_OTHERS = SampledSensitivity(5, sampler=draw)


@pytest.mark.parametrize("sensitivity", FROM_PRIVATE.values(), ids=FROM_PRIVATE)
def test_pairs_of_private_records_are_an_estimate(sensitivity):
    model = tuner(sensitivity).fit(X, y)
    assert model.privacy_.kind == claim_of(model, X).guarantee.kind == "estimate"
    assert any("share all but two records" in told for told in model.privacy_.assumptions)
    n_pairs = 100 if sensitivity == "sampled" else 5
    told = f"further than the furthest of {n_pairs} pairs that each leave out"
    assert any(told in assumption for assumption in model.privacy_.assumptions)
    assert not any("gamma" in told for told in model.privacy_.assumptions)


def test_independent_data_sets_are_random_dp_that_says_its_terms():
    model = tuner(FROM_OTHERS).fit(X, y)
    assert model.privacy_.kind == "random_dp"
    assert not claim_of(model, X).proved
    [told] = [a for a in model.privacy_.assumptions if "gamma" in a]
    assert f"gamma={FROM_OTHERS.gamma:.3g}" in told
    assert "m=5 independent" in told
    assert "confidence 0.95" in told
    assert "drawn independently and like the sampler's" in told


def leave_one_out_called_random_dp():
    return mock.patch.object(SampledSensitivity, "kind", "random_dp")


def test_leave_one_out_pairs_called_random_dp_are_caught():
    with leave_one_out_called_random_dp(), pytest.raises(AssertionError):
        test_pairs_of_private_records_are_an_estimate("sampled")


@pytest.mark.parametrize("kind", [*FROM_PRIVATE.values(), FROM_OTHERS])
def test_a_budget_of_proved_guarantees_refuses_it(kind):
    budget = PrivacyBudget(epsilon=5.0, delta=1e-3)
    with pytest.raises(ValueError, match="proved"):
        tuner(kind, budget=budget).fit(X, y)
    assert budget.spent() == 0


@pytest.mark.parametrize(
    ("mechanism", "delta"),
    [
        (mechanism, delta)
        for mechanism in ("auto", "gaussian", "laplace", "logistic", "k_norm")
        for delta in (0.0, 1e-5)
        if (mechanism, delta) != ("gaussian", 0.0)  # which has no pure guarantee
    ],
)
def test_the_charge_does_not_depend_on_the_private_records(mechanism, delta):
    model = tuner(mechanism=mechanism, delta=delta)
    one, other = clone(model).fit(X, y), clone(model).fit(X[:9] * [0, 0, 0, 1], y[:9])
    assert one.privacy_event_ == other.privacy_event_
    given = tuner(1.0, mechanism=mechanism, delta=delta).fit(X, y)
    assert one.privacy_event_ == given.privacy_event_
    assert one.epsilon_ == pytest.approx(1.0, rel=0.02)


def test_the_noise_is_that_of_the_sampled_sensitivity():
    """In L1 for Laplace noise, in L2 otherwise."""
    for mechanism, delta, norm in (("laplace", 0.0, 1), ("k_norm", 0.0, 2), ("logistic", 1e-5, 2)):
        model = tuner(mechanism=mechanism, delta=delta)
        seen = []
        original = SoftmaxHead.mechanism

        def mechanism_of(head, job, seen=seen, original=original):
            seen.append((job.sensitivity, original(head, job)))
            return seen[-1][1]

        with mock.patch.object(SoftmaxHead, "mechanism", mechanism_of):
            model.fit(X, y)
        moved, noise = seen[-1]
        assert noise.sensitivity == (moved.l1 if norm == 1 else moved.l2) != 1.0


@pytest.mark.parametrize("mechanism", ["laplace", "k_norm"])
def test_the_error_of_the_minimiser_is_added(mechanism):
    """The released head and the sampled ones are near their minimisers, not at them."""
    job, head, found = replace(task(), mechanism=mechanism, delta=0.0), SoftmaxHead(1e-3), records()
    with mock.patch.object(
        sensitivity_module, "sample_on_private", return_value=Sensitivity(1.0, 3.0)
    ):
        done = SampledSensitivity(5)._sample_private(head, job, found, np.random.default_rng(0))
    off = 2e-6 / 1e-3 + 2e-7
    assert done.sensitivity.l2 == pytest.approx(1.0 + off, rel=1e-9)
    if mechanism == "laplace":
        assert done.sensitivity.l1 == pytest.approx(3.0 + off * np.sqrt(12), rel=1e-9)


def test_draws_are_asked_for_n_plus_one():
    asked = []

    def counting(n, random):
        asked.append(n)
        return draw(n, random)

    tuner(SampledSensitivity(4, sampler=counting)).fit(X, y)
    assert asked == [61] * 4


def test_each_data_set_gives_one_pair_of_n_records_that_differ_in_one():
    job, head = task(size=5), SoftmaxHead(0.5)
    drawn = [records(n=31, size=4, seed=seed) for seed in range(3)]
    found = sample_on_public(head, job, iter(drawn))
    gaps = [retrained(head, job, r, 30) - retrained(head, job, r, 29) for r in drawn]
    assert found.l2 == pytest.approx(max(np.linalg.norm(g) for g in gaps), abs=1e-5)
    assert found.l1 == pytest.approx(max(np.abs(g).sum() for g in gaps), abs=1e-5)


@pytest.mark.parametrize(
    ("sensitivity", "told"),
    [
        (SampledSensitivity(3, sampler=lambda n, random: draw(n - 1, random)), "expected 61"),
        (
            SampledSensitivity(3, sampler=lambda n, _: draw(n, np.random.default_rng(0))),
            "same records twice",
        ),
        (SampledSensitivity(3, sampler=lambda n, r: (draw(n, r)[0][:, 1:], ["a"] * n)), "features"),
        (
            SampledSensitivity(3, sampler=lambda n, r: (draw(n, r)[0], ["d"] * n)),
            "outside of classes",
        ),
    ],
)
def test_samplers_that_do_not_fit_are_refused_before_the_budget_is_touched(sensitivity, told):
    model = tuner(sensitivity)
    with pytest.raises(ValueError, match=told):
        model.fit(X, y)
    assert not hasattr(model, "weights_")


def test_parameters_that_do_not_fit_are_refused():
    for params in ({"n_pairs": 0}, {"n_pairs": 2.5}, {"alpha": 1.0}, {"sampler": [1, 2]}):
        with pytest.raises(ValueError, match=f"^{next(iter(params))}"):
            SampledSensitivity(**params)
    with pytest.raises(ValueError, match="relation='add_remove'"):
        tuner().set_params(relation="add_remove").fit(X, y)
    with pytest.raises(ValueError, match="head='prototypes'"):
        tuner().set_params(head="prototypes").fit(X, y)
    with pytest.raises(ValueError, match="two records"):
        sample_on_private(SoftmaxHead(1.0), task(), records(n=1), 5, np.random.default_rng(0))


def test_a_sampled_sensitivity_survives_a_clone():
    again = clone(tuner(FROM_OTHERS)).sensitivity
    assert (again.n_pairs, again.gamma) == (5, FROM_OTHERS.gamma)
    assert "function" not in repr(again)
    assert replace(FROM_OTHERS, n_pairs=8).kind == "random_dp"
