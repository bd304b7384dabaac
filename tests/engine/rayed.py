"""Runs on a local Ray: `python rayed.py FOLDER`, started by `test_cluster.py` in a network of its own.

It prints as JSON the outcomes and events of a run that ends, one that fails, and one that is stopped by Ctrl-C, the end
of a worker whose process is killed, and the trial of a study.
"""

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

from sirgcn.data import load
from sirgcn.engine import experiment
from sirgcn.engine.cluster import Ray
from sirgcn.engine.plan import Run, Settings, plan
from sirgcn.engine.pool import run_all
from sirgcn.engine.records import FAILED
from sirgcn.engine.workers import Asked, Tell
from sirgcn.model.tune import TuneSettings, tune


class Killed:
    """Work whose process is killed in the middle of it."""

    def __call__(self, tell: Tell, asked: Asked) -> str:
        """Kill this process."""
        os.kill(os.getpid(), signal.SIGKILL)
        return FAILED


def end_of_killed(engine: Ray) -> dict[str, Any]:
    """How a worker ends that is killed."""
    worker = engine.start(Killed())
    while (end := worker.end()) is None:
        engine.wait([worker], 1.0)
    return {**end._asdict(), "messages": list(worker.messages())}


def main() -> None:
    folder = Path(sys.argv[1])
    events: list[tuple[str, str]] = []

    def listen(run: Run, event: str, detail: dict[str, Any]) -> None:
        events.append((run.model, event))

    def interrupt(run: Run, event: str, detail: dict[str, Any]) -> None:
        if event == "epoch" and not came:
            came.append(event)
            os.kill(os.getpid(), signal.SIGINT)

    came: list[str] = []
    small, broken, long = (experiment.load(folder / f"{name}.toml") for name in ("small", "broken", "long"))
    settings = Settings(folder / "ray", folder / "work", threads=1)
    with Ray(jobs=2) as engine:
        runs = [*plan(small, ["SIR-GCN"], seeds=[0]), *plan(broken, ["GIN"], seeds=[0])]
        first = run_all(runs, settings, 2, [listen], engine)
        second = run_all(plan(long, ["SIR-GCN"], seeds=[0]), settings, 2, [interrupt], engine)
        found: dict[str, Any] = {
            "first": {run.model: status for run, status in first.items()},
            "second": list(second.values()),
            "events": events,
        }
        found["killed"] = end_of_killed(engine)
        task = load("hetero_edge_count", c=2, num_graphs=60)
        tuned = tune(task, folder / "study", TuneSettings(trials=1, epochs=2), jobs=2, engine=engine, threads=1)
        found["tuned"] = [(one.number, one.state, one.score) for one in tuned]
    print(json.dumps(found))


if __name__ == "__main__":
    main()
