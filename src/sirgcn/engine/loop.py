"""The training loop: one for every task."""

import json
import math
import re
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from sirgcn.data.graphs import sha256_of
from sirgcn.data.splits import PARTS, Part
from sirgcn.data.task import Task
from sirgcn.engine.checkpoint import Checkpoints, random_state, set_random_state, weights_sha256
from sirgcn.engine.experiment import TrainConfig
from sirgcn.strict import ConfigError, read

EVALUATED_AT_ONCE = 4
"""Batches of training that make one of evaluation, which keeps nothing for a backward pass."""


class NotFinite(RuntimeError):
    """The loss or a parameter has become NaN or infinite."""


class Interrupted(Exception):
    """The training was asked to stop; its state is saved."""


class Watcher(Protocol):
    """Looks on as a model is trained."""

    def epoch(self, row: dict[str, Any], epochs: int) -> None:
        """An epoch is over; `row` is its line of the history."""


@dataclass
class Outcome:
    """What a training gave; the model holds the selected weights."""

    history: list[dict[str, Any]]
    best_epoch: int
    stopped: str
    metrics: dict[str, float]
    seconds: float
    threads: list[int]


@dataclass
class _State:
    """Where a training stands. `seconds` counts earlier processes in, `threads` has the numbers that they had."""

    epoch: int = 0
    step: int = 0
    loss_sum: float = 0.0
    loss_rows: int = 0
    seconds: float = 0.0
    history: list[dict[str, Any]] = field(default_factory=list)
    best: float = math.inf
    best_epoch: int = -1
    early_best: float = math.inf
    early_epoch: int = -1
    stopped: str = ""
    threads: list[int] = field(default_factory=list)


