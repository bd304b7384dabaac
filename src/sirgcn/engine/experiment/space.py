"""The section `[search]` of an experiment: the space of settings, the trials, and the budget of a trial."""

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from sirgcn.engine.experiment.configs import ModelConfig, check_at_least
from sirgcn.strict import ConfigError, check_fields, from_dict

BUDGET = ("epochs", "batch_size", "early_stop", "early_on", "stop_lr", "stop_loss", "selection")
"""The settings of a training that decide how much of it a model gets. All rows of a search share them."""

TRAIN = "train."
"""What the name of a setting of the training begins with in a space."""


@dataclass(frozen=True)
class Choices:
    """A list of values, one of which is taken.

    >>> Choices((5, 10, 15)).ends
    (5, 10, 15)
    """

    values: tuple[Any, ...]

    def __post_init__(self) -> None:
        check_fields(self)
        texts = [json.dumps(value) for value in self.values]
        if not texts or len(set(texts)) < len(texts):
            raise ConfigError(f"expected a list of different values, got {list(self.values)}")

    @property
    def ends(self) -> tuple[Any, ...]:
        """The values that show whether a setting accepts this entry: all of them."""
        return self.values


@dataclass(frozen=True)
class Range:
    """The numbers from `low` to `high`. If both are whole, only whole numbers are taken.

    >>> Range(0.001, 0.1, log=True).ends
    (0.001, 0.1)
    """

    low: int | float
    high: int | float
    log: bool = False

    def __post_init__(self) -> None:
        check_fields(self)
        # Written so that NaN is refused too.
        if not -math.inf < self.low < self.high < math.inf:
            raise ConfigError(f"expected low < high, got {self.low} and {self.high}")
        if self.log and self.low <= 0:
            raise ConfigError(f"low: expected more than 0 on a log scale, got {self.low}")

    @property
    def is_whole(self) -> bool:
        """Whether only whole numbers are taken."""
        return isinstance(self.low, int) and isinstance(self.high, int)

    @property
    def ends(self) -> tuple[Any, ...]:
        """The values that show whether a setting accepts this entry."""
        return self.low, self.high


@dataclass(frozen=True)
class BaseConfig:
    """The settings that the rows of an experiment start from: those that a row chose in the search of another one.

    Args:
        search: an experiment with a section `[search]`, by its name in the package or as a file.
        model: the row whose winner is meant. Empty means the form of SIR-GCN whose winner has the best validation
            metric.

    >>> BaseConfig("tuned_minesweeper").model
    ''
    """

    search: str
    model: str = ""

    def __post_init__(self) -> None:
        check_fields(self)


Space = dict[str, Choices | Range]
"""The settings of a search by name, each with the values that it can take."""


@dataclass(frozen=True)
class SearchConfig:
    """How the settings of the rows are searched. Every row gets the same.

    Args:
        trials: the number of trials of a row.
        random: the first so many trials of a row are drawn at random. The later ones depend on those before.
        split: the published split whose training and validation parts the trials see.
        seed: the seed of the suggestions.
        train: the settings of the training that a trial changes, such as `{"epochs": 300}`.
        space: the settings that are searched in every row: a list of choices, or `{low = ..., high = ...}` with
            `log = true` for a log scale.

    >>> search = SearchConfig(trials=3, space={"dropout": [0.0, 0.5], "train": {"lr": {"low": 1e-3, "high": 1e-2}}})
    >>> list(search.shared)
    ['dropout', 'train.lr']
    """

    trials: int = 12
    random: int = 5
    split: int = 0
    seed: int = 0
    train: dict[str, Any] = field(default_factory=dict)
    space: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_fields(self)
        check_at_least(self, 1, "trials")
        check_at_least(self, 0, "random", "split", "seed")
        for name in self.shared:
            if name.removeprefix(TRAIN) in BUDGET and name.startswith(TRAIN):
                raise ConfigError(f"space: {name}: expected a setting that leaves the budget as it is")

    @property
    def shared(self) -> Space:
        """The space that all rows share."""
        return read_space(self.space, "space")

    def basis(self, row: ModelConfig) -> dict[str, Any]:
        """What decides the suggestions for a row, apart from the results of its trials, as JSON values.

        The number of trials is left out: a search that gets more of them goes on with those that it has.
        """
        found = {key: value for key, value in asdict(self).items() if key != "trials"}
        own: dict[str, Any] = json.loads(json.dumps(found | {"own": row.space}))
        return own


