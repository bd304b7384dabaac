import runpy
import tomllib
from pathlib import Path

from sphinx.application import Sphinx

project = "sirgcn"
author = "The sirgcn authors"
copyright = "2026, The sirgcn authors"
# Not that of the installed package, which an editable install leaves behind when the number changes.
PROJECT = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text("utf-8"))["project"]
release = version = str(PROJECT["version"])

# MathJax comes with the pages, so that formulas show without a network.
extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx-mathjax-offline",
    "sphinx.ext.napoleon",
]
default_role = "code"
exclude_patterns = ["_build"]

myst_enable_extensions = ["amsmath", "colon_fence", "dollarmath"]
myst_heading_anchors = 3

napoleon_google_docstring = True
napoleon_numpy_docstring = False

autodoc_member_order = "bysource"
autodoc_default_options = {
    "members": True,
    "exclude-members": "extra_repr, init_conv, set_fit_request, set_score_request",
}
autodoc_typehints_format = "short"

html_theme = "furo"
html_title = f"sirgcn {release}"
# The interactive Figure 2.
html_static_path = ["_static"]


def draw_figures(app: Sphinx) -> None:
    """The paper's figures and the learning curves of our runs, anew at every build."""
    from sirgcn.report.learning import write_curves
    from sirgcn.report.paper_figures import write_figures

    source = Path(app.srcdir)
    write_figures(folder=source / "_generated", format="svg")
    pages = [page.read_text("utf-8") for page in (source / "tuned.md", source / "results.md")]
    write_curves(pages, source.parent / "results", source / "_generated")


def write_notebooks(app: Sphinx) -> None:
    """The notebooks as pages, with the outputs that were recorded."""
    tool = runpy.run_path(str(Path(app.srcdir).parent / "tools" / "notebooks.py"))
    tool["write_pages"](Path(app.srcdir) / "_generated" / "notebooks")


def setup(app: Sphinx) -> None:
    app.connect("builder-inited", draw_figures)
    app.connect("builder-inited", write_notebooks)
