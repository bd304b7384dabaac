"""Experiments as data: what is run, as frozen dataclasses that are read strictly from TOML.

`load` reads an experiment into the class of its sort: `TrainingExperiment`, `TimingExperiment` or `GrowthExperiment`.
"""

from sirgcn.engine.experiment.configs import AxisConfig, ColumnConfig, ModelConfig, TimingConfig, TrainConfig
from sirgcn.engine.experiment.paths import PATHS
from sirgcn.engine.experiment.reading import FOLDER, load, load_training, names, of_table, split_name
from sirgcn.engine.experiment.sorts import (
    RANDOM,
    SORTS,
    TABLES,
    Experiment,
    GrowthExperiment,
    TimingExperiment,
    TrainingExperiment,
)
from sirgcn.engine.experiment.space import BaseConfig, Choices, Range, SearchConfig, Space, read_space

__all__ = [
    "FOLDER",
    "PATHS",
    "RANDOM",
    "SORTS",
    "TABLES",
    "AxisConfig",
    "BaseConfig",
    "Choices",
    "ColumnConfig",
    "Experiment",
    "GrowthExperiment",
    "ModelConfig",
    "Range",
    "SearchConfig",
    "Space",
    "TimingConfig",
    "TimingExperiment",
    "TrainConfig",
    "TrainingExperiment",
    "load",
    "load_training",
    "names",
    "of_table",
    "read_space",
    "split_name",
]
