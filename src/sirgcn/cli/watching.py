"""The progress of a training, for somebody who waits: a bar on a terminal, plain lines in a log."""

import time
from typing import Any

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from sirgcn.cli.shared import Interrupt, err

# A log gets a line for the first epoch and then one in so many seconds.
_SECONDS = 10.0


class Watching:
    """Shows the epochs of a training on standard error, and the sentences that it says.

    Args:
        interrupt: checked after every epoch.
    """

    def __init__(self, interrupt: Interrupt | None = None) -> None:
        self.interrupt = interrupt
        self.bars = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[note]}"),
            TimeRemainingColumn(),
            console=err,
            transient=True,
            disable=not err.is_terminal,
        )
        self.task: Any = None
        self.said = -_SECONDS
        self.number: Any = None

    def __enter__(self) -> "Watching":
        self.bars.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.bars.stop()

    def say(self, text: str) -> None:
        """Print a sentence."""
        err.print(text, markup=False, highlight=False, soft_wrap=True)

    def epoch(self, row: dict[str, Any], epochs: int) -> None:
        """Show an epoch."""
        if self.interrupt is not None:
            self.interrupt.check()
        note = f"loss {row['step_loss']:.4g}"
        if row.get("val") is not None:
            note += f", val {row['val']:.4g}"
        title = f"training {row.get('number', 1)} of {row.get('of', 1)}"
        if row.get("number") != self.number or self.task is None:
            self.number = row.get("number")
            if self.task is not None:
                self.bars.remove_task(self.task)
            self.task, self.said = self.bars.add_task(title, total=epochs, note=note), -_SECONDS
        self.bars.update(self.task, completed=row["epoch"] + 1, total=epochs, note=note)
        if not err.is_terminal and time.monotonic() - self.said > _SECONDS:
            self.said = time.monotonic()
            self.say(f"{title}: epoch {row['epoch'] + 1} of at most {epochs}, {note}{_left(row)}")


def _left(row: dict[str, Any]) -> str:
    """How long the training still takes if it does not stop by itself."""
    from sirgcn.model.plan import in_words

    seconds = row.get("seconds_left")
    return "" if seconds is None else f", at most {in_words(seconds)} left"
