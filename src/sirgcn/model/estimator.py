"""`SIRClassifier` and `SIRRegressor`: models as estimators of scikit-learn."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
import pandas as pd
import torch
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin, TransformerMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_array, check_is_fitted, column_or_1d, validate_data

from sirgcn.data import Task, load_tables
from sirgcn.data.tables import Inputs
from sirgcn.model.accepted import LABEL, Accepted, accept, in_graph, is_array, labelled, with_any_labels, without_target
from sirgcn.model.calibration import Calibration
from sirgcn.model.embedding import embed
from sirgcn.model.fitted import Model
from sirgcn.model.fitting import FitSettings
from sirgcn.model.folder import load as load_model
from sirgcn.model.folder import save as save_model
from sirgcn.model.judging import evaluate_tables
from sirgcn.model.predicting import check_level, decided, probabilities_of, read_inputs, rows_of_table
from sirgcn.model.training import TrainSettings, pages_of, train
from sirgcn.model.verified import FolderError
from sirgcn.strict import ConfigError

FRACTIONS = (0.8, 0.2, 0.0)
"""The shares of a split that an estimator draws: its caller keeps the test rows."""


class SIREstimator(TransformerMixin, BaseEstimator):  # type: ignore[misc] # scikit-learn has no types
    """What `SIRClassifier` and `SIRRegressor` have in common; use one of these.

    Args:
        graph: a known graph, (nodes, edges) or PyG's `Data`. Then X is the ids of its nodes, and nodes whose ids are
            not in `fit` stay in the graph without a label. That is what a cross-validation over nodes needs.
        target: the column of the targets in tables; default: the usual names. With `graph`, the column of the graph's
            own labels, which is not read.
        preset: "fast", "good" or "best", see `FitSettings`.
        time_limit: the seconds for all trainings together.
        seeds: how many networks are averaged.
        controls: whether controls are fitted beside the model.
        network: settings of the network that are not left to the rule.
        training: settings of the training that are not left to the rule.
        tables: other arguments of `load_tables`, such as {"split": "part"} or {"level": "edge"}.
        random_state: the seed.
    """

    def __init__(
        self,
        *,
        graph: Any = None,
        target: str | None = None,
        preset: Literal["fast", "good", "best"] = "good",
        time_limit: float | None = None,
        seeds: int | None = None,
        controls: bool = False,
        network: Mapping[str, Any] | None = None,
        training: Mapping[str, Any] | None = None,
        tables: Mapping[str, Any] | None = None,
        random_state: int = 0,
    ) -> None:
        self.graph = graph
        self.target = target
        self.preset = preset
        self.time_limit = time_limit
        self.seeds = seeds
        self.controls = controls
        self.network = network
        self.training = training
        self.tables = tables
        self.random_state = random_state

    def transform(self, X: Any) -> Any:
        """The embedding of each row: what the last layer of the networks reads."""
        inputs, places = self._inputs(X)
        return embed(self.model_, inputs.graphs)[torch.from_numpy(places)].numpy()

    def save(self, folder: str | Path) -> Path:
        """Write the model into a folder, completely or not at all. `sirgcn.load` reads it."""
        check_is_fitted(self, "model_")
        return save_model(self.model_, folder, pages_of(self.model_, self.task_))

    @classmethod
    def load(cls, folder: str | Path) -> Self:
        """The estimator of a folder that `save` or `sirgcn train` wrote. `graph` is not in it, and can be set."""
        found = from_model(load_model(folder))
        if not isinstance(found, cls):
            raise FolderError(f"{folder}: expected a model for {cls.__name__}, got one for {type(found).__name__}")
        return found

    def _fit(self, X: Any, y: Any, task: Literal["classification", "regression"] | None) -> Model:
        tables, target = self._tables(X, y)
        options: dict[str, Any] = {"seed": self.random_state, "fractions": FRACTIONS, "task": task}
        if target is not None:
            options["target"] = target
        self.task_: Task | None = load_tables(**tables, **(options | dict(self.tables or {})))
        fit = FitSettings(
            preset=self.preset,
            seed=self.random_state,
            time_limit=self.time_limit,
            seeds=self.seeds,
            network=dict(self.network or {}),
            train=dict(self.training or {}),
        )
        return train(self.task_, TrainSettings(fit, self.controls))

    def _tables(self, X: Any, y: Any) -> tuple[dict[str, Any], Any]:
        """The tables of a fit, and the column of the targets; None where the tables have one of the usual name."""
        several = [f"{LABEL}_{place}" for place in range(np.shape(y)[1])] if np.ndim(y) == 2 else LABEL
        if self.graph is not None:
            tables = in_graph(self.graph, column_or_1d(X), y, self.target)
            return tables, several if isinstance(tables["nodes"], pd.DataFrame) else None
        found = self._accepted(X, reset=True)
        if y is None or isinstance(y, str):
            return found.tables, y or self.target
        tables = labelled(found, y)
        return tables, several if isinstance(tables["nodes"], pd.DataFrame) else None

    def _accepted(self, X: Any, reset: bool) -> Accepted:
        """What the caller gave, as tables. Rows of numbers are checked as scikit-learn does."""
        if is_array(X):
            # A norm over the rows needs two of them to train on.
            least = 2 if reset else 1
            options = {"dtype": np.float64, "ensure_all_finite": "allow-nan", "ensure_min_samples": least}
            X = validate_data(self, X, reset=reset, **options)
        elif isinstance(X, pd.DataFrame):
            validate_data(self, X, reset=reset, skip_check_array=True)
        return accept(X)

    def _need_targets(self, X: Any) -> None:
        if self.graph is not None or is_array(X):
            raise ValueError(f"This {type(self).__name__} requires y to be passed, but the target y is None")

    def _inputs(self, X: Any) -> tuple[Inputs, Any]:
        """The graphs of X, and the place of each of its rows among the outputs."""
        check_is_fitted(self, "model_")
        if self.graph is None:
            tables = with_any_labels(self._accepted(X, reset=False).tables, self.model_.problem.level)
            inputs = read_inputs(self.model_, **tables, unknown="other")
            return inputs, rows_of_table(self.model_, inputs)[1]
        tables = without_target(self.graph, self.target)
        inputs = read_inputs(self.model_, **tables, unknown="other")
        names, places = rows_of_table(self.model_, inputs)
        place = {
            str(name): number for name, number in zip(np.asarray(names["id"]).tolist(), places.tolist(), strict=True)
        }
        wanted = [str(name) for name in column_or_1d(X).tolist()]
        unknown = [name for name in wanted if name not in place]
        if unknown:
            raise ConfigError(f"X: expected ids of nodes of the graph, got {unknown[0]!r}")
        return inputs, np.array([place[name] for name in wanted], dtype=np.int64)

    def _outputs(self, X: Any) -> torch.Tensor:
        inputs, places = self._inputs(X)
        return self.model_.outputs(inputs.graphs)[torch.from_numpy(places)]

    def _score_of_tables(self, X: Any) -> float:
        """The metric of the model on tables that hold their targets."""
        found = evaluate_tables(self.model_, accept(X).tables).evaluation
        entry = found["scores"][found["metric"]]
        return float(entry["value"] if entry["maximise"] else -entry["value"])

    def _remember(self, model: Model, **about: Any) -> None:
        """Keep the model, and in it what `load` needs."""
        params = {name: value for name, value in self.get_params(deep=False).items() if name != "graph"}
        known = {"params": {name: _plain(value) for name, value in params.items()}, **about}
        if hasattr(self, "n_features_in_"):
            known["features"] = int(self.n_features_in_)
        self.model_ = replace(model, about=model.about | {"estimator": known})

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.transformer_tags.preserves_dtype = []
        return tags


class SIRClassifier(ClassifierMixin, SIREstimator):  # type: ignore[misc] # scikit-learn has no types
    """A classifier of nodes, edges or graphs, with scikit-learn's methods.

    >>> import pandas as pd
    >>> nodes = pd.DataFrame({"id": range(40), "size": [1.0, 2.0] * 20})
    >>> edges = pd.DataFrame({"source": range(38), "target": range(2, 40)})
    >>> model = SIRClassifier(preset="fast").fit((nodes, edges), ["x", "y"] * 20)
    >>> model.predict_proba((nodes, edges)).shape
    (40, 2)
    """

    def fit(self, X: Any, y: Any = None) -> Self:
        """Train on graphs with their labels.

        Args:
            X: PyG's `Data` or a list of them, (nodes, edges) as frames or paths, a NetworkX graph, a column of SMILES,
                rows of numbers, or with `graph` the ids of nodes.
            y: a label for each row, or the name of the column of labels in the tables; None if the graphs hold them.
        """
        if y is None or isinstance(y, str):
            self._need_targets(X)
            model = self._fit(X, y, "classification")
            self.classes_ = _classes(model.problem.classes)
            self._remember(model)
            return self
        y = column_or_1d(y, warn=True)
        _refuse_missing(y)
        check_classification_targets(y)
        self.classes_, codes = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError(f"y: expected at least two classes, got only one class: {self.classes_.tolist()}")
        model = self._fit(X, codes, "classification")
        self._remember(_renamed(model, self.classes_), classes=self.classes_.tolist())
        return self

    def predict(self, X: Any) -> Any:
        """The class of each row; for several labels 0 or 1 for each."""
        probabilities = self._probabilities(X)
        chosen = decided(self.model_, probabilities).numpy()
        return chosen if self.model_.problem.sort == "labels" else self.classes_[chosen]

    def predict_proba(self, X: Any) -> Any:
        """The calibrated probability of each class, in the order of `classes_`; of each label, if there are several."""
        return self._probabilities(X).double().numpy()

    def predict_set(self, X: Any, level: float = 0.9) -> Any:
        """Which classes are in the conformal set of each row: bool `[rows, classes]`."""
        probabilities = self._probabilities(X)
        return _calibration(self.model_, level).sets(probabilities, level).numpy()

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """The accuracy; without y the metric of the model, on tables that hold their targets."""
        return self._score_of_tables(X) if y is None else float(super().score(X, y, sample_weight))

    def _probabilities(self, X: Any) -> torch.Tensor:
        outputs = self._outputs(X)
        return probabilities_of(self.model_, outputs)


def _refuse_missing(y: Any) -> None:
    missing = np.flatnonzero(pd.isna(y))
    if len(missing):
        raise ConfigError(
            f"y: expected a class for each row, got none for row {missing[0]}; to keep rows without one in the graph, "
            "say SIRClassifier(graph=...).fit(ids, y) with the other ids, or name the column of the tables"
        )


class SIRRegressor(RegressorMixin, SIREstimator):  # type: ignore[misc] # scikit-learn has no types
    """A regressor of nodes, edges or graphs, with scikit-learn's methods.

    >>> import pandas as pd
    >>> nodes = pd.DataFrame({"id": range(100), "size": [1.0, 2.0] * 50})
    >>> edges = pd.DataFrame({"source": range(98), "target": range(2, 100)})
    >>> price = [100.5, 250.5] * 50
    >>> model = SIRRegressor(preset="fast").fit((nodes, edges), price)
    >>> bool(abs(model.predict((nodes, edges)) - price).mean() < 40)
    True
    """

    def fit(self, X: Any, y: Any = None) -> Self:
        """Train on graphs with their numbers.

        Args:
            X: as in `SIRClassifier.fit`.
            y: a number for each row, or several, or the name of the column of numbers in the tables; None if the
                graphs hold them.
        """
        if y is None or isinstance(y, str):
            self._need_targets(X)
        else:
            y = check_array(y, ensure_2d=False, dtype=np.float64, input_name="y")
            y = column_or_1d(y, warn=True) if y.ndim == 2 and y.shape[1] == 1 else y
        self._remember(self._fit(X, y, "regression"))
        return self

    def predict(self, X: Any) -> Any:
        """The number of each row, or several."""
        found = self._outputs(X).double().numpy()
        return found[:, 0] if found.shape[1] == 1 else found

    def predict_interval(self, X: Any, level: float = 0.9) -> Any:
        """The ends of the interval of each row, `[rows, 2]`; with several targets `[rows, targets, 2]`."""
        outputs = self._outputs(X)
        ends = _calibration(self.model_, level).interval(outputs.double(), level)
        found = torch.stack(ends, dim=-1).numpy()
        return found[:, 0] if found.shape[1] == 1 else found

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """R squared; without y the metric of the model, negative if smaller is better, on tables with their targets."""
        return self._score_of_tables(X) if y is None else float(super().score(X, y, sample_weight))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags


def load(folder: str | Path) -> SIRClassifier | SIRRegressor:
    """The estimator in a folder that `save` or `sirgcn train` wrote. Its files are checked, and nothing in them is run.

    >>> import pandas as pd
    >>> from tempfile import TemporaryDirectory
    >>> nodes = pd.DataFrame({"id": range(40), "size": [1.0, 2.0] * 20})
    >>> edges = pd.DataFrame({"source": range(38), "target": range(2, 40)})
    >>> model = SIRClassifier(preset="fast").fit((nodes, edges), ["x", "y"] * 20)
    >>> with TemporaryDirectory() as folder:
    ...     again = load(model.save(folder))
    >>> bool((again.predict_proba((nodes, edges)) == model.predict_proba((nodes, edges))).all())
    True
    """
    return from_model(load_model(folder))


def from_model(model: Model) -> SIRClassifier | SIRRegressor:
    """The estimator of a model.

    Args:
        model: the model, perhaps of a command line.
    """
    known = model.about.get("estimator", {})
    made: SIRClassifier | SIRRegressor = SIRRegressor() if model.problem.sort == "numbers" else SIRClassifier()
    params = known.get("params", {})
    made.set_params(**{name: value for name, value in params.items() if name in made.get_params(deep=False)})
    if isinstance(made, SIRClassifier):
        made.classes_ = np.array(known["classes"]) if "classes" in known else _classes(model.problem.classes)
    if "features" in known:
        made.n_features_in_ = int(known["features"])
    made.model_, made.task_ = model, None
    return made


def _classes(names: tuple[str, ...]) -> Any:
    """The names of classes as scikit-learn has them: whole numbers if all are."""
    if not names:
        return np.array([0, 1])
    return np.array([int(name) for name in names] if all(name.isdigit() for name in names) else names)


def _renamed(model: Model, classes: Any) -> Model:
    """The model with the names of the classes in the place of their numbers, where tables could hold these names."""
    names = tuple(str(_plain(value)) for value in classes.tolist())
    if len(set(names)) < len(names) or any(not name or name != name.strip() for name in names):
        return model
    preprocessing = model.preprocessing
    if preprocessing is not None:
        preprocessing = replace(preprocessing, classes=names)
    return replace(model, problem=replace(model.problem, classes=names), preprocessing=preprocessing)


def _plain(value: Any) -> Any:
    """A value as JSON can hold it."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, Mapping):
        return {str(name): _plain(entry) for name, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(entry) for entry in value]
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)


def _calibration(model: Model, level: float) -> Calibration:
    check_level(model, level)
    assert model.calibration is not None
    return model.calibration
