"""Networks that protect people: what the contracts demand, and that planted bugs are caught."""

from __future__ import annotations

from dataclasses import replace
from unittest import mock

import numpy as np
import pytest
import torch
from sklearn.base import clone

from skprivacy._groups import Groups
from skprivacy.neural_network import network as _network
from skprivacy.neural_network._gradients.clipped_sum import ClippedGradientSum
from skprivacy.neural_network._gradients.contributions import OuterProduct
from skprivacy.neural_network._gradients.group_batches import GroupedExamples, GroupRows
from skprivacy.neural_network._training.engine import SingleProcess
from skprivacy.neural_network.settings import as_clipping

from ...contracts import network_groups as people
from ...contracts.cases import CASES
from ...contracts.neighbors import group_table


def case_of(name, group_contribution="mean", **fixed):
    case = CASES[name]

    def make(**params):
        model = case.make(**{**fixed, **params})
        if group_contribution != "mean":
            clipping = clone(as_clipping(model.max_grad_norm))
            model.max_grad_norm = clipping.set_params(group_contribution=group_contribution)
        return model

    return replace(case, make=make)


NETWORKS = {
    "mean": case_of("DPSGDClassifier"),
    "sum": case_of("DPSGDClassifier", group_contribution="sum", max_group_size=5),
    "all": case_of("DPSGDClassifier", group_contribution="sum", max_group_size=None),
    "full batch": case_of("DPSGDClassifier-full-batch", group_contribution="sum", max_group_size=5),
    "linear": case_of("DPSGDClassifier-linear", max_group_size=None),
    "automatic": case_of("DPSGDClassifier-adam-automatic", max_group_size=5),
    "per layer": case_of("DPSGDClassifier-per-layer-weights", group_contribution="sum"),
    "layers": case_of("DPSGDClassifier-layers", group_contribution="sum", max_group_size=5),
    "torch.func": case_of("DPSGDClassifier-torch.func", group_contribution="sum", max_group_size=3),
    "augmented": case_of("DPSGDClassifier-augmented", max_group_size=5),
    "labels": case_of("DPSGDClassifier-labels", max_group_size=5),
    "net": case_of("DPNeuralNet", group_contribution="sum"),
    "regressor": case_of("DPSGDRegressor", group_contribution="sum", max_group_size=5),
    "adaptive": case_of("DPSGDClassifier-adaptive", max_group_size=5),
    "fine-tuned": case_of("ALMFineTuner-dpsgd"),
}


@pytest.mark.everyday(2)
@pytest.mark.heavy
@pytest.mark.parametrize("name", NETWORKS)
def test_one_person_moves_one_contribution(name):
    people.check_replay(NETWORKS[name])


@pytest.mark.heavy
@pytest.mark.parametrize("most", [1, 2, 5, None])
@pytest.mark.parametrize("name", ["mean", "net", "torch.func"])
def test_who_is_drawn_contributes_once_with_the_same_rows(name, most):
    people.check_rows(NETWORKS[name], most)


@pytest.mark.heavy
@pytest.mark.parametrize(
    "check", [people.check_inclusion, people.check_public_size, people.check_chosen_rows]
)
@pytest.mark.parametrize("name", ["mean", "net", "regressor"])
def test_contract(name, check):
    check(NETWORKS[name])


@pytest.mark.everyday(1)
@pytest.mark.heavy
@pytest.mark.parametrize("name", ["DPSGDClassifier-banded", "DPSGDRegressor-tree-adaptive"])
def test_people_take_turns_in_a_stream(name):
    """They come in the order in which they appear; that is what is public then."""
    case = case_of(name, group_contribution="sum", max_group_size=5)
    people.check_replay(case)
    X, y, whose = group_table(case)
    claim = case.make().fit(X, y, groups=whose).privacy_
    assert any("which batch a group is in" in words for words in claim.assumptions)


# --- planted bugs -------------------------------------------------------------------------------


def everybody_alone(original):
    """Sample, clip and account for rows, and claim people."""

    def check(groups, X):
        found = original(groups, X)
        return Groups(np.arange(len(found.codes)), len(found.codes), found.unit)

    return check


