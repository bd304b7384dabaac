"""The curves of runs for TensorBoard. The extra `log` installs TensorBoard."""

from pathlib import Path
from typing import Any

from sirgcn.engine.plan import Run

SCALARS = {"lr": "lr", "step_loss": "loss/step", "train_loss": "loss/train", "val_loss": "loss/val"}
"""Columns of a history and the names of their curves. The curves of the metric are `metric/train` and `metric/val`."""


class TensorBoard:
    """Writes every epoch of every run below a folder, with one folder of events per run.

    Raises:
        ModuleNotFoundError: TensorBoard is not installed. The error says how to install it.
    """

    def __init__(self, folder: Path) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ModuleNotFoundError as error:
            raise ModuleNotFoundError("TensorBoard is not installed: pip install 'sirgcn[log]'") from error
        self.folder, self._make = folder, SummaryWriter
        self.writers: dict[Run, Any] = {}

    def __call__(self, run: Run, event: str, detail: dict[str, Any]) -> None:
        """As `run_all` calls its listeners."""
        if event == "epoch":
            writer = self._writer(run, detail["epoch"])
            for name, value in detail.items():
                tag = SCALARS.get(name, f"metric/{name}" if name in ("train", "val") else None)
                if tag is not None and value is not None:
                    writer.add_scalar(tag, value, detail["epoch"] + 1)
        elif event != "start" and run in self.writers:
            self.writers.pop(run).close()

    def _writer(self, run: Run, epoch: int) -> Any:
        if run not in self.writers:
            # A resumed run overwrites the epochs after its checkpoint.
            where = self.folder / run.experiment.name / run.slug
            self.writers[run] = self._make(str(where), purge_step=epoch + 1)
        return self.writers[run]

    def __enter__(self) -> "TensorBoard":
        return self

    def __exit__(self, *error: object) -> None:
        for writer in self.writers.values():
            writer.close()
