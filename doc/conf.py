"""Sphinx configuration."""

from importlib import import_module
from pathlib import Path

from skprivacy import __version__

project = "skprivacy"
author = "the skprivacy developers"
copyright = "2026, the skprivacy developers"
version = release = __version__

extensions = ["sphinx.ext.autodoc", "sphinx.ext.autosummary", "sphinx.ext.mathjax", "numpydoc"]
autosummary_generate = True
autodoc_member_order = "bysource"
numpydoc_show_class_members = False
numpydoc_class_members_toctree = False
exclude_patterns = ["_build"]
html_theme = "alabaster"
html_theme_options = {
    "description": "Train private models and prove how private they are.",
    "fixed_sidebar": True,
    "page_width": "1080px",
}
html_sidebars = {"**": ["about.html", "navigation.html", "searchbox.html"]}
# Methods inherited from scikit-learn refer to labels of its own user guide.
suppress_warnings = ["ref.ref"]

# The reference lists what each part exports, so that a new name needs no line of documentation.
REFERENCE = {
    "Private networks": "neural_network",
    "Private linear models": "linear_model",
    "Private ensembles": "ensemble",
    "Fine-tuning": "fine_tuning",
    "Private labels": "label_privacy",
    "Preprocessing and statistics": "preprocessing",
    "Defences without proof": "defences",
    "Attacks": "attacks",
    "Scores of records": "attacks.scores",
    "Records for an attacker who has none": "attacks.synthesis",
    "Model inversion": "attacks.inversion",
    "Audits": "audit",
    "Certificates": "certificates",
    "Saved models": "persistence",
    "Sweeps": "model_selection",
    "Plots": "display",
    "Accounting": "accounting",
    "Mechanisms": "mechanisms",
    "Data sets": "datasets",
    "Metrics": "metrics",
    "Errors and warnings": "exceptions",
    "For estimators of your own": "base",
    "Public facts of a private fit": "public_facts",
}
CONFIGURATION = ["config_context", "get_config", "set_config"]  # of the package itself


def reference() -> str:
    """Return the page that lists every public class and function."""
    lines = ["Reference", "=========", "", ".. currentmodule:: skprivacy", ""]
    listed = {}
    for title, part in REFERENCE.items():
        module = import_module(f"skprivacy.{part}")
        names = [name for name in module.__all__ if callable(getattr(module, name))]
        listed[title] = [f"{part}.{name}" for name in names]
    for title, names in (listed | {"Configuration": CONFIGURATION}).items():
        lines += [title, "-" * len(title), "", ".. autosummary::", "   :toctree: generated", ""]
        lines += [*(f"   {name}" for name in names), ""]
    return "\n".join(lines)


Path(__file__).with_name("api.rst").write_text(reference(), encoding="utf-8")
