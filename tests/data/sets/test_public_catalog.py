"""Every data set of the catalogue can be found, downloaded, checked and loaded by its name, and the docs list it."""

import hashlib
import io
import json
import re
import threading
import zipfile
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from sirgcn.data import METRICS, DataError
from sirgcn.data.files import Archive, Raw, RawFile, locate
from sirgcn.data.sets import catalog, public
from sirgcn.data.sets.catalog import DATASETS, Dataset, fetch, find, load, verify
from sirgcn.data.store import cache_root, data_root

DOCS = Path(__file__).parents[3] / "docs" / "data"


def content(seed: int = 0) -> bytes:
    rng = np.random.default_rng(seed)
    parts = rng.permutation(30) % 3
    file = io.BytesIO()
    np.savez(
        file,
        node_features=rng.random((30, 4), np.float32),
        node_labels=np.arange(30) % 5,
        edges=rng.integers(0, 30, (60, 2)),
        **{f"{name}_masks": (parts == part)[None] for part, name in enumerate(("train", "val", "test"))},
    )
    return file.getvalue()


CONTENT = content()
SHA256 = hashlib.sha256(CONTENT).hexdigest()


@pytest.fixture
def site(tmp_path: Path) -> Iterator[tuple[Path, str]]:
    """A folder and its address."""
    folder = tmp_path / "site"
    folder.mkdir()

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(folder))) as http:
        thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield folder, f"http://127.0.0.1:{http.server_address[1]}"
        http.shutdown()
        thread.join()


def add(monkeypatch: pytest.MonkeyPatch, *raw: Raw) -> None:
    reader = partial(public.heterophilous, name="tiny")
    dataset = Dataset("tiny", "node", "accuracy", (1, 30, 100), "CC0", "https://example.org", reader, raw)
    monkeypatch.setitem(DATASETS, "tiny", dataset)


