"""Docstring paragraphs of the contract's parameters and attributes, and how docstrings take them.

A line of a docstring that holds ``%(name)s`` alone stands for the paragraph of that name. The
decorator :func:`fill_docs` replaces such lines when the class or function is defined. scipy, pandas
and matplotlib share their texts in the same way. ``CONTRACT_DOCS`` holds the paragraphs for all
packages; a package passes its own ones: ``@fill_docs(NETWORK_DOCS)``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import partial
from textwrap import indent
from typing import Any, TypeVar, overload

CONTRACT_DOCS = {
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
relation : {"zero_out", "add_remove"}, default="zero_out"
    Neighbouring relation. "zero_out" replaces one record by one that contributes nothing, and the
    number of records is public. "add_remove" adds or removes one record, which hides their number;
    it needs ``n_records``.
n_records : int, default=None
    Public figure for the number of records, such as a rounded census total. Only for
    ``relation="add_remove"``.""",
    "bounds": """\
bounds : tuple (lower, upper), default=None
    Public bounds of the features: two numbers, or two sequences of length n_features. With two
    features, pass two arrays for bounds per feature. Values outside are
    clipped. ``None`` reads them off ``X``, and the guarantee then names this as an assumption.""",
    "target_scale": """\
target_scale : {"linear", "log"}, default="linear"
    Scale on which the target is learned. "log" suits targets that are usually near their lower
    bound, such as counts and prices. The model then learns the mean of
    t = log(1 + (y - lower) / unit), where unit is (upper - lower) / 100, in the units of the
    target. With bounds (0, 100), t is log(1 + y). Predictions are in the units of the target, but
    estimate a geometric mean, which is below the mean.""",
    "target_scale_": """\
target_scale_ : {"linear", "log"}
    The scale of the last fit, on which ``predict`` relies.""",
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
feature_names_in_ : ndarray of shape (n_features,)
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
}

_LINE = re.compile(r"^(?P<indent>[ ]*)%\((?P<name>\w+)\)s$", flags=re.MULTILINE)
Documented = TypeVar("Documented", bound=type | Callable)


@overload
def fill_docs(target: Mapping[str, str]) -> Callable[[Documented], Documented]: ...


@overload
def fill_docs(target: Documented) -> Documented: ...


def fill_docs(target: Any) -> Any:
    """Replace the lines ``%(name)s`` in the docstrings of a class and its methods, or a function.

    Use ``@fill_docs`` for paragraphs of ``CONTRACT_DOCS`` alone, and ``@fill_docs(paragraphs)`` for
    those and a package's own.
    """
    if isinstance(target, Mapping):
        return partial(_fill, paragraphs={**CONTRACT_DOCS, **target})
    return _fill(target, CONTRACT_DOCS)


def _fill(documented: Documented, paragraphs: Mapping[str, str]) -> Documented:
    """Replace the lines of one object and, for a class, of the members that it defines itself."""
    members = vars(documented).values() if isinstance(documented, type) else ()
    for member in (documented, *(getattr(m, "__func__", m) for m in members)):
        text = getattr(member, "__doc__", None)
        while isinstance(text, str) and _LINE.search(text):  # a paragraph may hold others
            text = member.__doc__ = _LINE.sub(
                lambda line: indent(paragraphs[line["name"]], line["indent"]), text
            )
    return documented
