"""The one training loop, for every task."""

import json
import math
import re
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from sirgcn.data.graphs import sha256_of
from sirgcn.data.splits import PARTS, Part
from sirgcn.data.task import Task
from sirgcn.engine.checkpoint import Checkpoints, random_state, set_random_state, weights_sha256
from sirgcn.engine.experiment import TrainConfig
from sirgcn.engine.inference import Inference
from sirgcn.engine.ranks import ALONE, Ranks
from sirgcn.strict import ConfigError, read

EVALUATED_AT_ONCE = 4
"""How many batches of the training make one batch of an evaluation, which keeps nothing for a backward pass."""


class NotFinite(RuntimeError):
    """The loss or a parameter has become NaN or infinite."""


class Interrupted(Exception):
    """The training was asked to stop, and its state is saved."""


class Watcher(Protocol):
    """Is called while a model is trained."""

    def epoch(self, row: dict[str, Any], epochs: int) -> None:
        """Called after an epoch with its row of the history and the number of epochs."""


@dataclass
class Outcome:
    """The result of a training. The model has the selected weights.

    Args:
        history: one row per epoch: learning rate, losses, metrics, seconds.
        best_epoch: the epoch whose weights were selected.
        stopped: why the training ended.
        metrics: loss and metric of every part, with the selected weights.
        seconds: the time of the training, without the evaluation at its end.
        threads: the numbers of threads that torch had; more than one after a resumption with another number.

    >>> outcome = Outcome([{"epoch": 0}], 0, "epochs", {"test": 0.5}, 1.0, [1])
    >>> outcome.metrics["test"]
    0.5
    """

    history: list[dict[str, Any]]
    best_epoch: int
    stopped: str
    metrics: dict[str, float]
    seconds: float
    threads: list[int]