def rows_for_people(original):
    """Count rows where people are meant: the public figure, the rate and the divisor."""
    return lambda self, inputs, targets, groups=None: len(inputs)


def halved(original):
    """Clip the rows of a person in two lots."""

    def parts(self, *args):
        for rows, shares in original(self, *args):
            if shares is None:
                yield rows, shares
                continue
            sizes = np.bincount(shares._owner.numpy())
            lots = np.concatenate([[s // 2, s - s // 2] if s > 1 else [s] for s in sizes])
            order = np.argsort(lots, kind="stable")
            starts = np.cumsum(lots) - lots
            places = np.concatenate([np.arange(starts[i], starts[i] + lots[i]) for i in order])
            yield rows[places], GroupedExamples(lots[order], self._mean, rows.device)

    return parts


def split_between_parts(original):
    """Cut a batch where memory says so, not between people."""

    def parts(self, drawn, n_rows, device):
        for rows, _ in original(self, drawn, n_rows, device):
            yield from ((part, None) for part in rows.split(2))

    return parts


def no_limit(original):
    return lambda self, k, random: np.arange(len(self.codes))


def clip_before_joining(original):
    """Clip each row, and add up what is left."""
    return lambda self, inputs, targets, shares=None, **given: original(
        self, inputs, targets, **given
    )


def sum_at_the_norm_of_the_mean(original):
    return lambda self, factors: self.by_example(factors)


def without_cross_terms(original):
    """Take the norm of a sum for that of rows at right angles."""

    def joint_norms(self, shares):
        each = self.squared_norms()
        return torch.cat([people.gather_blanked(each).sum(1) for people in shares.buckets])

    return joint_norms


def forgets_the_rest(original):
    """Drop whoever does not fit into the first part."""

    def parts(self, drawn, n_rows, device):
        yield from list(original(self, drawn, 3, device))[:1]

    return parts


def counts_who_has_nothing(original):
    """Adaptive clipping takes a person without a gradient for one with a short one."""
    return lambda self, bad: original(self, bad) & False


FULL, SUM = NETWORKS["full batch"], NETWORKS["sum"]
MUTANTS = {
    "rows are sampled": (_network, "check_groups", everybody_alone, people.check_replay, FULL),
    "rows are counted": (SingleProcess, "count", rows_for_people, people.check_inclusion, SUM),
    "rows are counted, and their number told": (
        SingleProcess, "count", rows_for_people, people.check_replay, SUM,
    ),
    "a person in two lots": (GroupRows, "iterate_parts", halved, people.check_replay, SUM),
    "a person in two lots, seen": (GroupRows, "iterate_parts", halved, people.check_rows, SUM),
    "a person in two parts": (
        GroupRows, "iterate_parts", split_between_parts, people.check_replay, SUM,
    ),
    "a person in two parts, seen": (
        GroupRows, "iterate_parts", split_between_parts, people.check_rows, SUM,
    ),
    "k is not kept": (Groups, "at_most", no_limit, people.check_rows, SUM),
    "clipped before joined": (
        ClippedGradientSum, "__call__", clip_before_joining, people.check_replay, SUM,
    ),
    "the sum is added, the mean clipped": (
        GroupedExamples, "factors", sum_at_the_norm_of_the_mean, people.check_replay,
        case_of("DPSGDClassifier", max_group_size=5),
    ),
    "rows at right angles": (
        OuterProduct, "joint_norms", without_cross_terms, people.check_replay, SUM,
    ),
    "who has nothing is counted": (
        GroupedExamples, "has_only", counts_who_has_nothing, people.check_replay,
        NETWORKS["adaptive"],
    ),
    "a part is lost": (GroupRows, "iterate_parts", forgets_the_rest, people.check_rows, SUM),
}  # fmt: skip


@pytest.mark.everyday(5)
@pytest.mark.heavy
@pytest.mark.parametrize("name", MUTANTS)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # the mutants compute with NaN
def test_planted_bug_is_caught(name):
    owner, attribute, make, check, case = MUTANTS[name]
    with (
        mock.patch.object(owner, attribute, make(getattr(owner, attribute))),
        pytest.raises(AssertionError),
    ):
        check(case)
