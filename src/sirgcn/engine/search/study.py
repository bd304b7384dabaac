"""A study in a SQLite file: trials that are pruned where they fall behind, and that go on after a kill.

What the next trial tries comes from `suggest`, so that it depends on the trials before and on the seed alone.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sirgcn.engine.experiment.space import Space
from sirgcn.engine.search.suggesting import Tried, distributions_of, drawn_values, load_optuna, params_of, suggest
from sirgcn.strict import ConfigError

Report = Callable[[int, float], bool]
"""Called after an epoch with its number and its score. If it returns True, the trial is behind and may end."""

Objective = Callable[[Mapping[str, Any], Report], float | None]
"""The score of some settings; None for a trial that failed."""

_NAME = "tune"


@dataclass(frozen=True)
class Made:
    """A trial of a study.

    Args:
        number: its number, from 0.
        settings: what it tried.
        score: its score; None if it failed. That of a pruned trial is the last one that it reported.
        state: done, pruned or failed.

    >>> Made(0, {"num_layers": 3}, 0.9, "done").state
    'done'
    """

    number: int
    settings: dict[str, Any]
    score: float | None
    state: str


class Study:
    """A search over a space that is kept in a file.

    Args:
        file: the SQLite file; it is created if there is none.
        space: the settings by name with their values, see `read_space`.
        basis: what else decides a score, as one text. A file of another basis or another space is refused.
        seed: the seed of the suggestions.
        random: how many trials are drawn at random, before the others depend on them.
        maximise: whether a larger score is better.

    >>> from tempfile import TemporaryDirectory
    >>> from sirgcn.engine.experiment.space import read_space
    >>> space = read_space({"x": [1, 2, 3]}, "space")
    >>> with TemporaryDirectory() as folder:
    ...     study = Study(Path(folder) / "study.db", space, "example", random=3)
    ...     study.run(3, lambda settings, report: float(settings["x"]))
    ...     study.best.settings
    {'x': 3}
    """

    def __init__(
        self, file: Path, space: Space, basis: str, seed: int = 0, random: int = 8, maximise: bool = True
    ) -> None:
        optuna = load_optuna()
        self.space, self.seed, self.random, self.maximise = space, seed, random, maximise
        self.distributions = distributions_of(space)
        file.parent.mkdir(parents=True, exist_ok=True)
        pruner = optuna.pruners.MedianPruner(n_startup_trials=4, n_warmup_steps=10)
        self.study = optuna.create_study(
            storage=f"sqlite:///{file}",
            study_name=_NAME,
            direction="maximize" if maximise else "minimize",
            pruner=pruner,
            load_if_exists=True,
        )
        self._check_basis(file, basis)

    def _check_basis(self, file: Path, basis: str) -> None:
        known = self.study.user_attrs.get("basis")
        if known is None:
            self.study.set_user_attr("basis", basis)
        elif known != basis:
            raise ConfigError(f"{file}: a study of other data or of another space; choose another folder")

    @property
    def trials(self) -> list[Made]:
        """The trials that have ended, in order."""
        return [made for trial in self.study.get_trials(deepcopy=False) if (made := self._made(trial)) is not None]

    @property
    def best(self) -> Made | None:
        """The finished trial with the best score, the earliest of those that are level; None if there is none."""
        done = [(made.score, made) for made in self.trials if made.state == "done" and made.score is not None]
        if not done:
            return None
        sign = 1 if self.maximise else -1
        return max(done, key=lambda pair: sign * pair[0])[1]

    def run(self, trials: int, objective: Objective, stop: Callable[[], bool] = lambda: False) -> None:
        """Make the trials that are left of so many. A trial whose process was killed is made again first.

        Args:
            trials: how many trials the study shall have.
            objective: gives the score of some settings.
            stop: asked before every trial; if it returns True, no more are made.
        """
        while not stop():
            begun = self.begin(trials)
            if begun is None:
                return
            begun.finish(objective(begun.settings, begun.report))

    def begin(self, trials: int, at_work: Collection[int] = ()) -> "Begun | None":
        """The next trial of so many, for whoever makes several at a time; None if all of them have begun.

        Args:
            trials: how many trials the study shall have.
            at_work: the numbers of the trials that are being made. Another one that has not ended was interrupted, and
                is taken up again first.
        """
        known = self.study.get_trials(deepcopy=False)
        interrupted = [one for one in known if one.state.name == "RUNNING" and one.number not in at_work]
        if interrupted:
            trial = load_optuna().trial.Trial(self.study, interrupted[0]._trial_id)
            return Begun(self, trial, set(interrupted[0].intermediate_values))
        if len(self.trials) + len(at_work) >= trials:
            return None
        # What is being tried now is not tried again, and has no score yet.
        tried = [Tried(made.settings, made.score) for made in self.trials]
        tried += [Tried(drawn_values(self.space, one.params), None) for one in known if one.number in at_work]
        chosen = suggest(self.space, tried, self.seed, self.random, self.maximise)
        self.study.enqueue_trial(params_of(self.space, chosen))
        return Begun(self, self.study.ask(self.distributions), set())

    def _made(self, trial: Any) -> Made | None:
        states = {"COMPLETE": "done", "PRUNED": "pruned", "FAIL": "failed"}
        state = states.get(trial.state.name)
        if state is None:
            return None
        return Made(trial.number, drawn_values(self.space, trial.params), trial.value, state)


class Begun:
    """A trial of a study that has begun: its settings, and the way to say how it goes.

    Attributes:
        number: its number, from 0.
        settings: what it tries.
        is_pruned: whether it has fallen behind.
    """

    def __init__(self, study: Study, trial: Any, reported: set[int]) -> None:
        self.study, self.trial, self.reported = study.study, trial, reported
        self.number: int = trial.number
        self.settings = drawn_values(study.space, trial.params)
        self.is_pruned = False

    def report(self, epoch: int, score: float) -> bool:
        """Note the score of an epoch. Returns whether the trial is behind and may end."""
        # It may have been reported before the trial was interrupted.
        if epoch not in self.reported:
            self.reported.add(epoch)
            self.trial.report(score, epoch)
        self.is_pruned = self.is_pruned or self.trial.should_prune()
        return self.is_pruned

    def finish(self, score: float | None) -> None:
        """Note the end of the trial, with its score; None if it failed. That of a pruned trial does not count."""
        state = load_optuna().trial.TrialState
        if self.is_pruned:
            self.study.tell(self.trial, state=state.PRUNED)
        elif score is None:
            self.study.tell(self.trial, state=state.FAIL)
        else:
            self.study.tell(self.trial, score)
