"""`tune`: a search for the settings of one task, by validation rows alone, kept in a folder that `train` can use."""

import hashlib
import json
import math
import time
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated, Any

from sirgcn.data.task import Task
from sirgcn.engine.experiment.space import TRAIN, Space, read_space
from sirgcn.engine.loop import Watcher
from sirgcn.engine.search.study import Made, Report, Study
from sirgcn.engine.workers import Engine, Processes, check_jobs
from sirgcn.files import write_atomic
from sirgcn.model.defaults import Candidate, candidates
from sirgcn.model.facts import Facts
from sirgcn.model.fitting import FitSettings
from sirgcn.model.seen import Seen, see
from sirgcn.model.trials import Trial, Workshop
from sirgcn.model.tuning import Trials, TrialWork
from sirgcn.strict import Between, ConfigError, Count, Size, check_arguments, check_fields, from_dict

STUDY = "study.db"
"""The file of the trials."""

BEST = "best.json"
"""The file of the settings that are the best so far."""


@dataclass(frozen=True)
class TuneSettings:
    """How settings are searched.

    Args:
        trials: how many settings are tried.
        seed: the seed of the suggestions, and of the weights in every trial.
        time_limit: no trial begins after so many seconds; None for no limit.
        epochs: the largest number of epochs of a trial; None leaves it to the rule for the task.

    >>> TuneSettings(trials=10).seed
    0
    """

    trials: Size = 30
    seed: Count = 0
    time_limit: Annotated[float, Between(0)] | None = None
    epochs: Size | None = None

    def __post_init__(self) -> None:
        check_fields(self)
        # The ranges, too.
        check_arguments(TuneSettings, vars(self))


@dataclass(frozen=True)
class Tuned:
    """The best settings that a study has found.

    Args:
        candidate: the name of the settings that they change, see `candidates`.
        network: settings of the network by their short names.
        train: settings of the training.
        score: the validation metric.
        trials: the number of trials that were made.

    >>> Tuned("messages by mean", {"num_layers": 3}, {"lr": 0.01}, 0.9, 30).settings().network
    {'num_layers': 3}
    """

    candidate: str
    network: dict[str, Any]
    train: dict[str, Any]
    score: float
    trials: int

    def __post_init__(self) -> None:
        check_fields(self)

    def settings(self, fixed: FitSettings | None = None) -> FitSettings:
        """The settings of a fit that begins from these. What is fixed there already stays.

        Args:
            fixed: other settings of the fit; default: those of `FitSettings`.
        """
        fixed = fixed or FitSettings()
        network, train = self.network | fixed.network, self.train | fixed.train
        return replace(fixed, candidate=self.candidate, network=network, train=train)


def read_tuned(folder: str | Path) -> Tuned:
    """The best settings of a study, from its folder.

    Raises:
        ConfigError: the folder holds no finished trial.
    """
    path = Path(folder) / BEST
    if not path.exists():
        raise ConfigError(
            f"{folder}: expected a folder that sirgcn tune has written, with a file {BEST}; there is none"
        )
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ConfigError(f"{path}: expected JSON as sirgcn tune writes it: {error}") from None
    if not isinstance(data, Mapping):
        raise ConfigError(f"{path}: expected an object as sirgcn tune writes it, got {type(data).__name__}")
    found: Tuned = from_dict(Tuned, data, str(path))
    return found


