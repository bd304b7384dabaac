"""The paper's figures are drawn from data that holds what the paper says of them."""

import json
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from sirgcn import cli
from sirgcn.report.paper_figures import (
    FIGURES,
    count_sample,
    find_figure,
    lookup_sample,
    quadrant_places,
    soft_injective,
    write_figures,
)
from sirgcn.report.plots import FORMATS


def test_every_figure_of_the_paper_is_there_once() -> None:
    assert [entry.number for entry in FIGURES.values()] == [1, 2, 3, 4, 5]
    assert all(entry.draw.__doc__ for entry in FIGURES.values())


def test_figure_1_shows_the_squares_and_the_paper_s_numbers() -> None:
    middle = soft_injective().axes[1]
    curve = middle.lines[0]
    h, g = (torch.as_tensor(side) for side in curve.get_data())
    # Roots of squared distances keep half of the digits.
    torch.testing.assert_close(g, h**2, rtol=0, atol=1e-6)
    texts = [text.get_text() for text in soft_injective().axes[2].texts]
    # The paper's coordinates: 1.6641, 1.69 and 0.25.
    assert [text for text in texts if "=" in text] == [
        "$g(h^{(1)}) = 1.66$",
        "$g(h^{(2)}) = 1.69$",
        "$g(h^{(3)}) = 0.25$",
    ]


def test_figure_3_puts_every_model_where_the_paper_does() -> None:
    places = quadrant_places()
    for name, (is_anisotropic, is_sum) in {
        "GCN": (False, False),
        "GraphSAGE": (False, False),
        "GAT": (True, False),
        "GIN": (False, True),
        "SIR-GCN, sum": (True, True),
        "SIR-GCN, mean": (True, False),
        "SIR-GCN, sum, W_Q = 0": (False, True),
        "SIR-GCN, mean, W_Q = 0": (False, False),
    }.items():
        place = places[name]
        assert (place.context > 0.01) == is_anisotropic, name
        assert is_anisotropic or place.context < 1e-12, name
        assert place.growth == pytest.approx(float(is_sum), abs=1e-12), name
    assert quadrant_places() == places


def test_figure_4_is_a_lookup_with_its_answers() -> None:
    data = lookup_sample()
    assert data.num_nodes == 8
    attribute, value = data.x.T
    keys = dict(zip(attribute[4:].tolist(), value[4:].tolist(), strict=True))
    assert data.y.tolist() == [keys[a] for a in attribute[:4].tolist()]


def test_figure_5_counts_the_edges_that_it_draws_thick() -> None:
    data = count_sample()
    source, target = data.edge_index
    assert int((data.x[source] != data.x[target]).sum()) == int(data.y)
    (axes,) = FIGURES["hetero-edge-count"].draw().axes
    thick = [patch for patch in axes.patches if patch.get_linewidth() > 2]
    assert len(thick) == int(data.y)
    assert len(axes.patches) == source.numel()


@pytest.mark.parametrize("format_", FORMATS)
def test_figures_are_written_and_repeat_byte_for_byte(tmp_path: Path, format_: str) -> None:
    first, second = (write_figures(["1", "figure5"], tmp_path / folder, format_) for folder in ("one", "other"))
    assert [path.name for path in first] == [
        f"figure1-soft-injective.{format_}",
        f"figure5-hetero-edge-count.{format_}",
    ]
    for one, other in zip(first, second, strict=True):
        assert one.read_bytes() == other.read_bytes()
        assert one.stat().st_size > 2000


@pytest.mark.parametrize("name", ["2", "figure2", "Contours", "figure2-contours"])
def test_a_figure_is_found_by_number_and_name(name: str) -> None:
    assert find_figure(name).name == "contours"
    assert find_figure("hetero_edge_count").number == 5


def test_the_command_draws_all_and_says_where(tmp_path: Path) -> None:
    found = CliRunner().invoke(
        cli.app, ["figures", "--out", str(tmp_path), "--format", "svg", "--json"], catch_exceptions=False
    )
    rows = json.loads(found.output)
    assert [row["figure"] for row in rows] == [1, 2, 3, 4, 5]
    for row in rows:
        assert Path(row["written"]).read_text("utf-8").startswith("<?xml")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["6"], r"figure: expected a number from 1 to 5 or one of soft-injective, .*, got '6'"),
        (["2", "--format", "gif"], "format: expected one of png, svg, pdf, got 'gif'"),
    ],
)
def test_the_command_refuses_what_it_does_not_know(tmp_path: Path, arguments: list[str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        CliRunner().invoke(cli.app, ["figures", *arguments, "--out", str(tmp_path / "out")], catch_exceptions=False)
    assert not (tmp_path / "out").exists()
