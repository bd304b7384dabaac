"""The example of a server answers real HTTP requests on loopback as the model does."""

import json
import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sirgcn.data import load_tables
from sirgcn.model import Member, Model, Problem, predict, save
from sirgcn.nn import NetConfig, build_net
from tests.model.small import tables, with_statistics

pytest.importorskip("fastapi")
pytest.importorskip("uvicorn")

EXAMPLE = Path(__file__).parents[2] / "examples" / "serving"
# Seconds until a server must have started, or answered.
PATIENCE = 120


@pytest.fixture(scope="module")
def model() -> Model:
    task = load_tables(**tables())
    config = NetConfig.of(task.schema.features, 16, 2, 2, aggr="mean")
    network = with_statistics(build_net(config))
    return Model(Problem.of(task), (Member(config, network),), None, task.details["preprocessing"])


@pytest.fixture(scope="module")
def server(model: Model, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a server in a process of its own."""
    folder = tmp_path_factory.mktemp("serving")
    save(model, folder / "model")
    # The system chooses a free port, which the log names.
    command = [sys.executable, "-W", "ignore", "-m", "uvicorn", "--app-dir", str(EXAMPLE), "app:app", "--port", "0"]
    log = folder / "log"
    environment = os.environ | {"SIRGCN_MODEL": str(folder / "model"), "OMP_NUM_THREADS": "1"}
    with log.open("w") as file:
        process = subprocess.Popen([*command, "--host", "127.0.0.1"], stdout=file, stderr=file, env=environment)
        try:
            yield _address(process, log)
        finally:
            process.terminate()
            process.wait(timeout=20)


def _address(process: "subprocess.Popen[bytes]", log: Path) -> str:
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end and process.poll() is None:
        for word in log.read_text().split():
            if word.startswith("http://127.0.0.1:"):
                return word
        time.sleep(0.1)
    raise AssertionError(f"the server did not start:\n{log.read_text()}")


def ask(address: str, body: Any = None) -> tuple[int, Any]:
    """The status and the answer of a request."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(address, data, {"content-type": "application/json"})
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(request, timeout=PATIENCE) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


def rows() -> dict[str, list[dict[str, Any]]]:
    given = tables()
    return {
        "nodes": given["nodes"].drop(columns="label").to_dict("records"),
        "edges": given["edges"].to_dict("records"),
    }


def test_a_server_gives_the_predictions_of_the_model(server: str, model: Model) -> None:
    assert ask(f"{server}/health")[1]["classes"] == ["no", "yes"]
    status, found = ask(f"{server}/predict", rows())
    assert status == 200
    given = tables()
    expected = predict(model, given["nodes"].drop(columns="label"), given["edges"])
    assert [row["id"] for row in found] == list(expected["id"])
    assert [row["prediction"] for row in found] == list(expected["prediction"])
    assert [row["probability_yes"] for row in found] == pytest.approx(list(expected["probability_yes"]), abs=1e-6)


def test_a_server_explains_a_row(server: str) -> None:
    status, found = ask(f"{server}/explain", rows() | {"row": "A017"})
    assert status == 200
    assert found["row"] == "A017"
    assert {edge["target"] for edge in found["edges"] if edge["hops"] == 0} == {"A017"}


def test_nodes_without_edges_are_predicted(server: str) -> None:
    status, found = ask(f"{server}/predict", {"nodes": rows()["nodes"][:2], "edges": []})
    assert status == 200
    assert len(found) == 2


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"nodes": [{"id": "A", "colour": "red"}], "edges": []}, "size"),
        ({"edges": [{"source": "A000", "target": "nobody"}]}, "nobody"),
        ({"nodes": []}, "at least 1 item"),
        ({"level": 2}, "less than 1"),
    ],
    ids=["missing column", "unknown node", "no nodes", "wrong level"],
)
def test_a_mistake_is_told_and_the_server_goes_on(server: str, change: dict[str, Any], told: str) -> None:
    status, found = ask(f"{server}/predict", rows() | change)
    assert status == 422
    assert told in json.dumps(found)
    assert ask(f"{server}/predict", rows())[0] == 200
