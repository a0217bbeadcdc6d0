"""How Sphinx makes the site: ``make docs``."""

import re
import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parent), str(HERE.parent / "src")]

from bagwise import __version__  # noqa: E402
from tools.site import with_contents, without_links_outside, write_reference  # noqa: E402

project = "bagwise"
author = "The bagwise developers"
copyright = "the bagwise developers"  # noqa: A001 (Sphinx asks for this name)
release = version = __version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.mathjax",
    "sphinx.ext.napoleon",
    "sphinx-mathjax-offline",  # formulas without a network
]
source_suffix = {".md": "markdown"}
exclude_patterns = ["conf.py"]
myst_heading_anchors = 4
myst_enable_extensions = ["colon_fence", "deflist", "dollarmath"]

# Docstrings name things in single backticks.
default_role = "literal"
autodoc_typehints = "none"
autodoc_member_order = "bysource"
napoleon_google_docstring = False
napoleon_custom_sections = ["Guarantee"]
napoleon_use_ivar = True

# Shapes such as (n_rows,) are no links.
suppress_warnings = ["ref.python"]

# A page that shows commands must not turn two hyphens into a dash.
smartquotes = False

html_theme = "furo"
html_static_path = ["_static"]
html_css_files = ["site.css"]
# Pages whose title has the word come first; excerpts follow where the site comes from a server.
html_search_scorer = str(HERE / "scorer.js")
html_title = f"bagwise {__version__}"
html_copy_source = False
html_show_sourcelink = False
# Nothing is fetched from anywhere: fonts are the reader's, and the search is a file of the site.
html_theme_options = {"footer_icons": []}


def setup(app):
    """Write the reference before pages are read, and name files that are not part of the site."""
    app.connect("builder-inited", lambda _app: write_reference(HERE / "_generated"))
    app.connect("source-read", _read)
    app.connect("autodoc-skip-member", _skip)


def _skip(_app, _what, name, _thing, _skipped, _options):
    # Made by scikit-learn for routing, with links into its own documentation.
    return True if re.fullmatch(r"set_\w+_request", name) else None


def _read(_app, name, source):
    page = without_links_outside(source[0], folder=(HERE / name).parent, site=HERE)
    source[0] = with_contents(page, name=name)
