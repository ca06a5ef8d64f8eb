"""Every public entry gets odd input somewhere here, or it is said why not."""

from __future__ import annotations

from importlib import import_module

import pytest

import skprivacy

from . import (
    test_accounting,
    test_attacks,
    test_audits,
    test_datasets,
    test_estimators,
    test_files,
    test_mechanisms,
    test_metrics,
    test_parts,
    test_selection,
    test_tables,
)

PACKAGES = [
    "accounting", "attacks", "audit", "certificates", "cli", "datasets", "defences", "display",
    "ensemble", "exceptions", "federated", "fine_tuning", "label_privacy", "linear_model",
    "mechanisms", "metrics", "model_selection", "neural_network", "persistence", "preprocessing",
    "synthesis",
]  # fmt: skip
NOTED = {
    "a test of its own in the file": {
        test_accounting: {
            "Event", "PrivacyBudget", "PrivacyGuarantee", "charge"
        },
        test_audits: {
            "certificate", "verify_certificate", "load_model", "save_model", "config_context",
            "get_config", "set_config",
        },
        test_files: {"main"},
        test_metrics: {"MembershipRocDisplay"},
        test_selection: {"PrivacySweepCV", "PrivateSearchCV", "make_leakage_scorer"},
        test_tables: {"MarginalSynthesizer", "private_summary", "open_parquet",
        "private_histogram"},
    },
}  # fmt: skip
# In tables of functions and classes.
TABLES = [
    test_accounting.EVENTS, test_accounting.ASKED, test_attacks.MEMBERSHIP, test_attacks.METHODS,
    test_attacks.FUNCTIONS, test_audits.CALLS, test_datasets.CALLS, test_estimators.PRIVATE,
    test_estimators.PLAIN, test_mechanisms.MECHANISMS, test_mechanisms.FUNCTIONS,
    test_metrics.CALLS, test_parts.CALLS, test_parts.ESTIMATORS, test_parts.HEADS,
    test_parts.SENSITIVITIES, test_selection.CALLS, test_tables.FUNCTIONS, test_tables.RELEASES,
]  # fmt: skip
EXEMPT = {
    "a result, which the library makes": {
        "AttackFinding", "AttributeResult", "AuditReport", "Check", "Claim", "ColumnCheck",
        "DisclosureCheck", "DisclosureReport", "EpsilonEstimate", "EpsilonInterval",
        "GroupExposure", "GuessBound", "InversionResult", "LabelAuditReport",
        "LabelInferenceResult", "OneRunAuditReport", "OperatingPoint", "PrivacyLossDistribution",
        "PrivacyVerificationReport", "Receipt", "Reservation", "RowsPerGroup",
        "SanitizedCost", "SchemaCheck", "SchemaDraft", "SearchPlan", "Smoothed", "Summary",
        "SynthesizerAuditReport", "SyntheticQuality", "UtilityLoss", "CertificateVerification",
    "VoteAnalysis",
    },
    "abstract": {"Aggregator", "Head", "Mechanism", "MembershipAttack"},
    "an exception or a warning": {
        "LedgerError", "NoLossDistributionError",
        "BudgetExceededError", "DatasetNotFoundError", "PrivacyLeakWarning", "PrivacyWarning",
        "SyntheticTrainingError", "WorkLimitError",
    },
    "a constant": {"ACCOUNTANTS", "DEFAULT_ORDERS", "RELATIONS", "__version__"},
    "as scikit-learn's displays, it keeps what it is given and matplotlib draws it": {
        "PrivacyUtilityDisplay",
    },
}  # fmt: skip


def _name(entry):
    return entry if isinstance(entry, str) else entry.__qualname__.partition(".")[0]


FUZZED = {
    *(_name(entry) for table in TABLES for entry in table),
    *(name for files in NOTED.values() for names in files.values() for name in names),
}
EXEMPTED = {name for names in EXEMPT.values() for name in names}


@pytest.mark.parametrize("package", [None, *PACKAGES])
def test_every_public_entry_gets_odd_input(package):
    module = import_module(f"skprivacy.{package}") if package else skprivacy
    missing = set(module.__all__) - FUZZED - EXEMPTED
    assert not missing, f"write a fuzz of {sorted(missing)}, or say why there is none"


def test_every_exemption_is_needed():
    public = {
        name for package in PACKAGES for name in import_module(f"skprivacy.{package}").__all__
    } | set(skprivacy.__all__)
    assert public >= EXEMPTED
    assert not EXEMPTED & FUZZED
