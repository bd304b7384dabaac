"""Ranks of this machine: started, watched, restarted, stopped; and nothing listens to the outside."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from sirgcn.scale.launch import RankError, joined, launch
from sirgcn.strict import ConfigError
from tests.scale import onranks

LIMIT = 240.0


def test_every_rank_returns_its_own_value_in_the_order_of_the_ranks() -> None:
    assert launch(onranks.size_of_world, 3, seconds=LIMIT) == [[0, 3], [1, 3], [2, 3]]


def test_five_launches_of_four_ranks_end() -> None:
    for _ in range(5):  # 50 of them: `python tools/soak.py --only ranks`
        assert launch(onranks.size_of_world, 4, seconds=LIMIT) == [[rank, 4] for rank in range(4)]


@pytest.mark.skipif(not Path("/proc/net/tcp").exists(), reason="this system has no /proc/net/tcp")
def test_ranks_listen_on_the_loopback_address_only() -> None:
    found = launch(onranks.listeners, 2, seconds=LIMIT)
    addresses = {address.partition(":")[0] for rank in found for address in rank}
    assert addresses == {"0100007F"}  # 127.0.0.1; a wildcard address is 00000000


def test_an_error_on_one_rank_is_raised_with_its_rank_and_its_traceback() -> None:
    with pytest.raises(RankError, match=r"^rank 1: ValueError: no such thing\b") as found:
        launch(onranks.fail_on_one, 2, ("no such thing",), seconds=LIMIT)
    assert "in fail_on_one" in "".join(found.value.__notes__)


def test_a_rank_that_is_always_killed_ends_the_launch_after_the_restarts() -> None:
    with pytest.raises(RankError, match=r"rank 1 was killed by SIGKILL; the ranks were started 2 times \(restarts=1\)"):
        launch(onranks.die_always, 2, restarts=1, seconds=LIMIT)


def test_a_launch_that_hangs_is_stopped_at_its_time_limit() -> None:
    started = time.monotonic()
    with pytest.raises(TimeoutError, match="the time limit passed while rank 0"):
        launch(onranks.wait_forever, 2, seconds=4)
    assert time.monotonic() - started < 60


def test_no_process_stays_after_a_launch(tmp_path: Path) -> None:
    with pytest.raises(RankError):
        launch(onranks.fail_with_pid, 3, (str(tmp_path),), seconds=LIMIT)
    for file in tmp_path.iterdir():
        with pytest.raises(ProcessLookupError):
            os.kill(int(file.name), 0)


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="this system has no SIGKILL")
def test_no_rank_outlives_the_process_that_launched_it() -> None:
    code = (
        "from sirgcn.scale.launch import launch; from tests.scale import onranks;"
        "launch(onranks.wait_after_a_word, 2, seconds=200)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[2]
    ) as launcher:
        assert launcher.stdout is not None
        said = [launcher.stdout.readline() for _ in range(2)]
        launcher.kill()
        assert said == ["ready\n"] * 2
        # The ranks hold the other end of the pipe: it is closed when the last of them has ended.
        rest, _ = launcher.communicate(timeout=60)
        assert rest == ""


@pytest.mark.parametrize(
    ("options", "message"), [({"ranks": 0}, "ranks: expected at least 1"), ({"ranks": 1, "restarts": -1}, "restarts")]
)
def test_bad_numbers_are_refused(options: dict[str, int], message: str) -> None:
    with pytest.raises((ConfigError, ValueError), match=message):
        launch(onranks.size_of_world, **options)  # type: ignore[arg-type]


def test_a_process_that_torchrun_has_not_started_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RANK", raising=False)
    with pytest.raises(ConfigError, match=r"^RANK: expected in the environment"), joined():
        pass


def has_namespaces() -> bool:
    if not sys.platform.startswith("linux"):
        return False
    command = ["unshare", "-rn", "sh", "-c", "ip link set lo up"]
    try:
        return subprocess.run(command, capture_output=True, check=False, timeout=30).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


@pytest.mark.skipif(
    not has_namespaces(), reason="torchrun listens on all addresses, and `unshare -n` does not work here"
)
def test_torchrun_starts_the_same_ranks() -> None:
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-port", "29555"]
    inside = " ".join([*torchrun, "--master-addr", "127.0.0.1", "examples/on_ranks.py", "--epochs", "2"])
    run = subprocess.run(
        ["unshare", "-rn", "sh", "-c", f"ip link set lo up && exec {inside}"],
        capture_output=True,
        text=True,
        timeout=LIMIT,
        env=os.environ | {"GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"},
        cwd=Path(__file__).parents[2],
        check=False,
    )
    assert run.returncode == 0, run.stderr
    # Both are ranks of one training: rank 0 says what each owns, and prints the result.
    assert [line.split()[:2] for line in run.stdout.splitlines()[1:3]] == [["0", "500"], ["1", "500"]]
    assert "epochs: 2, test accuracy: " in run.stdout
