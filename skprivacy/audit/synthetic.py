"""An audit of a generator, from the records that it made."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from .._sklearn import num_samples
from .._validation import sequence
from ..accounting import PrivacyGuarantee
from ..attacks import DensityRatio, GenerativeAttack, NearestGenerated
from ..attacks._records import as_records
from .claims import NO_CLAIM
from .finding import AttackFinding
from .report import AuditReport
from .runner import check_alpha

__all__ = ["audit_synthetic"]

_NO_REFERENCE = (
    "There are no other records of the population (reference), which say how dense it is where a "
    "record lies. Pass some."
)


def audit_synthetic(
    synthetic: Any,
    X_in: Any,
    X_out: Any,
    *,
    reference: Any = None,
    guarantee: PrivacyGuarantee | None = None,
    attacks: Iterable[Any] | None = None,
    alpha: float = 0.05,
) -> AuditReport:
    """Attack synthetic records, and hold the result against the claim of their generator.

    Parameters
    ----------
    synthetic : array-like or DataFrame of shape (n_synthetic, n_columns)
        Records that the generator made: many, since they cost it nothing.
    X_in : array-like or DataFrame of shape (n_in, n_columns)
        Records that it was trained on.
    X_out : array-like or DataFrame of shape (n_out, n_columns)
        Records of the same population that it was not trained on.
    reference : array-like or DataFrame of shape (n_reference, n_columns), default=None
        Further such records, which the attacker has. None leaves an attack that needs none.
    guarantee : PrivacyGuarantee, default=None
        The claim to test, ``privacy_`` of the generator. None: there is none.
    attacks : iterable, default=None
        Attacks with ``fit(generated, reference)`` and ``evaluate(X_in, X_out)``. None means
        :class:`~skprivacy.attacks.NearestGenerated` and, with ``reference``,
        :class:`~skprivacy.attacks.DensityRatio` and
        :class:`~skprivacy.attacks.GenerativeAttack`.
    alpha : float, default=0.05
        Error probability: a true claim is reported as violated with at most this probability, over
        all attacks together.

    Returns
    -------
    AuditReport
        With a finding for each attack.

    Raises
    ------
    ValueError
        If there are too few records, or columns differ.

    Notes
    -----
    **Guarantees.** Those of :func:`~skprivacy.audit.audit`: a measured epsilon is a LOWER bound,
    which refutes a claim and never confirms one; records are taken for independent given the
    generator. What attacks see of a good generator is little: of one with a proof, nothing is to
    be expected.

    Examples
    --------
    >>> import numpy as np
    >>> from skprivacy.audit import audit_synthetic
    >>> rng = np.random.default_rng(0)
    >>> people = rng.normal(size=(2000, 3))
    >>> copies = people[rng.integers(0, 500, 5000)] + 0.05 * rng.normal(size=(5000, 3))
    >>> report = audit_synthetic(copies, people[:500], people[500:1000], reference=people[1000:])
    >>> report.epsilon_lower_bound > 2
    True
    """
    check_alpha(alpha)
    if guarantee is not None and not isinstance(guarantee, PrivacyGuarantee):
        raise TypeError(
            f"guarantee={guarantee!r} must be a PrivacyGuarantee, such as privacy_ of a fitted "
            "synthesizer, or None."
        )
    for name, group in (("X_in", X_in), ("X_out", X_out)):
        if num_samples(as_records(group, name)) < 2:
            raise ValueError(f"{name} must hold at least 2 records; got {num_samples(group)}.")
    chosen = _usual(reference) if attacks is None else list(sequence("attacks", attacks))
    if not chosen:
        raise ValueError("attacks is empty; expected at least one attack, or None.")
    if not all(hasattr(attack, "fit") and hasattr(attack, "evaluate") for attack in chosen):
        raise TypeError(f"attacks={attacks!r} must be attacks on generators, or None.")
    synthetic = as_records(synthetic, "synthetic")
    findings = []
    for attack in chosen:
        result = attack.fit(synthetic, reference).evaluate(X_in, X_out)
        findings.append(AttackFinding.of(result, guarantee, alpha, alpha / len(chosen)))
    left_out = attacks is None and reference is None
    return AuditReport(
        model=f"a generator, by {num_samples(synthetic)} of its records",
        guarantee=guarantee,
        findings=tuple(findings),
        reason=NO_CLAIM if guarantee is None else "",
        uncovered={},
        charged=guarantee,
        n_train=num_samples(X_in),
        n_test=num_samples(X_out),
        train_accuracy=float("nan"),
        test_accuracy=float("nan"),
        majority_share=float("nan"),
        alpha=float(alpha),
        n_shadows=0,
        n_shared=0,
        not_measured=("DensityRatio", "GenerativeAttack") if left_out else (),
        why_not_measured=_NO_REFERENCE,
    )


def _usual(reference: Any) -> list[Any]:
    if reference is None:
        return [NearestGenerated()]
    return [NearestGenerated(), DensityRatio(), GenerativeAttack()]