def tune(
    task: Task,
    out: str | Path,
    settings: TuneSettings | None = None,
    watcher: Watcher | None = None,
    jobs: int = 1,
    engine: Engine | None = None,
    threads: int | None = None,
) -> tuple[Made, ...]:
    """Search the settings of a task, and return the trials. The test part is not used.

    Each trial trains one network with the same budget. A trial that falls behind the median of those before ends early.
    The same call goes on after a kill, and with more trials it makes those that are left. `read_tuned` gives the best.

    Args:
        task: the data, with a validation part, or with enough training rows to set some aside.
        out: the folder of the study.
        settings: how.
        watcher: called after every epoch, see `fit`.
        jobs: how many trials are made at a time. With several, what a trial tries depends on those that have ended by
            then, so that another call may try other settings.
        engine: where several trials are made, see `engine_named`. It must be open. None means one trial after another
            in this process, or processes of this machine for several jobs.
        threads: the threads of torch in each of these processes. None keeps torch's own number.

    >>> from tempfile import TemporaryDirectory
    >>> from sirgcn.data import load
    >>> task = load("hetero_edge_count", c=2, num_graphs=60)
    >>> with TemporaryDirectory() as folder:
    ...     made = tune(task, folder, TuneSettings(trials=2, epochs=2))
    ...     len(made), read_tuned(folder).trials
    (2, 2)
    """
    settings, out = settings or TuneSettings(), Path(out)
    check_jobs(jobs)
    seen = see(task, settings.seed)
    if not seen.has_validation or not seen.can_measure():
        raise ValueError(
            f"{task.name}: expected validation rows on which {task.metric} can be measured, got none; "
            f"give more labelled rows, or a split with a validation part"
        )
    base = _base(seen, settings)
    space = space_of(seen.task, base)
    maximise = seen.task.metric_function.maximise
    workshop = Workshop(seen, out, watcher)
    study = Study(out / STUDY, space, _basis(workshop, base, settings), settings.seed, maximise=maximise)
    started = time.monotonic()

    def objective(chosen: Mapping[str, Any], report: Report) -> float | None:
        return _score(base, chosen, report, workshop, settings, len(study.trials))

    def is_over() -> bool:
        _write_best(study, base, out)
        return settings.time_limit is not None and time.monotonic() - started >= settings.time_limit

    if engine is None and jobs == 1:
        study.run(settings.trials, objective, is_over)
    else:

        def work_of(number: int, chosen: Mapping[str, Any]) -> TrialWork:
            trial = Trial(base.with_changes(*_parted(chosen)), settings.seed)
            return TrialWork(seen, out.absolute() / "trials" / str(number), trial, threads)

        with nullcontext(engine) if engine is not None else Processes() as where:
            Trials(study, where, work_of, watcher).run(settings.trials, jobs, is_over)
    _write_best(study, base, out)
    return tuple(study.trials)


def space_of(task: Task, base: Candidate) -> Space:
    """What a study varies, around the settings that the rule gives.

    >>> from sirgcn.data import load
    >>> task = load("hetero_edge_count", c=2, num_graphs=20)
    >>> "train.lr" in space_of(task, candidates(task)[0])
    True
    """
    facts, lr = Facts.of(task), base.training.lr
    layers = base.config.block.layers
    found: dict[str, Any] = {
        "num_layers": sorted({max(1, layers // 2), layers, layers + 2}),
        "hidden_channels": [32, 64, 128],
        "dropout": {"low": 0.0, "high": 0.8},
        "aggr": ["sum", "mean", "max"] if facts.is_many else ["mean", "sym", "max"],
        "activation": ["identity", "relu", "prelu", "gelu"],
        "train.lr": {"low": lr / 5, "high": lr * 5, "log": True},
        "train.l2": {"low": 1e-6, "high": 1e-2, "log": True},
    }
    if facts.level == "graph":
        found["pool"] = ["mean", "sum"]
    if not facts.is_sparse or not base.preparation.normalise:
        found["norm"] = ["batch", "layer"]
    return read_space(found, "space")


def _base(seen: Seen, settings: TuneSettings) -> Candidate:
    """The first candidate with the layer whose settings the space names."""
    # Gates need a sigma of their own.
    plain = [
        one for one in candidates(seen.task) if one.config.conv.name == "sir" and "gated" not in one.config.conv.options
    ]
    base = plain[0]
    return base if settings.epochs is None else base.with_changes({}, {"epochs": settings.epochs})


def _basis(workshop: Workshop, base: Candidate, settings: TuneSettings) -> str:
    decided = json.dumps([workshop.key_of(base, settings.seed), base.to_dict()])
    return hashlib.sha256(decided.encode()).hexdigest()


def _score(
    base: Candidate,
    chosen: Mapping[str, Any],
    report: Report,
    workshop: Workshop,
    settings: TuneSettings,
    place: int,
) -> float | None:
    """The validation metric of some settings; None for a training that failed."""
    network, train = _parted(chosen)

    def prune(row: dict[str, Any]) -> bool:
        return row["val"] is not None and report(row["epoch"], row["val"])

    workshop.prune = prune
    workshop.say(f"trial {place + 1} of {settings.trials}: {_shown(chosen)}")
    trial = Trial(base.with_changes(network, train), settings.seed)
    score = workshop.run(trial, place + 1, settings.trials).score("val")
    return None if math.isnan(score) else score


def _parted(chosen: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The settings of the network, and those of the training."""
    train = {name.removeprefix(TRAIN): value for name, value in chosen.items() if name.startswith(TRAIN)}
    return {name: value for name, value in chosen.items() if not name.startswith(TRAIN)}, train


def _shown(chosen: Mapping[str, Any]) -> str:
    return ", ".join(
        f"{name} {value:.2g}" if isinstance(value, float) else f"{name} {value}" for name, value in chosen.items()
    )


def _write_best(study: Study, base: Candidate, out: Path) -> None:
    best = study.best
    if best is None or best.score is None:
        return
    network, train = _parted(best.settings)
    found = Tuned(base.name, network, train, best.score, len(study.trials))
    write_atomic(out / BEST, (json.dumps(asdict(found), indent=1) + "\n").encode())
