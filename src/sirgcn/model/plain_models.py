"""The plain models that stand beside a trained one as controls: each from a task to an output for every row."""

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from sklearn.linear_model import LogisticRegression, Ridge
from torch import Tensor

from sirgcn.data.metrics import Metric
from sirgcn.data.task import Task
from sirgcn.engine.columns import table_of
from sirgcn.engine.controls import rows_of
from sirgcn.engine.experiment import TrainConfig
from sirgcn.engine.inference import call
from sirgcn.engine.loop import Interrupted, Trainer
from sirgcn.engine.network import default_config
from sirgcn.model.scaling import Scaling
from sirgcn.nn import NetConfig, build_net
from sirgcn.strict import Size, checked

_SMALLEST = 1e-7
_PENALTIES = (1.0, 0.1, 10.0, 0.01, 100.0)  # tried in this order, while there is time
_FINGERPRINT = 1024
_BATCH = 64  # graphs


@checked
def majority(task: Task, split: int = 0) -> Tensor:
    """The shares of the classes among the training rows, as logits; for numbers their mean, or their median for MAE.

    >>> from sirgcn.data import load
    >>> majority(load("hetero_edge_count", c=2, num_graphs=10)).unique().numel()
    1
    """
    y = task.graphs.y
    known = y[rows_of(task, "train", split)]
    if task.loss_function.is_for_classes:
        counts = torch.bincount(known, minlength=task.schema.outputs).double()
        middle = (counts / counts.sum()).clamp_min(_SMALLEST).log()
    else:
        columns = (known.unsqueeze(1) if known.dim() == 1 else known).double()
        is_of_labels = task.loss_function.targets != "numbers"
        middle = columns.nanmedian(0).values if task.metric == "mae" else columns.nanmean(0)
        middle = middle.nan_to_num(0.5 if is_of_labels else 0.0)
        if is_of_labels:
            middle = columns.nanmean(0).nan_to_num(0.5).clamp(_SMALLEST, 1 - _SMALLEST).logit()
    return middle.float().expand(len(y), -1)


@checked
def linear(task: Task, split: int = 0, seconds: float = 10.0, most: Size = 2000) -> Tensor:
    """Logistic or linear regression on the columns of each row, with the L2 penalty of the best validation metric.

    Args:
        task: the data.
        split: the number of the task's split.
        seconds: about how long it may take.
        most: the most columns.

    >>> from sirgcn.data import load
    >>> linear(load("hetero_edge_count", c=2, num_graphs=40)).shape
    torch.Size([40, 1])
    """
    train, val = rows_of(task, "train", split), rows_of(task, "val", split)
    table = _scaled(table_of(task, False, split, most, train), train)
    started, best, found = time.thread_time(), None, None
    for place, penalty in enumerate(_PENALTIES):
        began = time.thread_time()
        outputs = _linear(task, table, train, penalty)
        value = task.metric_function([outputs[val]], [task.graphs.y[val]]) if _can_choose(task, val) else None
        if found is None or _is_better(task.metric_function, value, best):
            best, found = value, outputs
        spent = time.thread_time() - started
        if value is None or spent + 2 * (time.thread_time() - began) > seconds or place == len(_PENALTIES) - 1:
            break
    assert found is not None
    return found


def _can_choose(task: Task, val: Tensor) -> bool:
    """Whether the validation rows have a value of the metric."""
    if not len(val):
        return False
    try:
        task.metric_function([torch.zeros(len(val), task.schema.outputs)], [task.graphs.y[val]])
    except ValueError:
        return False
    return True


def _is_better(metric: Metric, value: float | None, than: float | None) -> bool:
    return value is not None and than is not None and metric.better(value, than)


def _scaled(table: Tensor, train: Tensor) -> np.ndarray[Any, Any]:
    """Columns with mean 0 over the training rows, and none with a deviation above 1; missing values are 0.

    Small columns stay small: a rare word must not weigh more than a frequent one.
    """
    known = table[train]
    mean = known.nanmean(0).nan_to_num(0.0)
    deviation = (known - mean).square().nanmean(0).sqrt().nan_to_num(1.0).clamp_min(1.0)
    return ((table - mean) / deviation).nan_to_num(0.0).clamp(-100, 100).numpy()


def _linear(task: Task, table: np.ndarray[Any, Any], train: Tensor, penalty: float) -> Tensor:
    y = task.graphs.y
    if task.loss_function.is_for_classes:
        return _logistic(table, train, y, penalty, task.schema.outputs)
    columns = y.unsqueeze(1) if y.dim() == 1 else y
    found = []
    for column in columns.T:
        known = train[~torch.isnan(column[train])]
        if task.loss_function.targets != "numbers":
            both = _logistic(table, known, column.nan_to_num(0.0).long(), penalty, 2)
            found.append(both[:, 1] - both[:, 0])
            continue
        ridge = Ridge(alpha=penalty).fit(table[known.numpy()], column[known].double().numpy())
        found.append(torch.from_numpy(ridge.predict(table)).float())
    return torch.stack(found, dim=1)


