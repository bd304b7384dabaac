"""Recipes in experiment files: `preset = "tuned/minesweeper"` with any row, on the data that the recipe needs."""

from pathlib import Path
from typing import Any

import pytest
import torch

from sirgcn.engine import experiment as config
from sirgcn.engine.experiment import TrainingExperiment
from sirgcn.engine.loop import Trainer
from sirgcn.engine.network import build, config_of, readable
from sirgcn.nn import RECIPES, NetConfig
from sirgcn.strict import ConfigError
from tests.engine.standins import stand_in

WALKS = {"random_walk": 20, "edge_walks": True}
DATA: dict[str, tuple[str, dict[str, Any]]] = {
    "tuned/minesweeper": ("minesweeper", {}),
    "tuned/tolokers": ("tolokers", {}),
    "tuned/roman_empire": ("roman-empire", {}),
    "tuned/amazon_ratings": ("amazon-ratings", {}),
    "tuned/questions": ("questions", {}),
    "tuned/squirrel_filtered": ("squirrel-filtered", {}),
    "tuned/actor": ("actor", {}),
    "tuned/wikics": ("WikiCS", {}),
    "tuned/ogbn_arxiv": ("ogbn-arxiv", {}),
    "gnn_plus/zinc": ("ZINC", {"bonds": True, **WALKS}),
    "gnn_plus/molhiv": ("ogbg-molhiv", {"bonds": True, "random_walk": 20}),
    "gnn_plus/pattern": ("pattern", {"random_walk": 32, "edge_walks": True}),
    "gnn_plus/cluster": ("cluster", WALKS),
    "gnn_plus/mnist": ("mnist", {"edge_values": True}),
    "gnn_plus/cifar10": ("cifar10", {"edge_values": True}),
}
"""The data set of each recipe, and the options of its column."""


def toml(value: Any) -> str:
    return str(value).lower()


def experiment_file(folder: Path, name: str, data: str, options: dict[str, Any]) -> Path:
    path = folder / "mine.toml"
    options_text = ", ".join(f"{option} = {toml(value)}" for option, value in options.items())
    small = "options = { num_layers = 2 }"
    rows = "".join(f'[[models]]\ntitle = "{conv}"\nconv = "{conv}"\n{small}\n' for conv in ("sir", "gin", "gcn"))
    path.write_text(
        f'data = "{data}"\npreset = "{name}"\n'
        f'columns = [{{ title = "c", options = {{ {options_text} }} }}]\n'
        f"[train]\nepochs = 1\nbatch_size = 2\n{rows}"
    )
    return path


def loaded(path: Path) -> TrainingExperiment:
    found = config.load(path)
    assert isinstance(found, TrainingExperiment)
    return found


@pytest.mark.parametrize("name", DATA)
def test_an_experiment_trains_a_recipe_around_any_row(name: str, tmp_path: Path) -> None:
    data, options = DATA[name]
    entry = loaded(experiment_file(tmp_path, name, data, options))
    task = stand_in(data, options)
    for row in entry.models:
        torch.manual_seed(0)
        made = config_of(entry, row, task, options)
        assert isinstance(made, NetConfig)
        assert (made.conv.name, made.block.type) == (row.conv, RECIPES[name].block.type)
        reads_edges = made.edges.type != "none"
        assert reads_edges == (RECIPES[name].edges.type != "none" and row.conv != "gcn")
        trainer = Trainer(build(entry, row, task, options), readable(entry, row, task), entry.train_for(row))
        assert len(trainer.run().history) == 1


def test_every_recipe_with_data_in_the_catalogue_is_tried() -> None:
    # Cora's published row has a split of its own.
    assert DATA.keys() == RECIPES.keys() - {"tuned/cora"}


def test_data_without_the_encodings_of_a_recipe_are_refused(tmp_path: Path) -> None:
    entry = loaded(experiment_file(tmp_path, "gnn_plus/zinc", "ZINC", {"bonds": True}))
    for options, message in (
        ({"bonds": True}, "encodings of 20 columns, got 0: the option random_walk"),
        ({"bonds": True, "random_walk": 5}, "encodings of 20 columns, got 5"),
        ({"bonds": True, "random_walk": 20}, "encodings of edges of 20 columns, got 0: the options random_walk and"),
    ):
        with pytest.raises(ConfigError, match=f"mine: sir: expected .*{message}"):
            build(entry, entry.models[0], stand_in("ZINC", options), options)


def test_wrong_walks_and_unknown_recipes_are_refused_with_their_place(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"columns\[0\]: options: random_walk: expected at least 0, got -1"):
        loaded(experiment_file(tmp_path, "gnn_plus/zinc", "ZINC", {"random_walk": -1}))
    with pytest.raises(ConfigError, match=r"columns\[0\]: options: .*got 'random_wlk'; did you mean random_walk"):
        loaded(experiment_file(tmp_path, "gnn_plus/zinc", "ZINC", {"random_wlk": 3}))
    with pytest.raises(ConfigError, match=r"preset: expected one of .*got 'tuned/minesweper'; did you mean tuned/"):
        loaded(experiment_file(tmp_path, "tuned/minesweper", "minesweeper", {}))
