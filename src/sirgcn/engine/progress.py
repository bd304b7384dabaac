"""The progress of runs: bars on a terminal, plain lines in a log."""

import time
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bars

from sirgcn.engine.plan import Run


class Progress:
    """Shows the runs that are being made, each with its epoch, loss, metric and remaining time."""

    def __init__(self, total: int, quiet: bool = False, console: Console | None = None) -> None:
        self.console = console or Console(stderr=True, quiet=quiet)
        self.total, self.finished = total, 0
        self.bars = Bars(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[note]}"),
            TimeRemainingColumn(),
            console=self.console,
            transient=True,
            disable=not self.console.is_terminal,
        )
        self.tasks: dict[Run, Any] = {}
        self.said: dict[Run, float] = {}

    def __enter__(self) -> "Progress":
        self.bars.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.bars.stop()

    def __call__(self, run: Run, event: str, detail: dict[str, Any]) -> None:
        """As `run_all` calls its listeners."""
        if event == "start":
            note = "timing" if run.experiment.is_timed else "reading the data"
            self.tasks[run] = self.bars.add_task(str(run), total=None, note=note)
            self.said[run] = time.monotonic()
            self._line(f"begun: {run}")
        elif event == "epoch":
            self._epoch(run, detail)
        else:
            self.finished += 1
            # A run may end twice: by its own word, and by a signal that killed its process right after.
            task = self.tasks.pop(run, None)
            if task is not None:
                self.bars.remove_task(task)
            line = f"[{self.finished}/{self.total}] {event}: {run}{result_of(detail)}"
            self.console.print(line, markup=False, highlight=False, soft_wrap=True)

    def _epoch(self, run: Run, row: dict[str, Any]) -> None:
        note = f"loss {row['step_loss']:.4g}"
        if row.get("val") is not None:
            note += f", val {row['val']:.4g}"
        elif row.get("train") is not None:
            note += f", train {row['train']:.4g}"
        self.bars.update(self.tasks[run], completed=row["epoch"] + 1, total=row["epochs"], note=note)
        # A log gets a line every 30 seconds, not one per epoch.
        if time.monotonic() - self.said[run] > 30:
            self.said[run] = time.monotonic()
            self._line(f"{run}: epoch {row['epoch'] + 1}/{row['epochs']}, {note}, lr {row['lr']:.2g}")

    def _line(self, text: str) -> None:
        if not self.console.is_terminal:
            self.console.print(text, markup=False, highlight=False, soft_wrap=True)


def result_of(detail: dict[str, Any]) -> str:
    """The result of a run, as it is printed after its name: the score, and the error if there is one."""
    error = detail.get("error")
    return f"{_score(detail)}{'' if error is None else f': {error}'}"


def _score(record: dict[str, Any]) -> str:
    if "metrics" not in record:
        return ""
    metrics = record["metrics"]
    if "epochs" not in record:
        return f", {', '.join(f'{name} {value:.4g}' for name, value in metrics.items())}"
    found = ", no score (no test part)"
    for part in ("val", "test"):
        if part in metrics and ("trial" in record or part == "test"):
            found = f", {part} {record['metric']} {metrics[part]:.4g}"
    return f"{found} after {record['epochs']} epochs, {record['seconds']:.0f} s ({record['stopped']})"