@dataclass
class _State:
    """The progress of a training. `seconds` and `threads` include the processes before a resumption."""

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
        model: called as `model(x, edge_index, edge_attr=, batch=, batch_size=, pe=, edge_pe=, graph_attr=)`, with those
            of them that the data have. It returns one output per row of the task. A model with a method
            `prepare(x, edge_index)` receives its result in place of the edges; it is called once for a single graph
            (and once for the part that training sees of it). A model with a method
            `objective(x, edge_index, rows, target, loss)` is trained on that in place of the loss.
        task: the data, loss and metric. The test part is read once, at the end, with the selected weights.
        config: the protocol.
        split: the number of the task's split.
        seed: the seed of the order of batches. The caller seeds the weights.
        checkpoints: where the state is kept. None keeps no state. The training does not resume from checkpoints of
            another model, other initial weights, another task, protocol, split or seed. If `checkpoints.of` is set, it
            alone decides this.
        every: seconds between checkpoints. 0 writes a checkpoint after every step.
        should_stop: called after every step. If it returns True, the state is saved and `Interrupted` is raised.
        watcher: called after every epoch.
        ranks: the processes that share the training, see `sirgcn.scale`. A batch is then shared by all of them, so that
            their number changes nothing but the rounding and what dropout draws.
        whole: gives the outputs of all rows of a single graph in an evaluation, as `sirgcn.scale.WholeGraph` does in a
            bounded working set. None is one pass over the graph.

    >>> import torch
    >>> from sirgcn import SIRNet
    >>> from sirgcn.data import load
    >>> _ = torch.manual_seed(0)
    >>> task = load("hetero_edge_count", c=2, num_graphs=20)
    >>> model = SIRNet.of(2, 8, 1, num_layers=1, encoder="embedding", pool="sum")
    >>> outcome = Trainer(model, task, TrainConfig(epochs=2, batch_size=8, selection="last")).run()
    >>> len(outcome.history), outcome.stopped
    (2, 'epochs')
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
        ranks: Ranks = ALONE,
        whole: Callable[[nn.Module, Task], Tensor] | None = None,
    ) -> None:
        config = read(TrainConfig, config, "config")
        self.model, self.task, self.config = model, task, config
        self.split, self.seed = _at_least_0(int, split, "split"), _at_least_0(int, seed, "seed")
        self.every, self.checkpoints = _at_least_0(float, every, "every"), checkpoints
        self.should_stop, self.watcher, self.ranks = should_stop, watcher, ranks
        # Listed once: walking through all modules takes as long as a layer on a small batch.
        self.parameters = list(model.parameters())
        self.device = self.parameters[0].device
        self.generator = torch.Generator().manual_seed(self.seed)
        # The fused form takes a quarter of the time of the others. Not every device has it.
        fused = self.device.type in ("cpu", "cuda")
        self.optimizer = torch.optim.AdamW(self.parameters, lr=config.lr, weight_decay=config.weight_decay, fused=fused)
        self.plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(
            self.optimizer, factor=config.factor, patience=config.patience
        )
        # The training loss in eval mode and without the penalties, on which the schedule and the stopping may depend.
        falls_by_train = config.schedule == "plateau" and config.plateau_on == "train"
        self.needs_train_loss = falls_by_train or config.early_on == "train" or config.stop_loss > 0
        self.state = _State()
        self.best_weights: dict[str, Tensor] = {}
        self.inference = Inference(model, task, self.split, self.device, config.precision, ranks, whole)
        # The state of the generator before it drew the order of the epoch's batches, to draw the same order again.
        self.order = self.generator.get_state()

    def run(self) -> Outcome:
        """Train to the end, from the last checkpoint if there is one.

        Raises:
            Busy: another process uses the folder of the checkpoints. The error says which.
            Interrupted: `should_stop` returned True. The state is saved.
            NotFinite: the loss, a gradient or a weight became NaN or infinite.
        """
        check_validation(self.task, self.config, self.split)
        with self.ranks.joined(self.model, self.task, self._identity):
            return self._run_held()

    def _run_held(self) -> Outcome:
        if self.checkpoints is None or self.ranks.rank:
            return self._run()
        if self.checkpoints.of is None:
            # A copy: the caller may use its own object for another training next.
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
                self.ranks.seed_step(self.seed, state.epoch, state.step)
                self.step(batch)
                state.step += 1
                state.seconds = time.perf_counter() - started
                stop = self.ranks.any(self.should_stop())
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

    def evaluate(self, *parts: Part) -> dict[Part, tuple[float, float]]:
        """The mean loss and the metric of each part that is not empty, in eval mode.

        The loss is the mean over batches, weighted by their labels. The parts of a single graph share one forward pass.
        """
        self.ranks.seed_step(self.seed, self.state.epoch, self.state.step)
        return self.ranks.agreed(self.inference.evaluate(parts, self._eval_batch_size()))

    def predict(self, batch: Data) -> tuple[Tensor, Tensor]:
        """The model's output for the labelled rows of a batch, and their targets."""
        return self.inference.predict(batch)

    def _eval_batch_size(self) -> int | None:
        config, size = self.config, self.config.batch_size
        if config.eval_batch_size is not None or size is None:
            return config.eval_batch_size
        is_of_batches = self.task.metric_function.per_batch or self.task.loss_function.per_batch
        return size if is_of_batches else EVALUATED_AT_ONCE * size

    def step(self, batch: Data) -> None:
        """One step of AdamW on a batch. Raises `NotFinite` before a bad gradient reaches the weights."""
        if not self.model.training:
            self.model.train()
        loss, labels = self.inference.training_loss(batch)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self.ranks.sum_gradients(self.parameters)
        value = loss.item()
        if not math.isfinite(value):
            self._refuse(f"the loss is {value}")
        self._penalise()
        self._check_and_clip()
        self.optimizer.step()
        self.state.loss_sum += value * labels
        self.state.loss_rows += labels

    def _check_and_clip(self) -> None:
        total = nn.utils.get_total_norm([p.grad for p in self.parameters if p.grad is not None])
        # Before the gradient reaches the weights. A norm that is too large for a float is refused too.
        if not math.isfinite(total):
            self._refuse(f"the norm of the gradient is {total:g}")
        if self.config.clip is not None:
            nn.utils.clip_grads_with_norm_(self.parameters, self.config.clip, total)

    @torch.no_grad()
    def _penalise(self) -> None:
        """Add the gradient of l1 * sum |p| + l2 * sum p^2, without computing the sums."""
        if not self.config.l1 and not self.config.l2:
            return
        for p in self.parameters:
            if p.requires_grad:
                grad = torch.zeros_like(p) if p.grad is None else p.grad
                p.grad = grad.add_(p.sign(), alpha=self.config.l1).add_(p, alpha=2 * self.config.l2)

    def _end_epoch(self) -> None:
        """Evaluate the model, note the epoch, and let the schedule, the selection and the stopping follow."""
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
        # Also during the warm-up, as in the authors' runs: a good epoch of the warm-up counts as the best.
        if config.schedule == "plateau":
            self.plateau.step(train_loss if config.plateau_on == "train" else val_loss)  # type: ignore[arg-type]
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
        """The metric, with a sign such that smaller is better."""
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
        """Set the learning rate of the epoch in the warm-up and for cosine. Plateau changes the optimiser itself."""
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
        size, start = self.config.batch_size, self.state.step
        return self.ranks.batches(self.task, "train", size, self.split, self.generator, start)

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
        """Write a checkpoint. If that fails, warn, or raise the error if the checkpoint is needed."""
        if self.checkpoints is None or self.ranks.rank:
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
            warnings.warn(f"no checkpoint could be written; the training continues: {error}", stacklevel=2)

    def _resume(self) -> None:
        found = None if self.checkpoints is None or self.ranks.rank else self.checkpoints.load()
        found = self.ranks.state_of_first(found)
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
        """Everything that decides the result of this training, as JSON values."""
        task = self.task
        found = {
            "config": self.config.recorded(),
            "split": self.split,
            "seed": self.seed,
            "data": [task.name, task.version, task.loss, task.metric, task.graphs.sha256(), splits_sha256(task)],
            # The representation of some modules contains an address in memory.
            "model": re.sub(r" at 0x[0-9a-fA-F]+", "", repr(self.model)),
            # The initial weights: another draw is another training.
            "weights": weights_sha256(self.model),
        }
        identity: dict[str, Any] = json.loads(json.dumps(found))
        return identity

    def _note_threads(self) -> None:
        """Note the number of threads of torch, and warn if the training had another number before."""
        before, now = self.state.threads, torch.get_num_threads()
        if before and before[-1] != now:
            warnings.warn(
                f"the training continues with {_threads(now)}, and its checkpoint was written with "
                f"{_threads(before[-1])}: sums are rounded differently, and the result may differ from that of an "
                "uninterrupted training",
                stacklevel=2,
            )
        if not before or before[-1] != now:
            before.append(now)


