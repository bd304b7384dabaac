"""Whatever the server does, a download ends with the complete file or with a message that says what to do."""

import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np
import pytest

from sirgcn.data.download import check, checksum, download
from sirgcn.data.validate import DataError

CONTENT = np.random.default_rng(0).bytes(3 << 20)
SHA256 = "sha256:" + hashlib.sha256(CONTENT).hexdigest()


@dataclass
class Behaviour:
    """What the server does, and what it was asked."""

    content: bytes = CONTENT
    ranges: bool = True
    etag: str | None = '"one"'
    length: bool = True
    cuts: list[int] = field(default_factory=list)
    errors: list[int] = field(default_factory=list)
    requests: list[str | None] = field(default_factory=list)
    url: str = ""


@pytest.fixture
def server() -> Iterator[Behaviour]:
    behaviour = Behaviour()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            behaviour.requests.append(self.headers.get("Range"))
            if behaviour.errors:
                self.send_error(behaviour.errors.pop(0))
                return
            start = 0
            wanted = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range") or "")
            if wanted and behaviour.ranges and self.headers.get("If-Range") == behaviour.etag:
                start = int(wanted[1])
                if start >= len(behaviour.content):
                    self.send_error(416)
                    return
                self.send_response(206)
                total = len(behaviour.content)
                self.send_header("Content-Range", f"bytes {start}-{total - 1}/{total}")
            else:
                self.send_response(200)
            if behaviour.etag:
                self.send_header("ETag", behaviour.etag)
            rest = behaviour.content[start:]
            if behaviour.length:
                self.send_header("Content-Length", str(len(rest)))
            self.end_headers()
            # Less than was promised: the connection breaks.
            self.wfile.write(rest[: behaviour.cuts.pop(0)] if behaviour.cuts else rest)

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as http:
        behaviour.url = f"http://127.0.0.1:{http.server_address[1]}/file.npz"
        thread = Thread(target=http.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield behaviour
        http.shutdown()
        thread.join()


def get(server: Behaviour, path: Path, **arguments: Any) -> Path:
    return download(server.url, path, **{"wait": 0.0, "timeout": 5.0, **arguments})


def test_the_file_is_whole_and_alone(server: Behaviour, tmp_path: Path) -> None:
    path = tmp_path / "deep" / "er" / "file.npz"
    assert get(server, path, expected=SHA256, size=len(CONTENT)) == path
    assert path.read_bytes() == CONTENT
    assert list(path.parent.iterdir()) == [path]
    assert server.requests == [None]


def test_a_file_that_is_there_is_not_downloaded(server: Behaviour, tmp_path: Path) -> None:
    path = tmp_path / "file.npz"
    path.write_bytes(b"mine")
    assert get(server, path, expected=SHA256).read_bytes() == b"mine"
    assert server.requests == []


def test_a_broken_connection_is_continued_where_it_ended(server: Behaviour, tmp_path: Path) -> None:
    server.cuts = [1000, 2_000_000]
    assert get(server, tmp_path / "file.npz", expected=SHA256).read_bytes() == CONTENT
    assert server.requests == [None, "bytes=1000-", "bytes=2001000-"]


def test_a_later_call_continues_an_earlier_one(server: Behaviour, tmp_path: Path) -> None:
    server.cuts = [1000]
    with pytest.raises(DataError, match="the connection ended after 1000 of 3145728 bytes"):
        get(server, tmp_path / "file.npz", tries=1)
    assert (tmp_path / "file.npz.part").stat().st_size == 1000
    assert not (tmp_path / "file.npz").exists()
    assert get(server, tmp_path / "file.npz", tries=1).read_bytes() == CONTENT
    assert server.requests == [None, "bytes=1000-"]


def test_without_ranges_it_starts_again(server: Behaviour, tmp_path: Path) -> None:
    server.ranges, server.cuts = False, [2_000_000, 1000]
    assert get(server, tmp_path / "file.npz", expected=SHA256).read_bytes() == CONTENT
    assert server.requests == [None, "bytes=2000000-", "bytes=1000-"]


def test_a_part_of_an_older_file_is_not_continued(server: Behaviour, tmp_path: Path) -> None:
    server.cuts = [1000]
    with pytest.raises(DataError):
        get(server, tmp_path / "file.npz", tries=1)
    server.content, server.etag = CONTENT[::-1], '"two"'
    assert get(server, tmp_path / "file.npz").read_bytes() == CONTENT[::-1]


@pytest.mark.parametrize("etag", [None, 'W/"weak"'])
def test_without_a_promise_of_equal_bytes_it_starts_again(server: Behaviour, tmp_path: Path, etag: str | None) -> None:
    server.etag, server.cuts = etag, [1000]
    assert get(server, tmp_path / "file.npz").read_bytes() == CONTENT
    assert server.requests == [None, None]


def test_a_part_that_is_longer_than_the_file_starts_again(server: Behaviour, tmp_path: Path) -> None:
    (tmp_path / "file.npz.part").write_bytes(CONTENT + b"more")
    (tmp_path / "file.npz.part.tag").write_text('"one"')
    assert get(server, tmp_path / "file.npz", expected=SHA256).read_bytes() == CONTENT


def test_a_passing_error_is_tried_again_and_a_lasting_one_is_not(server: Behaviour, tmp_path: Path) -> None:
    server.errors = [503, 429]
    assert get(server, tmp_path / "file.npz").read_bytes() == CONTENT
    server.errors, server.requests = [404], []
    with pytest.raises(DataError, match="the server answers 404"):
        get(server, tmp_path / "other.npz")
    assert len(server.requests) == 1


def test_wrong_content_is_refused_naming_both_hashes_and_leaves_nothing(server: Behaviour, tmp_path: Path) -> None:
    server.content = b"<html>log in first</html>"
    found = hashlib.sha256(server.content).hexdigest()
    with pytest.raises(DataError, match=f"expected sha256 {SHA256[7:]}, got {found}") as refusal:
        get(server, tmp_path / "file.npz", expected=SHA256)
    assert f"put file.npz into {tmp_path}, from {server.url}" in str(refusal.value)
    assert list(tmp_path.iterdir()) == []


def test_a_wrong_size_is_refused_before_it_is_received(server: Behaviour, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="expected 17 bytes, got 3145728"):
        get(server, tmp_path / "file.npz", size=17)


def test_what_has_no_announced_length_is_stopped_at_the_known_size(server: Behaviour, tmp_path: Path) -> None:
    server.length = False
    with pytest.raises(DataError, match="expected 17 bytes, got more"):
        get(server, tmp_path / "file.npz", size=17)
    assert get(server, tmp_path / "file.npz", size=len(CONTENT)).read_bytes() == CONTENT


def test_offline_the_message_says_what_to_put_where(tmp_path: Path) -> None:
    for url in ("http://127.0.0.1:9/file.npz", "http://no-such-host.invalid/file.npz"):
        with pytest.raises(DataError, match=r"cannot be downloaded \(.+\)") as refusal:
            download(url, tmp_path / "deep" / "file.npz", tries=2, wait=0.0)
        assert str(refusal.value).endswith(f"put file.npz into {tmp_path / 'deep'}, from {url}")


def test_a_folder_that_cannot_be_made_is_named(server: Behaviour, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(DataError, match=r"put file.npz into .*file/deep"):
        get(server, tmp_path / "file" / "deep" / "file.npz")


@pytest.mark.parametrize("url", ["file:///etc/hostname", "ftp://127.0.0.1/file", "/etc/hostname"])
def test_only_http_is_spoken(tmp_path: Path, url: str) -> None:
    with pytest.raises(DataError, match="expected an http or https address"):
        download(url, tmp_path / "file")


def test_md5_is_checked_where_that_is_what_was_published(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(CONTENT)
    check(path, "md5:" + hashlib.md5(CONTENT).hexdigest())
    assert checksum(path) == SHA256[7:]
    with pytest.raises(DataError, match=f"expected md5 0, got {hashlib.md5(CONTENT).hexdigest()}") as refusal:
        check(path, "md5:0")
    assert refusal.value.source == str(path)