class Trainer:
    r"""Trains a model on a task: AdamW on :math:`\ell + \lambda_1 \|\theta\|_1 + \lambda_2 \|\theta\|_2^2`.

    Args:
        model: called as `model(x, edge_index, edge_attr=, batch=, batch_size=, pe=)`; one output per row of the task.
            One with a `prepare(x, edge_index)` gets its result in the place of the edges, made once for a single graph.
            One with an `objective(x, edge_index, rows, target, loss)` is trained on that in the place of the loss.
        task: the data, loss and metric. Its test part is read once, for the selected weights, when all is over.
        config: the protocol.
        split: which of the task's splits.
        seed: of the order of batches. The caller seeds the weights.
        checkpoints: where the state is kept; None keeps none. Those of another model, other initial weights, another
            task, protocol, split or seed are not taken up, unless their `of` says that they are of this training.
        every: seconds between checkpoints; 0 writes one after every step.
        should_stop: asked after every step; where it answers True, the state is saved and `Interrupted` raised.
        watcher: is shown every epoch.
    """

    def __init__(
        self,
        model: nn.Module,
        task: Task,
        config: TrainConfig,
        split: int = 0,
        seed: int = 0,
        checkpoints: Checkpoints | None = None,
        every: float = 60.0,
        should_stop: Callable[[], bool] = lambda: False,
        watcher: Watcher | None = None,
    ) -> None:
        config = read(TrainConfig, config, "config")
        self.model, self.task, self.config = model, task, config
        self.split, self.seed = _at_least_0(int, split, "split"), _at_least_0(int, seed, "seed")
        self.every, self.checkpoints = _at_least_0(float, every, "every"), checkpoints
        self.should_stop, self.watcher = should_stop, watcher
        # Listed once: to walk through all modules takes as long as a layer does on a small batch.
        self.parameters = list(model.parameters())
        self.device = self.parameters[0].device
        self.generator = torch.Generator().manual_seed(self.seed)
        # The fused form does what the others do in a quarter of the time; not every device has it.
        fused = self.device.type in ("cpu", "cuda")
        self.optimizer = torch.optim.AdamW(self.parameters, lr=config.lr, weight_decay=config.weight_decay, fused=fused)
        self.plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(
            self.optimizer, factor=config.factor, patience=config.patience
        )
        # In eval mode and without the penalties, after every epoch: the signal of the schedule and of stopping.
        self.needs_train_loss = config.schedule == "plateau" or config.early_on == "train" or config.stop_loss > 0
        self.state = _State()
        self.best_weights: dict[str, Tensor] = {}
        self.prepared: Any = None
        # The generator as it was before the epoch's order was drawn: from it the order is drawn again.
        self.order = self.generator.get_state()

    def run(self) -> Outcome:
        """Train to the end, from the last checkpoint if there is one.

        Raises:
            Busy: another process is in the folder of the checkpoints; says who.
        """
        check_validation(self.task, self.config, self.split)
        if self.checkpoints is None:
            return self._run()
        if self.checkpoints.of is None:
            # The caller's object is left alone: it may serve another training next.
            self.checkpoints = Checkpoints(self.checkpoints.folder, self.checkpoints.keep, self._identity())
        with self.checkpoints.held():
            return self._run()

    def _run(self) -> Outcome:
        self._resume()
        self._note_threads()
        state, started = self.state, time.perf_counter() - self.state.seconds
        saved = time.perf_counter()
        while state.epoch < self.config.epochs and not state.stopped:
            self._set_lr()
            for batch in self._rest_of_epoch():
                self.step(batch)
                state.step += 1
                state.seconds = time.perf_counter() - started
                stop = self.should_stop()
                if stop or time.perf_counter() - saved >= self.every:
                    self._save(is_needed=stop)
                    saved = time.perf_counter()
                if stop:
                    raise Interrupted(f"stopped in epoch {state.epoch + 1}; the state is saved")
            state.seconds = time.perf_counter() - started
            self._end_epoch()
        state.seconds = time.perf_counter() - started
        if self.config.selection != "last" and self.best_weights:
            self.model.load_state_dict(self.best_weights)
        else:
            state.best_epoch = state.epoch - 1
        metrics: dict[str, float] = {}
        for part, (loss, metric) in self.evaluate("train", "val", "test").items():
            metrics |= {f"{part}_loss": loss, part: metric}
        stopped = state.stopped or "epochs"
        return Outcome(state.history, state.best_epoch, stopped, metrics, state.seconds, state.threads)

    @torch.no_grad()
    def evaluate(self, *parts: Part) -> dict[Part, tuple[float, float]]:
        """The mean loss and the metric of each part that is not empty, in eval mode.

        The loss is the mean over batches, weighted by their labels. The parts of a single graph share one forward pass.
        """
        self.model.eval()
        parts = tuple(part for part in parts if self.task.num_batches(part, split=self.split))
        if self.task.over != "graphs":
            return self._evaluate_rows(parts)
        found: dict[Part, tuple[float, float]] = {}
        for part in parts:
            outputs, targets, total, labels = [], [], 0.0, 0
            for batch in self.task.batches(part, self._eval_batch_size(), self.split):
                output, target = self.predict(batch)
                count = self.task.loss_function.count_labels(target)
                total += float(self.task.loss_function(output, target)) * count
                labels += count
                outputs.append(output.float().cpu())
                targets.append(target.cpu())
            found[part] = total / max(1, labels), self.task.metric_function(outputs, targets)
        return found

    def _eval_batch_size(self) -> int | None:
        config, size = self.config, self.config.batch_size
        if config.eval_batch_size is not None or size is None:
            return config.eval_batch_size
        is_of_batches = self.task.metric_function.per_batch or self.task.loss_function.per_batch
        return size if is_of_batches else EVALUATED_AT_ONCE * size

    def _evaluate_rows(self, parts: tuple[Part, ...]) -> dict[Part, tuple[float, float]]:
        split = self.task.splits[self.split]
        output, target = self.predict(self.task.graphs.batch())
        found: dict[Part, tuple[float, float]] = {}
        for part in parts:
            rows = getattr(split, part).to(self.device)
            loss = float(self.task.loss_function(output[rows], target[rows]))
            found[part] = loss, self.task.metric_function([output[rows].float().cpu()], [target[rows].cpu()])
        return found

    def predict(self, batch: Data) -> tuple[Tensor, Tensor]:
        """The model's output for the labelled rows of a batch, and their targets."""
        batch = batch.to(self.device)
        inputs = {name: batch[name] for name in ("edge_attr", "pe") if batch.get(name) is not None}
        if self.task.level == "edge":
            labelled = batch.get("edge_label_index")
            inputs["edge_label_index"] = batch.edge_index if labelled is None else labelled
        with self._autocast():
            output = self.model(batch.x, self._graph(batch), batch=batch.batch, batch_size=batch.num_graphs, **inputs)
        index = batch.get("index")
        return (output if index is None else output[index]), batch.y

    def _autocast(self) -> torch.autocast:
        return torch.autocast(self.device.type, torch.bfloat16, enabled=self.config.precision == "bfloat16")

    def _graph(self, batch: Data) -> Any:
        prepare: Callable[..., Any] | None = getattr(self.model, "prepare", None)
        if self.task.over == "graphs" or prepare is None:
            return batch.edge_index
        if self.prepared is None:
            self.prepared = prepare(batch.x, batch.edge_index)
        return self.prepared

    def _training_loss(self, batch: Data) -> Tensor:
        objective, loss = getattr(self.model, "objective", None), self.task.loss_function
        if objective is None:
            return loss(*self.predict(batch))
        batch = batch.to(self.device)
        rows = batch.get("index")
        rows = torch.arange(len(batch.y), device=self.device) if rows is None else rows
        with self._autocast():
            found: Tensor = objective(batch.x, self._graph(batch), rows, batch.y, loss)
        return found

    def step(self, batch: Data) -> None:
        """One step of AdamW on a batch; a loss or gradient that is not finite is refused."""
        if not self.model.training:
            self.model.train()
        loss = self._training_loss(batch)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        value = loss.item()
        if not math.isfinite(value):
            self._refuse(f"the loss is {value}")
        self._penalise()
        self._check_and_clip()
        self.optimizer.step()
        self.state.loss_sum += value * len(batch.y)
        self.state.loss_rows += len(batch.y)

    def _check_and_clip(self) -> None:
        total = nn.utils.get_total_norm([p.grad for p in self.parameters if p.grad is not None])
        # Before it reaches the weights; a norm that is too large for a float counts too.
        if not math.isfinite(total):
            self._refuse(f"the norm of the gradient is {total:g}")
        if self.config.clip is not None:
            nn.utils.clip_grads_with_norm_(self.parameters, self.config.clip, total)

    @torch.no_grad()
    def _penalise(self) -> None:
        """The gradient of l1 * sum |p| + l2 * sum p^2, added without building the sums."""
        if not self.config.l1 and not self.config.l2:
            return
        for p in self.parameters:
            if p.requires_grad:
                grad = torch.zeros_like(p) if p.grad is None else p.grad
                p.grad = grad.add_(p.sign(), alpha=self.config.l1).add_(p, alpha=2 * self.config.l2)

    def _end_epoch(self) -> None:
        """Evaluate, note, schedule, select, stop, save."""
        state, config = self.state, self.config
        if any(not torch.isfinite(p).all() for p in self.parameters):
            self._refuse("a weight is not finite", f"after step {state.step}")
        found = self.evaluate(*(("train", "val") if self.needs_train_loss else ("val",)))
        train_loss, train = found.get("train", (None, None))
        val_loss, val = found.get("val", (None, None))
        row = {
            "epoch": state.epoch,
            "lr": self.optimizer.param_groups[0]["lr"],
            "step_loss": state.loss_sum / max(1, state.loss_rows),
            "train_loss": train_loss,
            "train": train,
            "val_loss": val_loss,
            "val": val,
            "seconds": round(state.seconds, 3),
        }
        state.history.append(row)
        # Also while the rate is still rising, as in the authors' runs: a good epoch of the warm-up counts as the best.
        if config.schedule == "plateau":
            self.plateau.step(train_loss)  # type: ignore[arg-type]
        self._select(val_loss, val)
        self._stop(train_loss, val_loss, val)
        state.epoch, state.step, state.loss_sum, state.loss_rows = state.epoch + 1, 0, 0.0, 0
        self.order = self.generator.get_state()
        if self.watcher is not None:
            self.watcher.epoch(row, config.epochs)
        if self.every == 0:
            self._save()

    def _select(self, val_loss: float | None, val_metric: float | None) -> None:
        if self.config.selection == "last" or val_loss is None or val_metric is None:
            return
        score = val_loss if self.config.selection == "val_loss" else self._falling(val_metric)
        if score < self.state.best:
            self.state.best, self.state.best_epoch = score, self.state.epoch
            self.best_weights = {name: tensor.detach().clone() for name, tensor in self.model.state_dict().items()}

    def _falling(self, metric: float) -> float:
        """The metric with the sign with which smaller is better."""
        return -metric if self.task.metric_function.maximise else metric

    def _stop(self, train_loss: float | None, val_loss: float | None, val_metric: float | None) -> None:
        state, config = self.state, self.config
        falling = None if val_metric is None else self._falling(val_metric)
        watched = {"train": train_loss, "val": val_loss, "val_metric": falling}[config.early_on]
        if config.early_stop is not None and watched is not None:
            if watched < state.early_best:
                state.early_best, state.early_epoch = watched, state.epoch
            elif state.epoch - state.early_epoch >= config.early_stop:
                loss = f"{config.early_on} loss had not fallen"
                what = "val metric had not got better" if config.early_on == "val_metric" else loss
                state.stopped = f"the {what} for {config.early_stop} epochs"
        if train_loss is not None and train_loss < config.stop_loss:
            state.stopped = f"the training loss fell below {config.stop_loss:g}"
        if self.optimizer.param_groups[0]["lr"] < config.stop_lr and state.epoch + 1 >= config.warmup:
            state.stopped = f"the learning rate fell below {config.stop_lr:g}"

    def _set_lr(self) -> None:
        """Warm-up and cosine are functions of the epoch; the plateau's rate is the optimiser's own state."""
        epoch, config = self.state.epoch, self.config
        if epoch < config.warmup:
            rate = config.lr * (epoch + 1) / config.warmup
        elif config.schedule == "cosine":
            done = (epoch - config.warmup) / max(1, config.epochs - config.warmup)
            rate = config.lr * 0.5 * (1 + math.cos(math.pi * done))
        else:
            return
        for group in self.optimizer.param_groups:
            group["lr"] = rate

    def _rest_of_epoch(self) -> Iterator[Data]:
        self.generator.set_state(self.order)
        return self.task.batches("train", self.config.batch_size, self.split, self.generator, start=self.state.step)

    def _refuse(self, what: str, step: str | None = None) -> None:
        step = step or f"step {self.state.step + 1}"
        bad = [name for name, p in self.model.named_parameters() if not torch.isfinite(p).all()]
        grads = [
            name for name, p in self.model.named_parameters() if p.grad is not None and not torch.isfinite(p.grad).all()
        ]
        where = f"epoch {self.state.epoch + 1}, {step}"
        named = f"; not finite: {', '.join(bad[:5])}" if bad else ""
        named += f"; gradients that are not finite: {', '.join(grads[:5])}" if grads else ""
        raise NotFinite(f"{where}: {what}{named or '; all weights are finite'}")

    def _save(self, is_needed: bool = False) -> None:
        """Write a checkpoint; one that cannot be written is told of, and only where it is needed an error."""
        if self.checkpoints is None:
            return
        state = {
            "state": dict(vars(self.state)),
            "model": self.model.state_dict(),
            "best_weights": self.best_weights,
            "optimizer": self.optimizer.state_dict(),
            "plateau": self.plateau.state_dict(),
            "random": random_state(self.generator),
            "order": self.order,
        }
        try:
            self.checkpoints.save(state)
        except OSError as error:
            if is_needed:
                raise
            warnings.warn(f"no checkpoint could be written, the training goes on: {error}", stacklevel=2)

    def _resume(self) -> None:
        found = None if self.checkpoints is None else self.checkpoints.load()
        if found is None:
            return
        self.state = _State(**found["state"])
        self.model.load_state_dict(found["model"])
        self.best_weights = {name: tensor.to(self.device) for name, tensor in found["best_weights"].items()}
        self.optimizer.load_state_dict(found["optimizer"])
        self.plateau.load_state_dict(found["plateau"])
        set_random_state(found["random"], self.generator)
        self.order = found["order"]

    def _identity(self) -> dict[str, Any]:
        """What tells this training from others, as JSON values."""
        task = self.task
        found = {
            "config": asdict(self.config),
            "split": self.split,
            "seed": self.seed,
            "data": [task.name, task.version, task.loss, task.metric, task.graphs.sha256(), splits_sha256(task)],
            # Some modules show where they are in memory.
            "model": re.sub(r" at 0x[0-9a-fA-F]+", "", repr(self.model)),
            # Those before the training: another draw is another training.
            "weights": weights_sha256(self.model),
        }
        identity: dict[str, Any] = json.loads(json.dumps(found))
        return identity

    def _note_threads(self) -> None:
        """Note how many threads torch has, and say so where a part of the training had another number."""
        before, now = self.state.threads, torch.get_num_threads()
        if before and before[-1] != now:
            warnings.warn(
                f"the training goes on with {_threads(now)}, its checkpoint is of {_threads(before[-1])}: sums are "
                "rounded otherwise, and the result may differ from that of a training with one number throughout",
                stacklevel=2,
            )
        if not before or before[-1] != now:
            before.append(now)


def _threads(number: int) -> str:
    return f"{number} thread{'' if number == 1 else 's'}"


def _at_least_0(kind: type, value: Any, name: str) -> Any:
    number = read(kind, value, name)
    # Written so that NaN is refused too.
    if not number >= 0:
        raise ConfigError(f"{name}: expected at least 0, got {value}")
    return number


def splits_sha256(task: Task) -> str:
    """A hash of the parts of all splits and of the schema: with that of the graphs, of all that a training sees."""
    rows = {f"{number}.{part}": getattr(split, part) for number, split in enumerate(task.splits) for part in PARTS}
    return sha256_of(str(task.schema), rows)


def check_validation(task: Task, config: TrainConfig, split: int) -> None:
    """Refuse to select or to stop by validation data that are not there."""
    if task.num_batches("val", split=split):
        return
    if config.selection != "last":
        raise ValueError(f"selection: expected last, the task has no validation data, got {config.selection}")
    if config.early_stop is not None and config.early_on != "train":
        raise ValueError(f"early_on: expected train, the task has no validation data, got {config.early_on}")