def _logistic(table: np.ndarray[Any, Any], train: Tensor, y: Tensor, penalty: float, classes: int) -> Tensor:
    known = y[train].unique()
    shares = torch.full((len(table), classes), _SMALLEST, dtype=torch.float64)
    if len(known) < 2:
        shares[:, known] = 1.0
        return shares.log().float()
    # A few hundred steps are enough for a control, whether or not scikit-learn calls that converged.
    model = _Quiet(C=1 / penalty, max_iter=300, tol=1e-3).fit(table[train.numpy()], y[train].numpy())
    shares[:, torch.from_numpy(model.classes_)] = torch.from_numpy(model.predict_proba(table)).double()
    return shares.clamp_min(_SMALLEST).log().float()


class _Quiet(LogisticRegression):  # type: ignore[misc]
    """Logistic regression that does not warn when its steps are used up."""

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Any:
        import warnings

        from sklearn.exceptions import ConvergenceWarning

        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            return super().fit(X, y, sample_weight)


def fingerprints(smiles: Sequence[str]) -> Tensor:
    """Counts of Morgan fingerprints of radius 2 in 1,024 places, float32 `[molecules, 1024]`. It needs RDKit.

    >>> fingerprints(["CCO", "CCO"]).unique(dim=0).shape
    torch.Size([1, 1024])
    """
    from rdkit import Chem, rdBase
    from rdkit.Chem import rdFingerprintGenerator

    made: Any = rdFingerprintGenerator.GetMorganGenerator(radius=2, fpSize=_FINGERPRINT)
    found = np.zeros((len(smiles), _FINGERPRINT), dtype=np.float32)
    with rdBase.BlockLogs():
        for place, text in enumerate(smiles):
            molecule: Any = Chem.MolFromSmiles(text)
            if molecule is not None:
                found[place] = made.GetCountFingerprintAsNumPy(molecule)
    return torch.from_numpy(found)


def network(
    task: Task, conv: str, split: int = 0, seed: int = 0, seconds: float = 20.0, notes: list[str] | None = None
) -> Tensor:
    """A small network with a plain convolution: two common ways to build it, and the better one on validation.

    Features of edges are left out, which these convolutions do not read.

    Args:
        task: the data.
        conv: a name of `CONVS`, such as `"gcn"`, or `"mlp"`, which does not see the graph.
        split: the number of the task's split.
        seed: the seed of weights and batches.
        seconds: about how long both may take together.
        notes: gets a sentence if a training was not finished in this time.

    >>> from sirgcn.data import load
    >>> network(load("hetero_edge_count", c=2, num_graphs=20), "gcn", seconds=0.1).shape
    torch.Size([20, 1])
    """
    graphs = replace(task.graphs, edge_attr=None, edge_pe=None)
    schema = replace(task.schema, edge_features=0, edge_vocabularies=(), edge_encodings=0)
    plain = replace(task, graphs=graphs, schema=schema)
    scaling = Scaling.of(plain, split)
    scaled = plain if scaling is None else scaling.apply(plain)
    val = rows_of(task, "val", split)
    best, found = None, None
    cuts: list[str] = []
    for config in _configs(plain, conv):
        outputs, cut = _trained(scaled, config, split, seed, seconds / 2)
        cuts += [str(cut)] if cut else []
        outputs = outputs if scaling is None else scaling.back(outputs)
        value = task.metric_function([outputs[val]], [task.graphs.y[val]]) if _can_choose(task, val) else None
        if found is None or _is_better(task.metric_function, value, best):
            best, found = value, outputs
    assert found is not None
    if cuts and notes is not None:
        notes.append(f"stopped by its time after {' and '.join(cuts)} epochs")
    return found


def _configs(task: Task, conv: str) -> tuple[NetConfig, NetConfig]:
    """With residuals and norms, as networks on heterophilous graphs have, and as plain as in the first papers."""
    deep = default_config(task).with_options(conv=conv, hidden_channels=64)
    if task.level == "edge":
        deep = deep.with_options(pool=None, out_channels=task.schema.outputs, edge_scores=True)
    plain = deep.with_options(num_layers=2, block="residual", residual=False, norm=None, dropout=0.5)
    return deep, plain


def _trained(task: Task, config: NetConfig, split: int, seed: int, seconds: float) -> tuple[Tensor, int]:
    """The outputs of a trained network, and after how many epochs its time was over; 0 if it was not."""
    torch.manual_seed(seed)
    net = build_net(config)
    has_val = task.num_batches("val", split=split) > 0
    training = TrainConfig(
        epochs=200 if has_val else 50,
        batch_size=_BATCH if task.over == "graphs" else None,
        lr=5e-3,
        weight_decay=5e-4,
        selection="val_metric" if has_val else "last",
        early_stop=40 if has_val else None,
        early_on="val_metric" if has_val else "train",
    )
    started = time.thread_time()
    trainer = Trainer(net, task, training, split, seed, should_stop=lambda: time.thread_time() - started > seconds)
    cut = 0
    try:
        trainer.run()
    except Interrupted:
        cut = max(1, trainer.state.epoch)
        if trainer.best_weights:
            net.load_state_dict(trainer.best_weights)
    return _outputs(net.eval(), task), cut


@torch.no_grad()
def _outputs(net: torch.nn.Module, task: Task) -> Tensor:
    chunks = torch.arange(len(task.graphs)).split(16 * _BATCH)
    return torch.cat([call(net, task.graphs.batch(index), task.level).float() for index in chunks])
