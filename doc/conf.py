"""Sphinx configuration."""

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
