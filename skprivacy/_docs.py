"""Shared paragraphs of docstrings: contract parameters and attributes of private estimators.

A docstring names a paragraph by a line that holds ``%(name)s`` alone, and the class carries the
decorator :func:`fill_docs`, which replaces such lines when the class is made. scipy, pandas and
matplotlib share their texts in the same way.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from textwrap import indent
from typing import TypeVar

__all__ = ["SHARED_DOCS", "fill_docs"]

SHARED_DOCS = {
    "epsilon": """\
epsilon : float, default=1.0
    Privacy loss of the fit, in nats. Smaller is more private. ``numpy.inf`` fits without noise
    **and without any guarantee**, for comparison.""",
    "classes": """\
classes : array-like of shape (n_classes,), default=None
    All labels that may occur, from public knowledge. ``None`` reads them off ``y``, and the
    guarantee then names this as an assumption.""",
    "budget": """\
budget : PrivacyBudget, default=None
    Budget that is charged before the fit reads private records. A fit that it cannot afford is
    refused. Copies, clones and workers charge the same budget.""",
    "noise_seed": """\
noise_seed : int, default=None
    Makes noise and sampling reproducible **and the guarantee void**. For tests only.""",
    "n_records": """\
n_records : int, default=None
    Public figure for the number of records, such as a rounded census total. With it the relation
    is add-remove: the guarantee also hides the number of records. Without it the relation is
    zero-out, and the number of records is public.""",
    "bounds": """\
bounds : tuple (lower, upper), default=None
    Public bounds of the features: two numbers, or two sequences of length n_features. With two
    features, two numbers per feature are told apart by passing two arrays. Values outside are
    clipped. ``None`` reads them off ``X``, and the guarantee then names this as an assumption.""",
    "guarantee_attributes": """\
privacy_ : PrivacyGuarantee
    The guarantee, with its neighbouring relation and its assumptions.
privacy_event_ : Event
    The release, for composition with other releases.
epsilon_ : float
    Guaranteed epsilon at ``delta_``.
delta_ : float
    Delta at which ``epsilon_`` holds.""",
    "feature_attributes": """\
n_features_in_ : int
    Number of features seen during fit.
feature_names_in_ : ndarray of shape (n_features_in_,)
    Names of the features, if all of them are strings.""",
    "classes_": """\
classes_ : ndarray of shape (n_classes,)
    The labels, sorted.""",
    "groups": """\
groups : array-like of shape (n_samples,), default=None
    Group of each record, such as a patient's number. The guarantee then protects all records of a
    group together. A Series names the unit of the guarantee.""",
    "fit_returns": """\
object
    The fitted estimator.""",
    "radius": """\
radius : float, default=None
    Records whose L2 norm exceeds ``radius``, after each feature is scaled to [-1, 1], get a weight
    below 1. Must not be chosen by looking at the data. ``None`` means sqrt(n_features) / 2.""",
    "bounds_": """\
bounds_ : tuple of two ndarrays of shape (n_features,)
    The bounds used. ``predict`` replaces a missing value by their middle.""",
    "label_estimator": """\
estimator : classifier or pipeline, default=None
    Classifier cloned and fitted to indices of classes, with a sample weight for each class of a
    record. If it takes no ``sample_weight``, labels are drawn with these weights. ``None`` means
    logistic regression on min-max scaled features.""",
    "label_rounds": """\
n_rounds : int, default=3
    Number of times that the probabilities of the true labels are estimated. All rounds use the
    labels released once, so more rounds cost time, not privacy.
n_folds : int, default=3
    Folds of the cross-fitting between rounds: a record's label is estimated by a model that was
    fitted without it.""",
    "label_epsilon": """\
epsilon : float, default=1.0
    Privacy loss of a label, in nats. Smaller is more private. ``numpy.inf`` fits to the true labels
    **without any guarantee**, for comparison.""",
}

_LINE = re.compile(r"^(?P<indent>[ ]*)%\((?P<name>\w+)\)s$", flags=re.MULTILINE)
Documented = TypeVar("Documented", bound=type | Callable)


def fill_docs(documented: Documented) -> Documented:
    """Fill in the lines ``%(name)s`` of a function's docstring, or of a class and its methods."""
    members = vars(documented).values() if isinstance(documented, type) else ()
    for member in (documented, *(getattr(m, "__func__", m) for m in members)):
        text = getattr(member, "__doc__", None)
        if isinstance(text, str) and _LINE.search(text):
            member.__doc__ = _LINE.sub(_shared_paragraph, text)
    return documented


def _shared_paragraph(line: re.Match) -> str:
    return indent(SHARED_DOCS[line["name"]], line["indent"])
