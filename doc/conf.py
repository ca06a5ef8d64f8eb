"""Sphinx configuration."""

from importlib import import_module
from pathlib import Path

from skprivacy import _PUBLIC, __version__

project = "skprivacy"
author = "the skprivacy developers"
copyright = "2026, the skprivacy developers"
version = release = __version__

extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.intersphinx",
    "sphinx.ext.mathjax",
    "numpydoc",
    "sphinx_copybutton",
    "sphinx_design",
    "sphinx_gallery.gen_gallery",
]
autosummary_generate = True
templates_path = ["_templates"]  # a page for each class, with all its methods
autodoc_member_order = "bysource"
autodoc_typehints = "none"  # the docstrings describe the types, and a signature stays readable
numpydoc_show_class_members = False
numpydoc_class_members_toctree = False
exclude_patterns = ["_build"]
toc_object_entries_show_parents = "hide"  # or names of methods are cut
# Texts of other libraries refer to what has no page of ours.
nitpick_ignore = [
    ("py:class", "sklearn.utils.metadata_routing.MetadataRequest"),
    ("py:meth", "torch.nn.Module.parameters"),
]
# Docstrings of Python's mappings are not in the form of numpydoc.
nitpick_ignore_regex = [("py:class", r".* providing a view on D's .*|D\[k\] if k in D.*")]
# Methods inherited from scikit-learn refer to labels of its own user guide.
suppress_warnings = ["ref.ref"]

# The network is asked first. Where there is none, a short list beside this file has the few names
# that our pages refer to: a build must neither fail nor lose its links for want of a network.
intersphinx_mapping = {
    name: (url, (None, f"inventories/{name}.txt"))
    for name, url in {
        "numpy": "https://numpy.org/doc/stable/",
        "pandas": "https://pandas.pydata.org/docs/",
        "python": "https://docs.python.org/3/",
        "sklearn": "https://scikit-learn.org/stable/",
    }.items()
}
intersphinx_timeout = 5

# Every example named plot_*.py is run while the pages are built; a failing one fails the build.
sphinx_gallery_conf = {
    "examples_dirs": "../examples",
    "gallery_dirs": "gallery",
    "subsection_order": [f"../examples/{part}" for part in ("train", "choose", "audit", "papers")],
    "within_subsection_order": "ExampleTitleSortKey",
    "filename_pattern": "/plot_",
    "abort_on_example_error": True,
    "image_scrapers": ("matplotlib",),
    "matplotlib_animations": False,
    "min_reported_time": 5,
    "download_all_examples": False,
    "remove_config_comments": True,
    "show_memory": False,
}

html_theme = "pydata_sphinx_theme"
html_title = f"skprivacy {version}"
html_static_path = ["_static"]
html_css_files = ["skprivacy.css"]
html_show_sourcelink = False
html_theme_options = {
    "logo": {"text": "skprivacy"},
    "header_links_before_dropdown": 6,
    "navbar_align": "left",
    "navigation_with_keys": False,
    "show_toc_level": 2,
    "secondary_sidebar_items": ["page-toc"],
    "footer_start": ["copyright"],
    "footer_end": [],
}
html_sidebars = {"index": []}
# A prompt is not part of what one copies.
copybutton_exclude = ".linenos, .gp, .go"

# The reference lists what each part exports, so that a new name needs no line of documentation.
REFERENCE = {
    "Private networks": "neural_network",
    "Private linear models": "linear_model",
    "Private additive models": "additive_model",
    "Private ensembles": "ensemble",
    "Federations": "federated",
    "Fine-tuning": "fine_tuning",
    "Private labels": "label_privacy",
    "Synthetic tables": "synthesis",
    "Fits by sums": "sums",
    "Preprocessing and statistics": "preprocessing",
    "Defences without proof": "defenses",
    "Attacks": "attacks",
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
}
CONFIGURATION = ["config_context", "get_config", "set_config"]  # of the package itself


def reference() -> str:
    """Return the page that lists every public class and function."""
    title = "Classes and functions"
    lines = [title, "=" * len(title), ""]
    for title, part in REFERENCE.items():
        module = import_module(f"skprivacy.{part}")
        names = [name for name in module.__all__ if callable(getattr(module, name))]
        lines += [title, "-" * len(title), "", f".. module:: skprivacy.{part}", "", *table(names)]
    lines += ["Configuration", "-------------", "", ".. currentmodule:: skprivacy", ""]
    return "\n".join([*lines, *table(CONFIGURATION)])


def table(names: list[str]) -> list[str]:
    """Return a table of names of the current module, and a page for each."""
    options = ["   :nosignatures:", "   :toctree: ../generated"]
    return [".. autosummary::", *options, "", *(f"   {name}" for name in names), ""]


(Path(__file__).parent / "reference" / "api.rst").write_text(reference(), encoding="utf-8")


def find_short_name(app, env, node, content):
    """Return the link of ``skprivacy.NAME`` to the page of the part that NAME comes from."""
    package, _, name = node.get("reftarget", "").partition(".")
    part = {**_PUBLIC, "audit": "audit"}.get(name.partition(".")[0])
    if package != "skprivacy" or part is None or node.get("refdomain") != "py":
        return None
    full = f"skprivacy.{part}.{name}"
    domain = env.get_domain("py")
    return domain.resolve_xref(
        env, node["refdoc"], app.builder, node["reftype"], full, node, content
    )


def setup(app):
    """Connect the events of this configuration."""
    app.connect("missing-reference", find_short_name)
