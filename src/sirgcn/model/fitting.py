"""`fit`: from a task to a trained model."""

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from itertools import product
from pathlib import Path
from typing import Annotated, Any, Literal

from sirgcn.data.task import Task
from sirgcn.engine.locks import held
from sirgcn.engine.loop import Watcher
from sirgcn.model.crew import Crew
from sirgcn.model.defaults import Candidate, candidates, networks
from sirgcn.model.fitted import Model
from sirgcn.model.plan import Limits, Plan, make_plan
from sirgcn.model.problem import Problem
from sirgcn.model.seen import Seen, see
from sirgcn.model.trials import Finished, Trial, Workshop
from sirgcn.scale.budget import read_bytes
from sirgcn.strict import Between, Count, Size, check_arguments, check_fields, check_name

Preset = Literal["fast", "good", "best"]

ENSEMBLE = 2
"""From how many of the tried settings the preset `best` takes networks."""

SEEDS = 3
"""How many networks the preset `best` trains for each of them."""


@dataclass(frozen=True)
class FitSettings:
    """How a model is fitted.

    Args:
        preset: `"fast"` trains the most promising settings once. `"good"` tries a few, each with the same budget, and
            keeps the ones with the best validation metric. `"best"` averages networks of several seeds and settings.
        time_limit: the seconds for all trainings together; None for no limit. The trainings share it equally, and each
            gets as many epochs as fit.
        seeds: how many networks are trained with the chosen settings, whose predictions are averaged; default: 1 with
            the preset `fast`, 3 with `best`, and 1 or 3 with `good`: 3 where there are few graphs or few labels.
        seed: the seed of weights and batches. Equal settings and equal data give an equal model, unless a time limit
            cuts a training short.
        candidate: the name of the settings to begin from, one of those of `candidates`; default: as the preset says.
        network: settings of the network that are not left to the rule, by their short names such as `num_layers`.
        train: settings of the training that are not left to the rule, the fields of `TrainConfig`.
        memory: what the process may take, in bytes or as a text such as `"4GB"`; default: what is free. Where whole
            passes over one graph need more, it is trained on samples, and evaluated layer by layer.

    >>> FitSettings(preset="fast", network={"num_layers": 3}).seed
    0
    """

    preset: Preset = "good"
    seed: Count = 0
    time_limit: Annotated[float, Between(0)] | None = None
    seeds: Size | None = None
    candidate: str | None = None
    network: dict[str, Any] = field(default_factory=dict)
    train: dict[str, Any] = field(default_factory=dict)
    memory: int | str | None = None

    def __post_init__(self) -> None:
        check_fields(self)
        if self.memory is not None:
            read_bytes(self.memory)
        # The ranges, too.
        check_arguments(FitSettings, vars(self))

    def changed(self, one: Candidate) -> Candidate:
        """A candidate with the settings that are not left to the rule."""
        return one.with_changes(self.network, self.train)

    def networks(self, task: Task) -> int:
        """How many networks are trained with settings that were chosen.

        >>> from sirgcn.data import load
        >>> FitSettings(seeds=2).networks(load("hetero_edge_count", c=2, num_graphs=10))
        2
        """
        if self.seeds is not None:
            return self.seeds
        return {"fast": 1, "good": networks(task), "best": SEEDS}[self.preset]


def fit(
    task: Task,
    settings: FitSettings | None = None,
    work: Path | None = None,
    watcher: Watcher | None = None,
    crew: Crew | None = None,
) -> Model:
    """Train a model on the first split of a task. The test part is not used.

    `about` of the model says what was done: `history` with the epochs of its networks, `trials` with everything that
    was tried, `notes` with the decisions in words, and `plan` with the memory and the time that were expected.

    Args:
        task: the data. Where they have no validation part, some training rows choose in its place.
        settings: how; default: the preset `good`.
        work: a folder, from which the same call goes on after a kill; None keeps nothing.
        watcher: called after every epoch. If it has a method `say`, it also gets what is done, in sentences.
        crew: the ranks that share the trainings, of which this one leads; None: this process trains alone.

    Raises:
        TooLarge: no network that the rule knows fits in the free memory.
        NotFitted: all trainings failed.

    >>> import pandas as pd
    >>> from sirgcn.data import load_tables
    >>> nodes = pd.DataFrame({"id": range(20), "size": [1.0, 2.0] * 10, "label": ["x", "y"] * 10})
    >>> edges = pd.DataFrame({"source": range(18), "target": range(2, 20)})
    >>> model = fit(load_tables(nodes, edges), FitSettings("fast"))
    >>> model.problem.classes
    ('x', 'y')
    """
    settings = settings or FitSettings()
    with _held(work):
        found = _fit(task, settings, Workshop(see(task, settings.seed), work, watcher, crew=crew))
    if crew is not None:
        crew.tell(None)
    return found


