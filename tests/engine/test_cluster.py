"""Runs on Ray end as those of processes do: finished, failed, stopped and killed."""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

from sirgcn.engine import experiment as config
from sirgcn.engine.cluster import Ray
from sirgcn.engine.plan import Settings, plan
from sirgcn.engine.pool import run_all
from sirgcn.engine.records import DONE, FAILED
from sirgcn.engine.run import PAUSED, execute
from sirgcn.engine.workers import engine_named
from sirgcn.model.tune import read_tuned
from sirgcn.strict import ConfigError
from tests.engine.standins import read_whole
from tests.engine.test_run import TOML, without_time
from tests.scale.test_launch import has_namespaces


@pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="Ray is not installed")
@pytest.mark.skipif(not has_namespaces(), reason="Ray listens on all addresses, and `unshare -n` does not work here")
def test_runs_on_ray_end_as_those_of_processes(tmp_path: Path) -> None:
    (tmp_path / "small.toml").write_text(TOML)
    (tmp_path / "long.toml").write_text(TOML.replace("epochs = 3", "epochs = 100000"))
    broken = TOML.replace('conv = "gin"', 'conv = "gin"\noptions = { encoder = "none", block = "skip" }')
    (tmp_path / "broken.toml").write_text(broken)
    script = Path(__file__).with_name("rayed.py")
    inside = [
        "unshare",
        "-rn",
        "sh",
        "-c",
        'ip link set lo up && exec "$@"',
        "sh",
        sys.executable,
        str(script),
        str(tmp_path),
    ]
    done = subprocess.run(inside, capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(done.stdout.splitlines()[-1])

    assert found["first"] == {"SIR-GCN": DONE, "GIN": FAILED}
    assert [event for model, event in found["events"] if model == "SIR-GCN"] == ["start", *["epoch"] * 3, "done"]
    (run,) = plan(config.load(tmp_path / "small.toml"), ["SIR-GCN"], seeds=[0])
    assert execute(run, Settings(tmp_path / "here", tmp_path / "runs", threads=1)) == DONE
    ours, theirs = (read_whole(tmp_path / place / "small.jsonl")[0] for place in ("here", "ray"))
    assert without_time(ours) == without_time(theirs)
    (failed,) = read_whole(tmp_path / "ray" / "broken.jsonl")
    assert "Traceback" in failed["traceback"]

    assert found["second"] == [PAUSED]
    assert list((tmp_path / "work" / "long").rglob("*.safetensors"))
    assert not (tmp_path / "ray" / "long.jsonl").exists()

    ((number, state, score),) = found["tuned"]
    assert (number, state) == (0, "done")
    assert read_tuned(tmp_path / "study").score == score

    killed = found["killed"]
    assert (killed["outcome"], killed["is_stopped"]) == (None, False)
    assert killed["why"].startswith("the process ended: ")


def test_engine_that_is_not_known_is_refused() -> None:
    with pytest.raises(ConfigError, match="engine: expected one of processes, ray, got 'slurm'"):
        engine_named("slurm")


def test_ray_that_is_not_installed_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ImportError, match=r"pip install 'sirgcn\[cluster\]'"):
        engine_named("ray")


@pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="Ray is not installed")
def test_timed_runs_are_not_made_on_ray(tmp_path: Path) -> None:
    timed = TOML.replace("[train]\nepochs = 3\n", "[timing]\n").replace("[reduced]\nepochs = 1\n", "")
    (tmp_path / "timed.toml").write_text('sort = "inference"\n' + timed.replace('selection = "last"\n', ""))
    runs = plan(config.load(tmp_path / "timed.toml"), ["GIN"], seeds=[0])
    with pytest.raises(ValueError, match="engine: expected processes for timed, whose runs are timed"):
        run_all(runs, Settings(tmp_path, tmp_path), engine=Ray())
