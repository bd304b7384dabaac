"""Work on a Ray cluster, or on a Ray of this machine (extra: `sirgcn[cluster]`).

Ray opens ports for its own processes, on all addresses of a machine, and asks nobody who connects to them. Use it in a
private network only.
"""

import os
import threading
from collections.abc import Iterator, Sequence
from queue import SimpleQueue
from typing import Any, Self

from sirgcn.engine.workers import End, Work, keeping_memory

# The least that Ray takes. Runs send short messages only.
_STORE_BYTES = 80 * 2**20

# How long Ray may take to answer a call that has nothing to wait for.
_SECONDS = 60.0


class Ray:
    """Ray as an `Engine`. A piece of work is an actor, which has a process and its threads for itself.

    Args:
        jobs: how many pieces of work are done at a time; a local Ray gets so many.
        threads: the processors that each of them takes.
        device: the device that they compute on. If it is a GPU, each of them takes one.

    With the variable RAY_ADDRESS, the work is done on that cluster, whose machines must have this package, the data and
    the folders of the results under the same paths. Without it, a Ray starts here, and ends with the context.

    >>> Ray(jobs=4, threads=2, device="cuda").gpus  # nothing starts before `with`
    1
    """

    def __init__(self, jobs: int = 1, threads: int = 1, device: str = "cpu") -> None:
        self.jobs, self.threads, self.gpus = jobs, threads, int(device != "cpu")
        self.ray = _load()

    def __enter__(self) -> Self:
        """Connect to the cluster, or start one here."""
        # Ray would tell its makers how it is used.
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        # The signals of this process are handled by `signals`, which comes after and so replaces Ray's handler.
        common = {"log_to_driver": False, "logging_level": "ERROR"}
        address = os.environ.get("RAY_ADDRESS")
        if address:
            self.ray.init(address=address, **common)
        else:
            with keeping_memory():
                self.ray.init(
                    address="local",
                    num_cpus=self.jobs * self.threads,
                    include_dashboard=False,
                    object_store_memory=_STORE_BYTES,
                    _node_ip_address="127.0.0.1",
                    **common,
                )
        self._check_room()
        return self

    def __exit__(self, *error: object) -> None:
        """Leave the cluster. What still runs there for this process is ended, and so is a Ray that was started here."""
        self.ray.shutdown()

    def _check_room(self) -> None:
        """Refuse a cluster without a machine on which a piece of work would ever start."""
        found = [node["Resources"] for node in self.ray.nodes() if node["Alive"]]
        if not any(node.get("CPU", 0) >= self.threads and node.get("GPU", 0) >= self.gpus for node in found):
            self.ray.shutdown()
            wanted = f"{self.threads} processors" + " and a GPU" * self.gpus
            raise ValueError(f"engine: expected a Ray cluster with a machine of {wanted}, got none")

    def start(self, work: Work) -> "Actor":
        """Start an actor. It begins as soon as the cluster has room."""
        return Actor(self, work)

    def wait(self, workers: Sequence["Actor"], seconds: float) -> None:
        """Wait for the ends and the messages of actors."""
        ends = [end for worker in workers for end in worker.ends]
        if ends:
            self.ray.wait(ends, num_returns=1, timeout=seconds)


class Actor:
    """A piece of work in an actor of Ray, as a `Worker`."""

    def __init__(self, engine: Ray, work: Work) -> None:
        self.ray, self.is_asked = engine.ray, False
        made = self.ray.remote(_Doing).options(
            num_cpus=engine.threads,
            num_gpus=engine.gpus,
            max_restarts=0,
            max_concurrency=3,  # its work, the wait for its messages, and a request to stop
        )
        self.actor = made.remote()
        self.outcome = self.actor.do.remote(work)
        self.next: Any = self.actor.messages.remote()

    @property
    def ends(self) -> list[Any]:
        """What to wait for: the outcome, and the next messages."""
        return [self.outcome] if self.next is None else [self.outcome, self.next]

    def end(self) -> End | None:
        """How the work has ended; None while it goes on."""
        if not self._has(self.outcome):
            return None
        try:
            return End(self.ray.get(self.outcome, timeout=_SECONDS))
        except self.ray.exceptions.RayTaskError as error:
            what = str(error.cause).partition("\n")[0]
            return End(None, f"the process ended with {type(error.cause).__name__}: {what}")
        except self.ray.exceptions.RayError as error:
            return End(None, f"the process ended: {type(error).__name__}")

    def messages(self) -> Iterator[Any]:
        """What has been sent since the last call; all that is left, if the work has ended."""
        # The answer with the last messages may come after the outcome.
        has_ended = self._has(self.outcome)
        while self.next is not None and (has_ended or self._has(self.next)):
            try:
                found = self.ray.get(self.next, timeout=_SECONDS)
            except self.ray.exceptions.RayError:
                found = [_LAST]
            self.next = None if found[-1] == _LAST else self.actor.messages.remote()
            yield from (message for message in found if message != _LAST)

    def stop(self) -> None:
        """Ask the work to save its state and to end."""
        if not self.is_asked:
            self.is_asked = True
            self.actor.stop.remote()

    def _has(self, reference: Any) -> bool:
        return bool(self.ray.wait([reference], timeout=0)[0])


_LAST = "the last message"


class _Doing:
    """What runs in the process of an actor: the work in one thread, and the answers to calls in others."""

    def __init__(self) -> None:
        self.sent: SimpleQueue[Any] = SimpleQueue()
        self.asked = threading.Event()

    def do(self, work: Work) -> str:
        """The outcome of the work."""
        try:
            return work(self.sent.put, self.asked.is_set)
        finally:
            self.sent.put(_LAST)

    def messages(self) -> list[Any]:
        """The messages that are there, at least one."""
        found = [self.sent.get()]
        while not self.sent.empty():
            found.append(self.sent.get())
        return found

    def stop(self) -> None:
        """Ask the work to stop."""
        self.asked.set()


def _load() -> Any:
    """Ray, which is imported when it is used. Where it is not installed, the error says what to install."""
    try:
        import ray
    except ImportError as error:
        raise ImportError("engine: ray needs Ray: pip install 'sirgcn[cluster]'") from error
    return ray
