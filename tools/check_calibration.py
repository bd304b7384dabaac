"""Check on real data that sets and intervals cover what they say and that temperature does no harm.

    python tools/check_calibration.py            # writes results/model/calibration.json

Each data set trains one model. Its outputs on the rows that neither trained nor stopped it are then divided into
calibration rows and test rows, ten times at random. The record holds every draw; a test reads it.
"""

import argparse
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from sirgcn.data import Split, load
from sirgcn.data.metrics import METRICS
from sirgcn.data.task import Task
from sirgcn.engine.controls import rows_of
from sirgcn.engine.environment import environment
from sirgcn.engine.experiment import TrainConfig
from sirgcn.engine.loop import Trainer
from sirgcn.engine.network import default_config
from sirgcn.files import write_atomic
from sirgcn.model import Member, Model, Problem, Scaling
from sirgcn.model.calibration import calibrate_outputs, carve, outputs_of
from sirgcn.nn import build_net

DATA = ("Cora", "texas", "wisconsin", "cornell", "ESOL", "BBBP", "actor", "minesweeper", "tolokers")
DRAWS = 10
LEVEL = 0.9
RECORD = Path(__file__).parent.parent / "results" / "model" / "calibration.json"


def main() -> None:
    """Train, redraw, and write the record after every data set."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", nargs="*", default=DATA, help="names of data sets")
    parser.add_argument("--out", type=Path, default=RECORD)
    arguments = parser.parse_args()
    found: dict[str, Any] = {}
    if arguments.out.exists():
        found = json.loads(arguments.out.read_text("utf-8"))["data"]
    for name in arguments.data:
        found[name] = check(name)
        shown = {key: value for key, value in found[name].items() if key != "draws"}
        print(name, json.dumps(shown), flush=True)
        about = environment()
        kept = {key: about[key] for key in ("date", "python", "sirgcn", "torch", "numpy")}
        record = {"level": LEVEL, "environment": kept, "data": found}
        arguments.out.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(arguments.out, (json.dumps(record, indent=1) + "\n").encode())


def check(name: str) -> dict[str, Any]:
    """One model on a data set, and ten draws of its calibration rows."""
    task = load(name)
    learning, rows = carve(task)
    model = _trained(learning)
    pool = torch.cat([rows, rows_of(task, "test")])
    outputs, target = outputs_of(model, task, pool), task.graphs.y[pool]
    sort = model.problem.sort
    draws = [_draw(sort, outputs, target, len(rows), seed) for seed in range(DRAWS)]
    mean = {key: sum(draw[key] for draw in draws) / DRAWS for key in draws[0]}
    score = METRICS[task.metric]([outputs], [target])
    return {
        "calibration_rows": len(rows),
        "test_rows": len(pool) - len(rows),
        task.metric: score,
        **mean,
        "draws": draws,
    }


def _draw(sort: Any, outputs: Tensor, target: Tensor, count: int, seed: int) -> dict[str, float]:
    order = torch.randperm(len(target), generator=torch.Generator().manual_seed(seed))
    own, test = order[:count], order[count:]
    calibration = calibrate_outputs(sort, outputs[own], target[own])
    outputs, target = outputs[test].double(), target[test]
    if sort == "numbers":
        low, high = calibration.interval(outputs, LEVEL)
        y = target.double().reshape(len(target), -1)
        return {"held": float(((low <= y) & (y <= high)).double().mean()), "size": float((high - low).mean())}
    found = {
        "temperature": calibration.temperatures[0],
        "log_loss": METRICS["log_loss"]([calibration.scaled(outputs)], [target]),
        "log_loss_without": METRICS["log_loss"]([outputs], [target]),
    }
    sets = calibration.sets(calibration.probabilities(outputs), LEVEL)
    if sort == "labels":
        sets = sets[:, 0]
    held = sets.gather(1, target.long().reshape(-1, 1))
    return {"held": float(held.double().mean()), "size": float(sets.sum(1).double().mean()), **found}


def _trained(task: Task) -> Model:
    """A small network, trained for a short while: calibration must hold for any model."""
    scaling = Scaling.of(task)
    scaled = task if scaling is None else scaling.apply(task)
    config = default_config(task).with_options(hidden_channels=32, num_layers=2)
    torch.manual_seed(0)
    network = build_net(config)
    batch = 32 if task.over == "graphs" else None
    training = TrainConfig(epochs=100, batch_size=batch, lr=5e-3, selection="val_metric", early_stop=20, early_on="val")
    first = scaled.splits[0]
    one = replace(scaled, splits=(Split(first.train, first.val, first.test),))
    Trainer(network, one, training).run()
    return Model(Problem.of(task), (Member(config, network.eval()),), scaling)


if __name__ == "__main__":
    main()
