"""The tables of an experiment file as frozen dataclasses: how to train, how to time, and the rows and columns."""

import math
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from sirgcn.strict import ConfigError, check_fields


@dataclass(frozen=True)
class TrainConfig:
    """How a model is trained. The defaults are those of the synthetic tasks.

    Args:
        epochs: the largest number of epochs.
        batch_size: graphs in a batch. None puts all graphs into one batch.
        eval_batch_size: graphs in a batch of an evaluation, which keeps nothing for a backward pass. None means four
            times `batch_size`, or `batch_size` itself where the loss or the metric depends on the batches.
        lr: the learning rate of AdamW after the warm-up.
        weight_decay: the weight decay of AdamW.
        warmup: epochs over which the learning rate rises linearly from `lr / warmup`.
        schedule: what the learning rate does after the warm-up. `"none"` keeps it. `"plateau"` multiplies it by
            `factor` when the loss on `plateau_on` has not fallen for `patience` epochs. `"cosine"` lets it fall to 0 at
            the last epoch.
        factor: see `schedule`.
        patience: see `schedule`.
        plateau_on: see `schedule`.
        l1: weight of the sum of all parameters' absolute values, which is added to the training loss.
        l2: weight of the sum of all parameters' squares, which is added to the training loss.
        clip: the norm to which gradients are clipped. None does not clip.
        precision: `"bfloat16"` runs the model under autocast.
        early_stop: stop when the value named by `early_on` has not improved for this many epochs. None never stops.
        early_on: the loss on `"train"` or `"val"`, or `"val_metric"` for the metric on the validation part.
        stop_lr: stop when the learning rate has fallen below this value.
        stop_loss: stop when the training loss, measured in eval mode, is below this value.
        selection: which weights are tested: those of the `"last"` epoch, or those of the epoch with the best
            `"val_loss"` or the best `"val_metric"`.

    >>> TrainConfig(epochs=20, schedule="cosine").lr
    0.001
    >>> TrainConfig(epochs=0)
    Traceback (most recent call last):
    sirgcn.strict.ConfigError: epochs: expected at least 1, got 0
    """

    epochs: int = 500
    batch_size: int | None = 256
    eval_batch_size: int | None = None
    lr: float = 1e-3
    weight_decay: float = 0.0
    warmup: int = 0
    schedule: Literal["none", "plateau", "cosine"] = "none"
    factor: float = 0.5
    patience: int = 10
    l1: float = 0.0
    l2: float = 0.0
    clip: float | None = None
    precision: Literal["float32", "bfloat16"] = "float32"
    early_stop: int | None = None
    early_on: Literal["train", "val", "val_metric"] = "val"
    stop_lr: float = 0.0
    stop_loss: float = 0.0
    selection: Literal["last", "val_loss", "val_metric"] = "val_loss"
    plateau_on: Literal["train", "val"] = "train"

    def __post_init__(self) -> None:
        check_fields(self)
        check_at_least(self, 1, "epochs", "batch_size", "eval_batch_size", "early_stop")
        check_at_least(self, 0, "warmup", "patience", "weight_decay", "l1", "l2", "stop_lr", "stop_loss")
        for name in ("lr", "clip"):
            value = getattr(self, name)
            # Written so that NaN is refused too.
            if value is not None and not 0 < value < math.inf:
                raise ConfigError(f"{name}: expected more than 0, got {value}")
        if not 0 < self.factor < 1:
            raise ConfigError(f"factor: expected 0 < factor < 1, got {self.factor}")

    def recorded(self) -> dict[str, Any]:
        """The settings as records have them.

        A setting that records have not always had is left out where it has its default. So older records stay current.

        >>> "plateau_on" in TrainConfig().recorded(), TrainConfig(plateau_on="val").recorded()["plateau_on"]
        (False, 'val')
        """
        found = asdict(self)
        return {name: value for name, value in found.items() if name not in _NEWER or value != _NEWER[name]}


# The settings of the training that records have not always had, each with its default.
_NEWER = {"plateau_on": TrainConfig.plateau_on}