def test_a_new_data_set_costs_one_entry(site: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, url = site
    (folder / "tiny.npz").write_bytes(CONTENT)
    add(monkeypatch, Raw("own/tiny", (RawFile("tiny.npz", f"{url}/tiny.npz", f"sha256:{SHA256}"),)))
    assert fetch("tiny", tmp_path / "root") == tmp_path / "root" / "own" / "tiny"
    path = tmp_path / "root" / "own" / "tiny" / "tiny.npz"
    assert verify("tiny", tmp_path / "root") == {str(path): "as published"}
    assert load("tiny", tmp_path / "root").version == "as published"
    # What is there is not downloaded again.
    (folder / "tiny.npz").unlink()
    assert load("tiny", tmp_path / "root").graphs.num_nodes == 30


def test_load_downloads_what_is_not_there_unless_told_not_to(
    site: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, url = site
    (folder / "tiny.npz").write_bytes(CONTENT)
    add(monkeypatch, Raw("tiny", (RawFile("tiny.npz", f"{url}/tiny.npz"),)))
    with pytest.raises(DataError, match=re.escape(f"put tiny.npz into {tmp_path / 'tiny'}, from {url}/tiny.npz")):
        load("tiny", tmp_path, download=False)
    assert verify("tiny", tmp_path) == {str(tmp_path / "tiny" / "tiny.npz"): "missing"}
    task = load("tiny", tmp_path)
    # No hash was published: the version tells which files these are.
    assert re.fullmatch(r"files of sha256 [0-9a-f]{16}", task.version)
    assert list(verify("tiny", tmp_path).values()) == ["unknown"]


def test_offline_the_message_names_file_folder_and_source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    add(monkeypatch, Raw("tiny", (RawFile("tiny.npz", "http://127.0.0.1:9/tiny.npz"),)))
    monkeypatch.setattr("sirgcn.data.download.time.sleep", lambda seconds: None)
    with pytest.raises(
        DataError, match=re.escape(f"put tiny.npz into {tmp_path / 'tiny'}, from http://127.0.0.1:9/tiny.npz")
    ):
        load("tiny", tmp_path)


def test_archives_are_unpacked_and_only_what_is_needed_is_kept(
    site: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, url = site
    with zipfile.ZipFile(folder / "all.zip", "w") as archive:
        archive.writestr("inner/tiny.npz", CONTENT)
        archive.writestr("inner/README", "not needed")
    raw = Raw("tiny", (RawFile("tiny.npz"),), Archive(f"{url}/all.zip?dl=1", "inner"))
    add(monkeypatch, raw)
    assert load("tiny", tmp_path / "root").graphs.num_nodes == 30
    assert [path.name for path in (tmp_path / "root" / "tiny").iterdir()] == ["tiny.npz"]
    # Brought by hand it is unpacked without a network, and stays.
    by_hand = tmp_path / "hand" / "tiny"
    by_hand.mkdir(parents=True)
    (folder / "all.zip").rename(by_hand / "all.zip")
    assert load("tiny", tmp_path / "hand").graphs.num_nodes == 30
    assert sorted(path.name for path in by_hand.iterdir()) == ["all.zip", "tiny.npz"]


def test_an_archive_in_a_read_only_folder_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with zipfile.ZipFile(tmp_path / "all.zip", "w") as archive:
        archive.writestr("tiny.npz", CONTENT)
    add(monkeypatch, Raw(".", (RawFile("tiny.npz"),), Archive("http://127.0.0.1:9/all.zip")))

    def denied(*_: Any, **__: Any) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("sirgcn.data.files.tempfile.TemporaryDirectory", denied)
    with pytest.raises(DataError, match=r"all\.zip: cannot be unpacked into .*Permission denied"):
        load("tiny", tmp_path)


def test_an_archive_without_the_file_is_refused(site: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, url = site
    with zipfile.ZipFile(folder / "all.zip", "w") as archive:
        archive.writestr("other.npz", CONTENT)
    add(monkeypatch, Raw("tiny", (RawFile("tiny.npz"),), Archive(f"{url}/all.zip", "inner")))
    with pytest.raises(DataError, match=r"expected inner/tiny\.npz in it, got none"):
        load("tiny", tmp_path)
    # A damaged archive brought by hand is refused by its hash.
    add(monkeypatch, Raw("tiny", (RawFile("tiny.npz"),), Archive(f"{url}/all.zip", "inner", "sha256:00")))
    with pytest.raises(DataError, match="expected sha256 00, got "):
        load("tiny", tmp_path)


def test_a_changed_file_is_refused_naming_both_hashes_unless_told_not_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    add(monkeypatch, Raw("tiny", (RawFile("tiny.npz", None, f"sha256:{SHA256}"),)))
    (tmp_path / "tiny").mkdir()
    other = content(1)
    (tmp_path / "tiny" / "tiny.npz").write_bytes(other)
    with pytest.raises(DataError, match=f"expected sha256 {SHA256}, got {hashlib.sha256(other).hexdigest()}"):
        load("tiny", tmp_path)
    assert "expected sha256" in next(iter(verify("tiny", tmp_path).values()))
    assert load("tiny", tmp_path, check=False).version.startswith("files of sha256")


def test_a_known_copy_says_what_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = RawFile("tiny.npz", None, "sha256:00", ((SHA256, "rebuilt tiny"),))
    add(monkeypatch, Raw("first", (file,)), Raw("second", (file,)))
    # The second layout will do.
    (tmp_path / "second").mkdir()
    (tmp_path / "second" / "tiny.npz").write_bytes(CONTENT)
    assert load("tiny", tmp_path).version == "rebuilt tiny"
    assert verify("tiny", tmp_path) == {str(tmp_path / "second" / "tiny.npz"): "rebuilt tiny"}


def test_what_cannot_be_downloaded_says_so(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"there is no download: put tiny\.npz into"):
        locate((Raw("tiny", (RawFile("tiny.npz"),)),), tmp_path)


def test_a_read_only_root_is_told(site: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, url = site
    (folder / "tiny.npz").write_bytes(CONTENT)
    add(monkeypatch, Raw("tiny", (RawFile("tiny.npz", f"{url}/tiny.npz"),)))

    def denied(self: Path, *_: Any, **__: Any) -> None:
        raise PermissionError(13, "Permission denied", str(self))

    monkeypatch.setattr(Path, "mkdir", denied)
    with pytest.raises(DataError, match=rf"{tmp_path / 'tiny'} cannot be written\); put tiny.npz into"):
        load("tiny", tmp_path)


def test_the_root_is_the_argument_then_the_variable_then_the_users_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for function, variable in ((data_root, "SIRGCN_DATA"), (cache_root, "SIRGCN_CACHE")):
        monkeypatch.delenv(variable, raising=False)
        for platform, other in (("linux", "XDG_CACHE_HOME"), ("win32", "LOCALAPPDATA")):
            monkeypatch.setattr("sirgcn.data.store.sys.platform", platform)
            monkeypatch.setenv(other, str(tmp_path))
            assert function() == tmp_path / "sirgcn"
            for ignored in ("", "relative"):
                monkeypatch.setenv(other, ignored)
                assert function() == Path.home() / ".cache" / "sirgcn"
        monkeypatch.setenv(variable, str(tmp_path / "variable"))
        assert function() == tmp_path / "variable"
        assert function(tmp_path) == tmp_path
        assert function("~/x") == Path.home() / "x"


def test_names_are_found_in_any_spelling_and_near_ones_are_offered() -> None:
    for name in ("roman-empire", "Roman_Empire", "ROMAN-EMPIRE"):
        assert find(name).name == "roman-empire"
    assert find("dictionary-lookup").name == "dictionary_lookup"
    with pytest.raises(DataError, match=r"expected one of .*tolokers.*did you mean minesweeper") as refusal:
        load("minesweper")
    assert all(name in str(refusal.value) for name in DATASETS)
    assert len({name.lower().replace("_", "-") for name in DATASETS}) == len(DATASETS)


def test_unknown_options_are_refused_with_the_known_ones() -> None:
    with pytest.raises(TypeError, match="ogbn-arxiv: expected one of undirected, self_loops, got 'self_loop'"):
        load("ogbn-arxiv", self_loop=False)
    with pytest.raises(TypeError, match="roman-empire: expected one of no options, got 'file'"):
        load("roman-empire", file="texas")
    assert DATASETS["mnist"].options == ("limit", "colour", "edge_values", "workers")


def test_what_is_made_here_needs_no_files(tmp_path: Path) -> None:
    task = load("dictionary_lookup", tmp_path, seed=3, n=4, num_graphs=10)
    assert (task.graphs.num_graphs, task.graphs.num_nodes) == (10, 80)
    other = load("dictionary_lookup", tmp_path, seed=4, n=4, num_graphs=10)
    assert not torch.equal(task.graphs.x, other.graphs.x)
    assert load("hetero_edge_count", c=3, num_graphs=5).graphs.num_graphs == 5
    assert verify("dictionary_lookup") == {}
    with pytest.raises(DataError, match="there is nothing to download"):
        fetch("pattern")


@pytest.mark.parametrize("name", DATASETS)
def test_every_entry_is_complete(name: str) -> None:
    dataset = DATASETS[name]
    assert dataset.metric in METRICS
    assert dataset.level in ("node", "edge", "graph")
    assert dataset.source.startswith("http")
    assert dataset.licence
    assert dataset.drawn or dataset.raw
    for raw in dataset.raw[:1]:
        for file in raw.files:
            assert file.url or raw.archive, f"{file.name} comes from nowhere"
    for raw in dataset.raw:
        assert not raw.folder.startswith("/")
        for file in raw.files:
            assert file.checksum is None or re.fullmatch("sha256:[0-9a-f]{64}|md5:[0-9a-f]{32}", file.checksum)
            assert all(re.fullmatch("[0-9a-f]{64}", digest) for digest, _ in file.known)


@pytest.mark.parametrize("name", [name for name, dataset in DATASETS.items() if dataset.raw])
def test_every_data_set_says_what_to_put_where_when_it_is_not_there(name: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"put .* into .*, from http"):
        load(name, tmp_path, download=False)
    assert set(verify(name, tmp_path).values()) == {"missing"}
    assert list(tmp_path.iterdir()) == []


def rows() -> dict[str, list[str]]:
    lines = [line for line in (DOCS / "index.md").read_text().splitlines() if line.startswith("| `")]
    table = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return {cells[0].strip("`"): cells[1:] for cells in table}


def test_the_docs_list_every_data_set_as_the_catalogue_has_it() -> None:
    listed = rows()
    assert list(listed) == list(DATASETS)
    for name, dataset in DATASETS.items():
        assert listed[name] == catalog.row(dataset), (
            f"docs/data/index.md: | `{name}` | {' | '.join(catalog.row(dataset))} |"
        )


def test_the_docs_give_generated_graphs_the_sizes_of_the_catalogue() -> None:
    text = (DOCS / "generated.md").read_text()
    found = {}
    for task, argument, cell in re.findall(r"^\| `(\w+)_task\((.*?)\)` \| .*? \| (.*?) \|", text, re.MULTILINE):
        name = argument.strip('"').lower() if task == "superpixel" else task
        found[name] = tuple(float(number.replace(",", "")) for number in re.findall(r"\d[\d,.]*\d", cell))
    # That of DictionaryLookup is given in n.
    assert found.pop("dictionary_lookup") == ()
    assert found == {
        name: DATASETS[name].size[1:]
        for name in ("hetero_edge_count", "unique_signature", "pattern", "cluster", "mnist", "cifar10")
    }


@pytest.mark.parametrize("name", ["PATTERN", "CLUSTER"])
def test_the_docs_give_the_full_block_models_the_hash_of_the_records(name: str) -> None:
    (digest,) = re.findall(rf"^\| {name}, .* graphs \| `(\w+)` \|$", (DOCS / "generated.md").read_text(), re.MULTILINE)
    files = (DOCS.parents[1] / "results").rglob(f"{name.lower()}*.jsonl")
    records = [json.loads(line) for file in files for line in file.read_text("utf-8").splitlines()]
    assert {record["data"]["sha256"] for record in records if ", seed 0," in record["data"]["version"]} == {digest}


def test_the_docs_name_every_folder() -> None:
    text = (DOCS / "public.md").read_text()
    folders = {raw.folder for dataset in DATASETS.values() for raw in dataset.raw[:1]}
    assert [folder for folder in sorted(folders) if folder.split("/")[0] not in text] == []
