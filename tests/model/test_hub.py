"""A model goes to a hub and comes back equal: over real HTTP requests to a stand-in on loopback."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from sirgcn.model import load, save
from sirgcn.model.hub import from_hub, push_to_hub
from tests.model.hub_server import COMMIT, Hub, running_hub
from tests.model.small import small_model

pytest.importorskip("huggingface_hub")


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Hub]:
    monkeypatch.setenv("HF_HUB_DISABLE_TELEMETRY", "1")
    monkeypatch.setenv("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    for proxy in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(proxy, raising=False)
    with running_hub() as found:
        yield found


def test_a_model_comes_back_equal_from_the_hub(hub: Hub, tmp_path: Path) -> None:
    model = small_model()
    folder = save(model, tmp_path / "model")
    address = push_to_hub(folder, "user/small", token="hf_test", endpoint=hub.address, private=True)
    assert address == f"{hub.address}/user/small/commit/{COMMIT}"
    assert set(hub.repositories["user/small"]) >= {path.name for path in folder.iterdir()}
    assert hub.private == {"user/small"}
    assert hub.tokens == {"Bearer hf_test"}
    found = from_hub("user/small", endpoint=hub.address, token="hf_test", cache=tmp_path / "cache")
    assert found.problem == model.problem
    expected, got = (m.members[0].network.state_dict() for m in (model, found))
    assert expected.keys() == got.keys()
    assert all(torch.equal(tensor, got[name]) for name, tensor in expected.items())


def test_a_model_is_pushed_without_a_folder_of_its_own(hub: Hub, tmp_path: Path) -> None:
    push_to_hub(small_model(), "user/small", token="hf_test", endpoint=hub.address)
    pinned = from_hub("user/small", revision=COMMIT, token="hf_test", endpoint=hub.address, cache=tmp_path)
    assert pinned.problem.name == "small"
    assert hub.private == set()


def test_a_hub_that_does_not_answer_is_an_error_that_names_its_address(hub: Hub, tmp_path: Path) -> None:
    nowhere = "http://127.0.0.1:9"
    folder = save(small_model(), tmp_path / "model")
    with pytest.raises(OSError, match=f"{nowhere}: expected an answer of a hub"):
        push_to_hub(folder, "user/small", token="hf_test", endpoint=nowhere)


def test_a_broken_folder_is_not_uploaded(hub: Hub, tmp_path: Path) -> None:
    folder = save(small_model(), tmp_path / "model")
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1] + b"?")
    with pytest.raises(ValueError, match=r"model\.safetensors"):
        push_to_hub(folder, "user/small", token="hf_test", endpoint=hub.address)
    assert hub.repositories == {}


def test_a_folder_that_changed_on_the_hub_is_refused(hub: Hub, tmp_path: Path) -> None:
    push_to_hub(small_model(), "user/small", token="hf_test", endpoint=hub.address)
    files = hub.repositories["user/small"]
    files["config.json"] = files["config.json"].replace(b"class 0", b"class X")
    with pytest.raises(ValueError, match=r"config\.json"):
        from_hub("user/small", token="hf_test", endpoint=hub.address, cache=tmp_path)


def test_a_downloaded_model_can_be_kept_as_a_folder(hub: Hub, tmp_path: Path) -> None:
    push_to_hub(small_model(), "user/small", token="hf_test", endpoint=hub.address)
    # A hub adds files of its own.
    hub.repositories["user/small"][".gitattributes"] = b"*.safetensors filter=lfs"
    from_hub("user/small", token="hf_test", endpoint=hub.address, cache=tmp_path / "cache", folder=tmp_path / "kept")
    assert load(tmp_path / "kept").problem.name == "small"