@dataclass(frozen=True)
class ModelConfig:
    """A row of a table: one model.

    Args:
        title: the title of the row.
        conv: a name of the table of convolutions. The convolution is placed into the preset's `SIRNet`.
        network: a name of the table of whole networks, which then replaces `SIRNet`. Such a row has no `conv`.
        control: a name of the table of controls, models without a network. Such a row has no training either.
        options: further arguments of `SIRNet`, which override those of the preset, or the options of the network or
            of the control.
        budget: the number of parameters that the hidden width is chosen to fill. None keeps the width.
        seeds: the number of runs of a cell of this row, if they are fewer than those of the experiment.
        columns: the titles of the columns that the row has. None means all.
        space: the options of this row's own convolution, network or control that a search varies.
        train: settings of the training that differ for this row.
        reduced: settings that differ for this row in a reduced run. They override those of the experiment.

    >>> ModelConfig("GIN", conv="gin", budget=100_000).architecture
    {'conv': 'gin'}
    """

    title: str
    conv: str = "sir"
    network: str | None = None
    options: dict[str, Any] = field(default_factory=dict)
    budget: int | None = None
    train: dict[str, Any] = field(default_factory=dict)
    reduced: dict[str, Any] = field(default_factory=dict)
    control: str | None = None
    seeds: int | None = None
    columns: tuple[str, ...] | None = None
    space: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_fields(self)
        _check_title(self.title)
        check_at_least(self, 1, "budget", "seeds")
        if self.columns is not None and not self.columns:
            raise ConfigError(f"{self.title}: columns: expected at least one title, got none")
        if self.network is not None and self.conv != type(self).conv:
            raise ConfigError(
                f"{self.title}: expected conv or network, got conv {self.conv} and network {self.network}"
            )
        if self.control is not None:
            self._check_control()

    def _check_control(self) -> None:
        """Refuse what a model without a network does not have."""
        if self.conv != type(self).conv:
            raise ConfigError(
                f"{self.title}: expected conv or control, got conv {self.conv} and control {self.control}"
            )
        others = [name for name in ("network", "budget", "train", "reduced") if getattr(self, name)]
        if others:
            raise ConfigError(f"{self.title}: {', '.join(others)}: expected none beside the control {self.control}")

    @property
    def architecture(self) -> dict[str, str]:
        """The name of the model under the key of the table that lists it, as records store it."""
        if self.control is not None:
            return {"control": self.control}
        return {"conv": self.conv} if self.network is None else {"network": self.network}


@dataclass(frozen=True)
class TimingConfig:
    """How time is measured. Every repetition measures each run once, one after the other.

    Args:
        repeats: the largest number of repetitions.
        least: the smallest number of repetitions, however long they take.
        seconds: no further repetition starts after this time.
        sample_seconds: a sample is the mean of as many calls as last this long. 0 means one call.
        batch_size: graphs in a batch.
        threads: threads of torch.
        clock: `"wall"`, or `"cpu"` for the time that one thread spends on the CPU. Both agree on an idle machine. On a
            busy machine the CPU time leaves out what other processes do.
        reference: the title of the row by whose time the times of the other rows are divided.

    >>> TimingConfig(repeats=3, clock="cpu").threads
    1
    """

    repeats: int = 20
    least: int = 5
    seconds: float = 30.0
    sample_seconds: float = 0.0
    batch_size: int = 256
    threads: int = 1
    clock: Literal["wall", "cpu"] = "wall"
    reference: str = "SIR-GCN"

    def __post_init__(self) -> None:
        check_fields(self)
        check_at_least(self, 1, "repeats", "least", "batch_size", "threads")
        check_at_least(self, 0, "seconds", "sample_seconds")
        if self.clock == "cpu" and self.threads > 1:
            raise ConfigError(f'clock: expected "wall" for {self.threads} threads, whose CPU times add up, got "cpu"')


@dataclass(frozen=True)
class AxisConfig:
    """Sizes of random graphs along which the time of a layer grows. One list has several sizes, the others have one.

    Args:
        title: what grows.
        nodes: numbers of nodes.
        edges: numbers of edges.
        width: widths d of the layer's input and output.

    >>> AxisConfig("|V|", nodes=(2, 4, 8), edges=(4,), width=(2,)).sizes
    ((2, 4, 2), (4, 4, 2), (8, 4, 2))
    """

    title: str
    nodes: tuple[int, ...]
    edges: tuple[int, ...]
    width: tuple[int, ...]

    def __post_init__(self) -> None:
        check_fields(self)
        _check_title(self.title)
        lists = (self.nodes, self.edges, self.width)
        # A line through two points has no spread.
        has_sizes = sorted(map(len, lists))[:2] == [1, 1] and max(map(len, lists)) >= 3
        if not has_sizes or min(map(min, lists)) < 1:
            raise ConfigError(
                f"{self.title}: expected one of nodes, edges, width with three sizes or more, got {lists}"
            )

    @property
    def sizes(self) -> tuple[tuple[int, int, int], ...]:
        """Nodes, edges and width of every point."""
        return tuple((v, e, d) for v in self.nodes for e in self.edges for d in self.width)

    @property
    def grows(self) -> tuple[int, ...]:
        """The list that has several sizes."""
        return max(self.nodes, self.edges, self.width, key=len)


@dataclass(frozen=True)
class ColumnConfig:
    """A column of a table: the title of its data set and the options of the loader.

    >>> ColumnConfig("n=10", {"n": 10}).options
    {'n': 10}
    """

    title: str
    options: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_fields(self)
        _check_title(self.title)


def check_at_least(config: Any, least: int, *names: str) -> None:
    """Refuse a field that is below `least`, NaN or infinite. A field that is None is accepted."""
    for name in names:
        value = getattr(config, name)
        if value is not None and not least <= value < math.inf:
            raise ConfigError(f"{name}: expected at least {least}, got {value}")


def _check_title(title: str) -> None:
    if not title.strip():
        raise ConfigError(f"title: expected a text, got {title!r}")
