"""Suggestions of settings from those that were tried, by Optuna."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sirgcn.engine.experiment.space import Choices, Range, Space
from sirgcn.strict import ConfigError

ATTEMPTS = 20
"""How often new settings are drawn in place of some that were tried already."""


@dataclass(frozen=True)
class Tried:
    """Settings that were tried, and their score; None for a trial that failed.

    >>> Tried({"lr": 0.01}, 0.93).score
    0.93
    """

    settings: Mapping[str, Any]
    score: float | None


def suggest(
    space: Space, tried: Sequence[Tried], seed: int = 0, random: int = 5, maximise: bool = True
) -> dict[str, Any]:
    """The settings to try next. They depend on the arguments alone, so that a search can go on from its records.

    The first `random` suggestions are drawn at random: for one seed they are the same for every space that begins with
    the same entries. The later ones are drawn by Optuna's tree-structured Parzen estimator from the scores so far.
    Settings that were tried before are drawn again a few times, because another trial of them would say nothing new.

    Args:
        space: the settings by name with their values, as `read_space` returns them.
        tried: what was tried so far, in order.
        seed: the seed of the suggestions.
        random: how many suggestions are drawn at random.
        maximise: whether a larger score is better.

    >>> from sirgcn.engine.experiment import read_space
    >>> space = read_space({"layers": [2, 3], "lr": {"low": 1e-3, "high": 1e-1, "log": True}}, "space")
    >>> first = suggest(space, [])
    >>> sorted(first), first == suggest(space, []), first == suggest(space, [Tried(first, 0.9)])
    (['layers', 'lr'], True, False)
    """
    optuna = load_optuna()
    distributions = distributions_of(space)
    known = [optuna.trial.create_trial(**_outcome(optuna, space, one), distributions=distributions) for one in tried]
    found: dict[str, Any] = {}
    for attempt in range(ATTEMPTS):
        sampler = optuna.samplers.TPESampler(seed=_number(seed, len(tried), attempt), n_startup_trials=0)
        if len(tried) < random:
            sampler = optuna.samplers.RandomSampler(seed=_number(seed, len(tried), attempt))
        study = optuna.create_study(direction="maximize" if maximise else "minimize", sampler=sampler)
        study.add_trials(known)
        drawn = study.ask(distributions).params
        found = drawn_values(space, drawn)
        if all(found != dict(one.settings) for one in tried):
            break
    return found


def check_optuna() -> None:
    """Refuse a search where Optuna is not installed, with what to install."""
    load_optuna()


def load_optuna() -> Any:
    """Optuna, which is imported when it is used. Where it is not installed, the error says what to install."""
    try:
        import optuna
    except ImportError as error:
        raise ImportError("a search needs Optuna: pip install 'sirgcn[tune]'") from error
    # Otherwise every suggestion is a line of the log.
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna


def _number(*parts: int) -> int:
    """A seed that differs from suggestion to suggestion."""
    return int.from_bytes(hashlib.sha256(json.dumps(parts).encode()).digest()[:4], "big")


def distributions_of(space: Space) -> dict[str, Any]:
    """The space as Optuna describes it.

    >>> from sirgcn.engine.experiment import read_space
    >>> list(distributions_of(read_space({"layers": [2, 3]}, "space")))
    ['layers']
    """
    optuna = load_optuna()
    return {name: _distribution(optuna, entry) for name, entry in space.items()}


def params_of(space: Space, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings as Optuna stores them: a choice by its place."""
    return {
        name: entry.values.index(settings[name]) if isinstance(entry, Choices) else settings[name]
        for name, entry in space.items()
    }


def drawn_values(space: Space, params: Mapping[str, Any]) -> dict[str, Any]:
    """Settings from what Optuna stores.

    >>> from sirgcn.engine.experiment import read_space
    >>> space = read_space({"layers": [2, 3]}, "space")
    >>> drawn_values(space, params_of(space, {"layers": 3}))
    {'layers': 3}
    """
    return {
        name: entry.values[params[name]] if isinstance(entry, Choices) else params[name]
        for name, entry in space.items()
    }


def _distribution(optuna: Any, entry: Choices | Range) -> Any:
    if isinstance(entry, Choices):
        # Places in the list, because Optuna's choices cannot be lists themselves.
        return optuna.distributions.CategoricalDistribution(range(len(entry.values)))
    if entry.is_whole:
        return optuna.distributions.IntDistribution(entry.low, entry.high, log=entry.log)
    return optuna.distributions.FloatDistribution(entry.low, entry.high, log=entry.log)


def _outcome(optuna: Any, space: Space, one: Tried) -> dict[str, Any]:
    """The parameters, state and value of what was tried, as Optuna stores them."""
    if set(one.settings) != set(space):
        raise ConfigError(f"tried: expected the settings {', '.join(space)}, got {', '.join(one.settings)}")
    params = params_of(space, one.settings)
    state = optuna.trial.TrialState
    if one.score is None:
        return {"params": params, "state": state.FAIL}
    return {"params": params, "state": state.COMPLETE, "value": one.score}
