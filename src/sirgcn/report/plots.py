"""The look of our plots, and files that repeat byte for byte.

The colours are those of Okabe and Ito, which colour-blind readers can tell apart.
"""

from contextlib import AbstractContextManager
from io import BytesIO
from pathlib import Path

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from sirgcn.files import write_atomic
from sirgcn.strict import check_name

FORMATS = ("png", "svg", "pdf")
"""The formats in which `save_plot` can write a figure."""

BLUE, ORANGE, GREEN, VERMILION, GREY = "#0072b2", "#e69f00", "#009e73", "#d55e00", "#6b7280"

_DATES = {"svg": "Date", "pdf": "CreationDate"}


def plot_style(salt: str = "sirgcn") -> AbstractContextManager[None]:
    """matplotlib's settings for our figures. Figures that contain formulas must be drawn within this context.

    >>> with plot_style():
    ...     matplotlib.rcParams["mathtext.fontset"]
    'cm'
    """
    return matplotlib.rc_context({"mathtext.fontset": "cm", "svg.hashsalt": salt})


def new_plot(width: float = 8, height: float = 4.5) -> tuple[Figure, Axes]:
    """An empty figure, in inches, with one pair of axes that has no frame at the top and on the right.

    >>> figure, axes = new_plot(4, 3)
    >>> axes.plot([1, 2, 3])[0].axes is figure.axes[0]
    True
    """
    figure = Figure(figsize=(width, height), layout="constrained")
    axes = figure.subplots()
    open_frame(axes)
    return figure, axes


def open_frame(axes: Axes) -> None:
    """Remove the frame of a plot at the top and on the right."""
    axes.spines[["top", "right"]].set_visible(False)


def save_plot(figure: Figure, path: str | Path) -> Path:
    """Write a figure in the format that the path ends with. The file is there in full or not at all.

    Equal figures give equal bytes: the file contains no date and no random name.

    >>> import tempfile
    >>> save_plot(new_plot()[0], Path(tempfile.mkdtemp()) / "empty.svg").read_text()[:5]
    '<?xml'
    """
    path = Path(path)
    format_ = path.suffix.removeprefix(".")
    check_name("format", format_, FORMATS)
    metadata = {_DATES[format_]: None} if format_ in _DATES else None
    drawn = BytesIO()
    # The salt makes the names of the parts of an SVG file repeat.
    with plot_style(salt=path.stem):
        figure.savefig(drawn, format=format_, dpi=150, metadata=metadata)
    write_atomic(path, drawn.getvalue())
    return path