def read_space(data: Mapping[str, Any], where: str) -> Space:
    """The space that a table describes. An entry that is neither a list nor a range is refused by its name.

    >>> read_space({"num_layers": {"low": 2, "high": 9}}, "space")["num_layers"].is_whole
    True
    """
    return {name: _entry(value, f"{where}: {name}") for name, value in _flat(data, where)}


def _flat(data: Mapping[str, Any], where: str) -> Iterator[tuple[str, Any]]:
    """Names and entries, with `train.lr` for the entry `lr` of a table `train`."""
    for name, value in data.items():
        if name != TRAIN.removesuffix("."):
            yield name, value
        elif isinstance(value, Mapping):
            yield from ((TRAIN + key, entry) for key, entry in value.items())
        else:
            raise ConfigError(f"{where}: train: expected settings of the training such as train.lr, got {value!r}")


def _entry(value: Any, where: str) -> Choices | Range:
    if isinstance(value, Choices | Range):
        return value
    if isinstance(value, Mapping):
        found: Range = from_dict(Range, value, where)
        return found
    if not isinstance(value, list | tuple):
        raise ConfigError(f"{where}: expected a list of choices or low and high, got {value!r}")
    try:
        return Choices(tuple(value))
    except (ConfigError, TypeError) as error:
        raise ConfigError(f"{where}: {error}") from None


def with_settings(row: ModelConfig, settings: Mapping[str, Any]) -> ModelConfig:
    """A row with the settings of a trial in place: in its training, its network or its convolution.

    >>> row = ModelConfig("SIR-GCN", space={"aggr": ["mean", "sum"]})
    >>> found = with_settings(row, {"aggr": "mean", "dropout": 0.2, "train.lr": 0.01})
    >>> found.options, found.train
    ({'dropout': 0.2, 'conv_options': {'aggr': 'mean'}}, {'lr': 0.01})
    """
    train = {name.removeprefix(TRAIN): value for name, value in settings.items() if name.startswith(TRAIN)}
    others = {name: value for name, value in settings.items() if not name.startswith(TRAIN)}
    own = {name: others.pop(name) for name in row.space if name in others}
    options = row.options | others
    if own and "conv" in row.architecture:
        options["conv_options"] = options.get("conv_options", {}) | own
    else:
        options |= own
    return replace(row, options=options, train=row.train | train, space={})


def check_row(search: SearchConfig | None, row: ModelConfig) -> None:
    """Refuse a row that would get another budget than the others, or that fixes what is searched."""
    if search is None:
        if row.space:
            raise ConfigError(f"{row.title}: space: expected a section [search] in the file, got none")
        return
    for section in ("train", "reduced"):
        different = sorted(set(BUDGET) & set(getattr(row, section)))
        if different:
            raise ConfigError(
                f"{row.title}: {section}: expected the budget that all rows share, got {', '.join(different)}"
            )
    fixed = {**row.options, **row.options.get("conv_options", {}), **{TRAIN + name: 0 for name in row.train}}
    for name in (*search.shared, *row.space):
        if name in fixed:
            raise ConfigError(f"{row.title}: {name}: expected it in the space or in the row, got it in both")
    if twice := sorted(set(search.shared) & set(row.space)):
        raise ConfigError(f"{row.title}: space: {', '.join(twice)}: expected it once, got it in search.space too")