def _threads(number: int) -> str:
    return f"{number} thread{'' if number == 1 else 's'}"


def _at_least_0(hint: type, value: Any, name: str) -> Any:
    number = read(hint, value, name)
    # Written so that NaN is refused too.
    if not number >= 0:
        raise ConfigError(f"{name}: expected at least 0, got {value}")
    return number


def splits_sha256(task: Task) -> str:
    """A hash of the schema and of the parts of all splits. With that of the graphs it covers all that is trained on."""
    rows = {f"{number}.{part}": getattr(split, part) for number, split in enumerate(task.splits) for part in PARTS}
    rows |= {f"{number}.unseen": nodes for number, nodes in enumerate(task.unseen)}
    return sha256_of(str(task.schema), rows)


def check_validation(task: Task, config: TrainConfig, split: int) -> None:
    """Refuse a protocol that selects or stops by validation data on a task that has none."""
    if task.num_batches("val", split=split):
        return
    if config.selection != "last":
        raise ValueError(f"selection: expected last, the task has no validation data, got {config.selection}")
    if config.schedule == "plateau" and config.plateau_on != "train":
        raise ValueError(f"plateau_on: expected train, the task has no validation data, got {config.plateau_on}")
    if config.early_stop is not None and config.early_on != "train":
        raise ValueError(f"early_on: expected train, the task has no validation data, got {config.early_on}")