class NotFitted(RuntimeError):
    """No training led to a network. The text says why, and what to try."""


def _fit(task: Task, settings: FitSettings, workshop: Workshop) -> Model:
    seen = workshop.seen
    for note in seen.notes:
        workshop.say(note)
    workshop.say("measuring the memory and the time that a training takes")
    limits = Limits(settings.time_limit, trainings(settings, task), settings.memory)
    plan = make_plan(workshop, chosen_candidates(seen, settings), limits, settings.changed)
    for note in (*plan.notes, plan.told):
        workshop.say(note)
    tried = _try(plan, settings, workshop)
    kept = _members(tried, plan, settings, workshop)
    return Model(
        Problem.of(task),
        tuple(one.member for one in kept if one.member is not None),
        seen.scaling,
        task.details.get("preprocessing"),
        about=_about(tried, kept, plan, settings, seen),
        whole=workshop.whole,
    )


def chosen_candidates(seen: Seen, settings: FitSettings) -> tuple[Candidate, ...]:
    """The candidates of a preset with the settings that the caller fixed. Those that then are alike count once."""
    found = candidates(seen.task)
    if settings.candidate is not None:
        named = {one.name: one for one in found}
        found = (named[check_name("candidate", settings.candidate, named, exact=True)],)
    if settings.preset == "fast" or not seen.has_validation:
        found = found[:1]
    alike: dict[str, Candidate] = {}
    for one in map(settings.changed, found):
        alike.setdefault(str({**one.to_dict(), "name": ""}), one)
    return tuple(alike.values())


def trainings(settings: FitSettings, task: Task) -> int:
    """How many trainings follow those of the candidates with the first seed."""
    more = settings.networks(task) - 1
    return more * ENSEMBLE if settings.preset == "best" else more


def _try(plan: Plan, settings: FitSettings, workshop: Workshop) -> list[Finished]:
    """Train every candidate with the first seed."""
    of = len(plan.candidates) + trainings(settings, workshop.seen.task)
    tried = []
    for place, candidate in enumerate(plan.candidates, start=1):
        trial = Trial(candidate, settings.seed, plan.seconds_each)
        workshop.say(f"training {place} of {of}: {trial.name}")
        tried.append(workshop.run(trial, place, of))
    if all(one.member is None for one in tried):
        reasons = "; ".join(f"{one.trial.name}: {one.record['error']}" for one in tried)
        raise NotFitted(f"no training led to a network: {reasons}. A smaller learning rate may help: train lr")
    return tried


def _members(tried: Sequence[Finished], plan: Plan, settings: FitSettings, workshop: Workshop) -> list[Finished]:
    """The networks of the model: those of the best candidates, with as many seeds as were asked for."""
    best = ranked(tried, workshop.seen)[: ENSEMBLE if settings.preset == "best" else 1]
    kept = list(best)
    of = len(tried) + trainings(settings, workshop.seen.task)
    more = product(range(1, settings.networks(workshop.seen.task)), best)
    for place, (seed, one) in enumerate(more, start=len(tried) + 1):
        trial = Trial(one.trial.candidate, settings.seed + seed, plan.seconds_each)
        workshop.say(f"training {place} of {of}: {trial.name}")
        finished = workshop.run(trial, place, of)
        if finished.member is not None:
            kept.append(finished)
    return kept


def ranked(tried: Sequence[Finished], seen: Seen) -> list[Finished]:
    """What was trained, the best first: by the validation metric, or by the loss where the metric has no value.

    Without a validation part they keep their order. Those that failed are left out.
    """
    done = [one for one in tried if one.member is not None]
    if not seen.has_validation:
        return done
    by, sign = (
        ("val", 1.0 if seen.task.metric_function.maximise else -1.0) if seen.can_measure() else ("val_loss", -1.0)
    )

    def place(one: Finished) -> float:
        score = one.score(by)
        return math.inf if math.isnan(score) else -sign * score

    return sorted(done, key=place)


def _about(
    tried: Sequence[Finished], kept: Sequence[Finished], plan: Plan, settings: FitSettings, seen: Seen
) -> dict[str, Any]:
    """What the model keeps of its fit, as JSON values."""
    every = list(dict.fromkeys([*tried, *kept]))
    rows = [
        {name: value for name, value in one.record.items() if name not in ("history", "key")} | {"chosen": one in kept}
        for one in every
    ]
    history = [row | {"member": place} for place, one in enumerate(kept) for row in one.record["history"]]
    return {
        "history": history,
        "trials": rows,
        "notes": [*seen.notes, *plan.notes],
        "plan": plan.to_dict(),
        "fit": asdict(settings),
    }


@contextmanager
def _held(work: Path | None) -> Iterator[None]:
    if work is None:
        yield
        return
    with held(work / "lock"):
        yield
