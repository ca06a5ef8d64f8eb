"""Report of a privacy audit: verdict, tables, JSON and a printable page."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from os import PathLike
from typing import Any, ClassVar

import numpy as np
import pandas as pd

from ..._files import output_path, write_file
from ..._report_facts import FactReport, ReportFacts, render_brief
from ..._validation import flag
from ...attacks.shadow_pool import MODELS_DO_NOT_LEARN
from ...metrics.evidence import Evidence
from ..comparability.blind_baseline import BlindBaseline
from ..comparability.matched_pairs import MatchedPairs
from ..inspection.claims import CHOSEN, NO_CLAIM, Claim
from ..inspection.disclosure_report import DisclosureReport
from . import html_report
from .caveats import explain_exchange, list_caveats
from .document import About, about_or_empty
from .facts import audit_facts
from .findings import (
    AttackFinding,
    GroupExposure,
    claimed_delta,
    evidence_against,
    exposed_records,
    refutation,
)

FEW = 100  # with fewer members or non-members, the report states the largest epsilon it could show


@dataclass(frozen=True, repr=False)
class AuditReport(FactReport):
    """Claimed privacy of a model compared with the leakage that attacks measured.

    Returned by :func:`~skprivacy.audit.audit`.

    Attributes
    ----------
    model : str
        The model and its parameters.
    guarantee : PrivacyGuarantee or None
        Claim of all private steps together. It is of kind "estimate" if a step is not covered.
    findings : tuple
        One for each attack: ``result`` (an :class:`~skprivacy.attacks.AttackResult`),
        ``epsilon_lower_bound``, ``points`` (rates at each reported false positive rate),
        ``refutation`` (how the attack contradicts the claimed trade-off curve, in words) and
        ``shown_by`` (the test that shows the epsilon, in words).
    reason : str
        Why the model makes no claim, beginning with "no claim"; empty if it makes one.
    uncovered : dict
        Steps of a pipeline that read private data outside the guarantee, with the reason.
    charged : PrivacyGuarantee or None
        Joint cost of all fits, including the candidates of a search; None if it is not known.
    n_train, n_test : int
        Number of members and of non-members, in the unit of ``attacked``.
    train_accuracy, test_accuracy : float
        Accuracy on members and on non-members; NaN for models without classes.
    majority_share : float
        Share of the most frequent class among the non-members: the accuracy of a constant guess.
    alpha : float
        Error probability of the verdict and of each interval.
    n_shadows : int
        Number of shadow models trained for the audit.
    n_shared : int
        Number of non-members whose features equal those of a member.
    not_measured : tuple of str
        Attacks that were not run.
    why_not_measured : str
        The reason, in words.
    disclosure : DisclosureReport or None
        Result of :func:`~skprivacy.audit.check_disclosure`; None if that check was not run.
    exposures : tuple
        Success of each attack within each class and subgroup, most exposed first: the rows of
        :meth:`by_group`.
    attacked : str
        Unit of membership: "record", or the name of the ``groups`` passed to the audit.
    copied : str
        Evidence that the records depend on each other; empty if there is none.
    ledger_caveats : tuple of str
        Limits of the ledger of the model's budget: whether a restored older copy is noticed.
    released_digest : str
        SHA-256 of the numbers that ``save_model`` writes of the model. A certificate of another
        model refuses the report. Empty for a model that cannot be saved.
    own_claim : Claim or None
        The model's own claim, if the audit tested a passed claim instead; otherwise None.
    baseline : object or None
        Whether the samples differ by more than membership, found without the model: ``compared``,
        ``auc``, ``p_value`` and ``differs``. None where the audit's own coins chose the members.
    pairs : object or None
        Evidence on pairs of similar members and non-members, if the samples differ: ``n_pairs``,
        ``attack``, ``epsilon_lower_bound`` (None with fewer than 100 pairs) and ``factor``, by
        which records must be more frequent on one side for the claim to allow the evidence.
    of_labels : bool
        Whether attacks guessed labels and not membership, as the claim protects labels only. The
        canaries with true labels then count as members, those with flipped labels as non-members.
    """

    model: str
    guarantee: Any
    findings: tuple[AttackFinding, ...]
    reason: str
    uncovered: dict[str, str]
    charged: Any
    n_train: int
    n_test: int
    alpha: float
    train_accuracy: float = math.nan
    test_accuracy: float = math.nan
    majority_share: float = math.nan
    n_shadows: int = 0
    n_shared: int = 0
    not_measured: tuple[str, ...] = ()
    why_not_measured: str = MODELS_DO_NOT_LEARN
    disclosure: DisclosureReport | None = None
    exposures: tuple[GroupExposure, ...] = ()
    attacked: str = "record"
    copied: str = ""
    ledger_caveats: tuple[str, ...] = ()
    released_digest: str = ""
    own_claim: Claim | None = None
    baseline: BlindBaseline | None = None
    pairs: MatchedPairs | None = None

    of_labels: ClassVar[bool] = False

    @property
    def epsilon_lower_bound(self) -> float:
        """Largest epsilon that any attack refutes: a lower bound on the leakage of the model."""
        return max(finding.epsilon_lower_bound for finding in self.findings)

    @property
    def claim(self) -> str:
        """The claim in words."""
        return "none" if self.guarantee is None else repr(self.guarantee)

    @property
    def unit(self) -> str:
        """Protected unit: "record", or the column whose values group the records."""
        return "record" if self.guarantee is None else str(self.guarantee.unit)

    @property
    def _members(self) -> str:
        """The attacked unit, in the plural."""
        return "records" if self.attacked == "record" else f"values of {self.attacked}"

    @property
    def _member(self) -> str:
        return "record" if self.attacked == "record" else f"value of {self.attacked}"

    @property
    def cost_of_search(self) -> str:
        """Joint cost of all fits in words, if it differs from the claim; otherwise empty."""
        if self.charged is not None and self.guarantee is None:
            return repr(self.charged)
        return "unknown" if self.reason == CHOSEN else ""

    @property
    def epsilon_within_reach(self) -> float:
        """Largest ``epsilon_lower_bound`` possible with this many records: of a perfect attack."""
        return self._best_evidence().epsilon(self.claimed_delta)

    @property
    def could_refute(self) -> bool:
        """Whether a perfect attack on this many records would have refuted the claim."""
        if not self.claims or self.epsilon_within_reach > self.claimed_epsilon:
            return True
        return bool(refutation(self._best_evidence(), self.guarantee))

    def _best_evidence(self) -> Evidence:
        perfect = np.ones(self.n_train), np.zeros(self.n_test)
        return evidence_against(*perfect, self.guarantee, self.alpha / len(self.findings))

    @property
    def claimed_epsilon(self) -> float:
        """The claimed epsilon; infinite without a claim."""
        return math.inf if self.guarantee is None else float(self.guarantee.epsilon())

    @property
    def claimed_delta(self) -> float:
        """The delta of the claimed epsilon; 0 for pure differential privacy."""
        return claimed_delta(self.guarantee)

    @property
    def claims(self) -> bool:
        """Whether a finite epsilon is claimed."""
        return math.isfinite(self.claimed_epsilon)

    @property
    def verdict(self) -> str:
        """One of "consistent", "violated", "doubtful" and "no claim"; ``reason`` says why no claim.

        "consistent" means only that no attack refuted the claim. "doubtful" means that the samples
        differ by more than membership, that members score below non-members, or that records are
        copies of each other (see ``doubt``).
        """
        if not self.claims:
            return NO_CLAIM
        if any(self._refutes(finding) for finding in self.findings):
            return "violated"
        return "doubtful" if self.doubt else "consistent"

    def _refutes(self, finding: AttackFinding) -> bool:
        """Return whether one of ``findings`` refutes the claim at any point of its curve."""
        beyond = finding.epsilon_lower_bound > self.claimed_epsilon
        return self.claims and not self._unlike and (beyond or bool(finding.refutation))

    @property
    def refutations(self) -> list[str]:
        """Each contradiction of the claimed trade-off curve, in words."""
        found = [] if self._unlike else self.findings
        return [f"{f.result.attack}: {f.refutation}" for f in found if f.refutation]

    @property
    def doubt(self) -> str:
        """Why the samples cannot be random: full of copies, different, or exchanged."""
        return next(filter(None, self._sample_checks()), "")

    @property
    def _unlike(self) -> str:
        """Why no attack can refute a claim: copies, or samples that differ; empty otherwise."""
        return self.copied or ("" if self.baseline is None else self.baseline.doubt)

    def _sample_checks(self) -> Iterator[str]:
        """Yield why the samples cannot be random, by each check of them; empty if it passes."""
        yield self._unlike
        own, new = (self.train_accuracy, self.n_train), (self.test_accuracy, self.n_test)
        yield explain_exchange([finding.result for finding in self.findings], own, new, self.alpha)

    @property
    def assumptions(self) -> tuple[str, ...]:
        """Assumptions of the measured epsilon, and so of the verdict."""
        return (
            f"{self._members} are independent given the model, and those in the training data and "
            "the others were drawn from one population",
        )

    @property
    def caveats(self) -> list[str]:
        """Limitations of the claim or the measurement, in words."""
        return list_caveats(self)

    def _suspicious(self) -> list[str]:
        """Explain attacks above the ceiling; they appear in the report but refute nothing."""
        above = [
            finding.result.attack
            for finding in self.findings
            if any(p["bound"] is not None and p["low"] > p["bound"] for p in finding.points)
        ]
        if self.verdict != "consistent" or not above:
            return []
        return [
            f"{' and '.join(above)} found more members than the ceiling allows. The interval is "
            "not corrected for the number of comparisons and refutes nothing by itself. Repeat the "
            f"audit with other {self._members}, or with more of them."
        ]

    def _too_few(self) -> list[str]:
        """Warn if the audit had too few records to detect a leak."""
        few = min(self.n_train, self.n_test) < FEW
        if self.verdict == "violated" or (self.could_refute and not few):
            return []
        reason = (
            "only a gross leak could have been detected"
            if self.could_refute
            else "no leak could have refuted the claim. Audit it with more records"
        )
        return [
            f"With {self.n_train:,} members and {self.n_test:,} non-members, even a perfect attack "
            f"shows an epsilon of at most {self.epsilon_within_reach:.2g}: {reason}."
        ]

    def by_group(self) -> pd.DataFrame:
        """Return one row per class or subgroup and attack, the most exposed first.

        Over all rows together, the probability that any group is wrongly marked ``exposed`` is at
        most ``alpha`` (Holm), and so is the probability that any interval misses (Bonferroni).

        Returns
        -------
        DataFrame
            ``by`` ("class", or the name of the subgroups' column), ``group``, ``attack``, ``n_in``
            and ``n_out`` (members and non-members), ``auc``, ``auc_low``, ``auc_high``, ``p_value``
            and ``exposed``; empty if no groups were compared.
        """
        return pd.DataFrame([asdict(exposure) for exposure in self.exposures])

    @property
    def most_exposed(self) -> list[GroupExposure]:
        """The classes and subgroups exposed beyond chance, the most exposed first.

        Corrected for all attacks and groups (Holm), with the attack that exposes each group most.
        """
        return [exposure for exposure in self.strongest_on_groups if exposure.exposed]

    @property
    def strongest_on_groups(self) -> list[GroupExposure]:
        """The attack that exposes each class or subgroup most, by the lower ends of intervals."""
        strongest: dict[tuple[str, str], GroupExposure] = {}
        for exposure in self.exposures:
            strongest.setdefault((exposure.by, exposure.group), exposure)
        return list(strongest.values())

    def exposed_records(self) -> pd.DataFrame:
        """Return the training records that stand out beyond chance, by their row in ``X_train``.

        If the audit was given ``groups``, rows are group numbers, from 0 in order of appearance in
        ``X_train``. An expected share of at most ``alpha`` of the rows are false discoveries:
        they score like non-members (Benjamini and Hochberg).

        **The result discloses who is in the data.** Other forms of the report name no record
        unless ``records=True``.

        Returns
        -------
        DataFrame
            ``row``, ``attack``, ``risk`` and ``q_value``, as in
            :meth:`~skprivacy.attacks.AttackResult.records`; the most exposed first.
        """
        found = [] if self.of_labels else [finding.result for finding in self.findings]
        # Attacks trained on known members are evaluated on the other members only.
        results = [result for result in found if len(result.scores_in) == self.n_train]
        return exposed_records(results, self.alpha)

    def to_frame(self) -> pd.DataFrame:
        """Return one row per attack: its figures, the claim and the verdict.

        Returns
        -------
        DataFrame
            In the order of ``findings``.
        """
        rows = []
        for finding in self.findings:
            result = finding.result
            row: dict[str, Any] = {
                "attack": result.attack,
                "auc": result.auc,
                "auc_low": result.auc_interval[0],
                "auc_high": result.auc_interval[1],
            }
            for point in finding.points:
                name = f"tpr_at_{point['fpr']:g}"
                row |= {name: point["tpr"], f"{name}_low": point["low"]}
                row |= {f"{name}_high": point["high"]}
                row[f"{name}_bound"] = math.nan if point["bound"] is None else point["bound"]
            row["test_accuracy"] = self.test_accuracy
            row["majority_share"] = self.majority_share
            row["epsilon_lower_bound"] = finding.epsilon_lower_bound
            row["claimed_epsilon"] = self.claimed_epsilon
            row["claimed_delta"] = math.nan if self.guarantee is None else self.claimed_delta
            row["claim_kind"] = None if self.guarantee is None else self.guarantee.kind
            row["violated"] = self._refutes(finding)
            rows.append(row)
        return pd.DataFrame(rows)

    def facts(self, *, about: About | None = None, records: bool = False) -> ReportFacts:
        """Return what the report states, for text, pages and JSON alike.

        Parameters
        ----------
        about : About, default=None
            Data set, author, command and digests; it names the protected unit.
        records : bool, default=False
            Whether to include the rows of exposed records, which discloses who is in the data.

        Returns
        -------
        ReportFacts
            Sections of facts. Each has a key and a value for JSON, and a sentence for readers.
        """
        flag("records", records)
        return audit_facts(self, about_or_empty(about), records=records)

    def to_dict(self, *, records: bool = False) -> dict[str, Any]:
        """Return the findings as JSON-serialisable values, without the scores of records.

        Parameters
        ----------
        records : bool, default=False
            Whether to include the rows of exposed records. The result then discloses who is in
            the data.

        Returns
        -------
        dict
            Values for JSON.
        """
        return self.facts(records=records).to_dict()

    def to_json(
        self,
        path: str | PathLike[str] | None = None,
        *,
        about: About | None = None,
        records: bool = False,
    ) -> str:
        """Return :meth:`to_dict` and the facts in ``about`` as JSON.

        Parameters
        ----------
        path : str or PathLike, default=None
            File to write, in UTF-8; it must end in .json. None writes nothing.
        about : About, default=None
            Data set, author, command and digests.
        records : bool, default=False
            Whether to include the rows of exposed records, which discloses who is in the data.

        Returns
        -------
        str
            A JSON object.
        """
        target = None if path is None else output_path(path, ".json")
        content = {"about": about_or_empty(about).to_dict(), **self.to_dict(records=records)}
        text = json.dumps(content, allow_nan=False, indent=2)
        if target is not None:
            write_file(target, text + "\n")
        return text

    def to_html(
        self,
        path: str | PathLike[str] | None = None,
        *,
        about: About | None = None,
        records: bool = False,
    ) -> str:
        """Return the report as a self-contained page that prints on A4 and Letter.

        Parameters
        ----------
        path : str or PathLike, default=None
            File to write, in UTF-8; it must end in .html. None writes nothing.
        about : About, default=None
            Data set, author, command and digests, for the first page.
        records : bool, default=False
            Whether to list the rows of exposed records, which discloses who is in the data.

        Returns
        -------
        str
            The page. It refers to no other file. Labels, names and parameters are escaped.
        """
        target = None if path is None else output_path(path, ".html", ".htm")
        page = html_report.render_page(self, about_or_empty(about), records=records)
        if target is not None:
            write_file(target, page)
        return page

    def _repr_html_(self) -> str | None:
        return render_brief("audit_brief.html", facts=self.facts())
