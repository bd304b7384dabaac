"""Files are there in full or not at all, on a disk that is full as well."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from sirgcn.files import write_atomic
from tests.report.fake import folder

LIMITED = """
import resource, signal, sys
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv.pop(1)), resource.RLIM_INFINITY))
"""
"""A process in which no file can grow beyond a number of bytes: the system refuses the write, as on a full disk."""


def limited(code: str, *arguments: str | Path, size: int = 1000) -> subprocess.CompletedProcess[str]:
    """Run Python code in such a process."""
    command = [sys.executable, "-c", LIMITED + code, str(size), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_file_that_is_written_is_whole_and_a_link_stays_a_link(tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "file")
    write_atomic(link, b"text")
    assert link.is_symlink()
    assert (tmp_path / "file").read_bytes() == b"text"
    assert sorted(file.name for file in tmp_path.iterdir()) == ["file", "link"]


@pytest.mark.skipif(os.name != "posix", reason="limits of a process")
def test_full_disk_leaves_the_file_as_it_was_and_is_told_with_its_path(tmp_path: Path) -> None:
    file = tmp_path / "a.json"
    file.write_bytes(b"before")
    code = (
        "from pathlib import Path\nfrom sirgcn.files import write_atomic\nwrite_atomic(Path(sys.argv[1]), bytes(5000))"
    )
    found = limited(code, file)
    assert found.stderr.rstrip().endswith(f"File too large: '{file}'")
    assert [entry.name for entry in tmp_path.iterdir()] == ["a.json"]
    assert file.read_bytes() == b"before"


@pytest.mark.skipif(os.name != "posix", reason="limits of a process")
@pytest.mark.parametrize("command", ["results", "figures"])
def test_full_disk_leaves_no_half_of_a_report_and_is_one_line_with_the_path(tmp_path: Path, command: str) -> None:
    results, out = folder(tmp_path / "results"), tmp_path / "out"
    places: dict[str, list[str | Path]] = {
        "results": ["--write", out, "--results", results],
        "figures": ["2", "--out", out],
    }
    found = limited("from sirgcn.cli import main\nmain()", command, *places[command])
    assert found.returncode == 2
    assert "Traceback" not in found.stderr
    # Matplotlib may say before that it cannot keep its list of fonts.
    (line,) = (line for line in found.stderr.splitlines() if line.startswith("error: "))
    assert found.stderr.rstrip().endswith(line)
    assert str(out) in line
    assert list(out.iterdir()) == []
