"""Archives unpack only plain files, only inside the folder, and only up to a limit of size."""

import io
import stat
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sirgcn.data.archives import Limits, extract
from sirgcn.data.validate import DataError

FILES = {"MUTAG/MUTAG_A.txt": b"1, 2\n", "MUTAG/deep/er/empty": b"", "README": b"hello" * 1000}
OUTSIDE = [
    "../evil",
    "a/../../evil",
    "/etc/evil",
    "C:/evil",
    "C:evil",
    "a\\..\\evil",
    "//host/share",
    "a//b",
    "a\nb",
    "a:b",
]


def zipped(path: Path, files: dict[str, bytes], mode: int = 0, method: int = zipfile.ZIP_DEFLATED) -> Path:
    with zipfile.ZipFile(path, "w", method) as archive:
        for name, content in files.items():
            info = zipfile.ZipInfo(name)
            info.external_attr, info.compress_type = mode << 16, method
            archive.writestr(info, content)
    return path


def tarred(path: Path, files: dict[str, bytes], compression: str = "gz", **fields: Any) -> Path:
    with tarfile.open(path, f"w:{compression}") as archive:  # type: ignore[call-overload]
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            for field, value in fields.items():
                setattr(info, field, value)
            archive.addfile(info, io.BytesIO(content))
    return path


Pack = Callable[[Path, dict[str, bytes]], Path]
PACKERS: list[Pack] = [zipped, tarred]


def refused(archive: Path, match: str, limits: Limits | None = None) -> None:
    before = sorted(archive.parent.rglob("*"))
    with pytest.raises(DataError, match=match) as refusal:
        extract(archive, archive.parent / "out", limits)
    assert refusal.value.source == str(archive)
    # Neither the folder nor a trace of the attempt.
    assert sorted(archive.parent.rglob("*")) == before


@pytest.mark.parametrize("pack", [*PACKERS, *(lambda p, f, c=c: tarred(p, f, c) for c in ("", "bz2", "xz"))])
def test_what_was_packed_comes_out(pack: Pack, tmp_path: Path) -> None:
    out = extract(pack(tmp_path / "a", FILES), tmp_path / "new" / "out")
    found = {path.relative_to(out).as_posix(): path.read_bytes() for path in out.rglob("*") if path.is_file()}
    assert found == FILES
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["out"]


@pytest.mark.parametrize("pack", PACKERS)
@pytest.mark.parametrize("name", OUTSIDE)
def test_names_that_lead_out_are_refused(pack: Pack, name: str, tmp_path: Path) -> None:
    refused(pack(tmp_path / "a", {**FILES, name: b"evil"}), "expected a relative name inside the folder")


@given(pack=st.sampled_from(PACKERS), name=st.text(st.sampled_from("./\\:a"), min_size=1, max_size=8))
def test_every_name_is_refused_or_stays_inside(pack: Pack, name: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("any")
    archive = pack(folder / "a", {name: b"x"})
    try:
        out = extract(archive, folder / "out")
    except DataError:
        assert [path.name for path in folder.iterdir()] == ["a"]
    else:
        assert sum(path.is_file() for path in folder.rglob("*")) == 1 + sum(path.is_file() for path in out.rglob("*"))


@pytest.mark.parametrize("mode", [stat.S_IFLNK, stat.S_IFCHR, stat.S_IFIFO, stat.S_IFBLK, stat.S_IFSOCK])
def test_links_and_devices_in_a_zip_are_refused(mode: int, tmp_path: Path) -> None:
    refused(zipped(tmp_path / "a", {"link": b"/etc/passwd"}, mode | 0o777), "link or device")


@pytest.mark.parametrize(
    "mode",
    [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.FIFOTYPE, tarfile.GNUTYPE_SPARSE],
)
def test_links_and_devices_in_a_tar_are_refused(mode: bytes, tmp_path: Path) -> None:
    refused(tarred(tmp_path / "a", {"link": b""}, type=mode, linkname="/etc/passwd"), "link or device")


@pytest.mark.parametrize("pack", PACKERS)
@pytest.mark.parametrize("other", ["README", "readme", "./README"])
def test_names_that_occur_twice_are_refused(pack: Pack, other: str, tmp_path: Path) -> None:
    if pack is zipped and other == "README":
        with zipfile.ZipFile(tmp_path / "a", "w") as archive:
            archive.writestr("README", b"one")
            with pytest.warns(UserWarning, match="Duplicate name"):
                archive.writestr("README", b"two")
        refused(tmp_path / "a", "expected every name once")
    elif other != "README":
        refused(pack(tmp_path / "a", {**FILES, other: b"two"}), "expected every name once")


@pytest.mark.parametrize("pack", PACKERS)
def test_a_file_that_is_also_a_folder_is_refused(pack: Pack, tmp_path: Path) -> None:
    refused(pack(tmp_path / "a", {"one": b"1", "one/two": b"2"}), "expected a folder above 'one/two', got a file")


@pytest.mark.parametrize("pack", PACKERS)
def test_absurd_sizes_are_refused(pack: Pack, tmp_path: Path) -> None:
    archive = pack(tmp_path / "a", {"zeros": bytes(4 << 20)})
    refused(archive, "expected at most 1048576 bytes in it", Limits(ratio=1, harmless=1 << 20))
    refused(archive, "expected at most 1000 bytes in it", Limits(total=1000))
    refused(pack(tmp_path / "b", {str(i): b"" for i in range(20)}), "expected at most 10 files", Limits(files=10))
    assert (extract(archive, tmp_path / "out", Limits(ratio=4)) / "zeros").stat().st_size == 4 << 20


def test_a_bomb_in_the_headers_of_a_tar_is_noticed_on_the_way(tmp_path: Path) -> None:
    archive = tarred(tmp_path / "a", {"x": b""}, pax_headers={"comment": "a" * (4 << 20)})
    refused(archive, "expected at most 1048576 bytes in it", Limits(ratio=1, harmless=1 << 20))


@pytest.mark.parametrize(("declared", "message"), [(5, "expected 5 bytes"), (5000, "readable|expected 5000 bytes")])
def test_a_zip_that_lies_about_a_size_is_refused(declared: int, message: str, tmp_path: Path) -> None:
    path = zipped(tmp_path / "a", {"x": b"y" * 1000}, method=zipfile.ZIP_STORED)
    data = path.read_bytes()
    path.write_bytes(data.replace((1000).to_bytes(4, "little"), declared.to_bytes(4, "little")))
    refused(path, f"{message}|readable")


@pytest.mark.parametrize("pack", PACKERS)
def test_a_damaged_archive_is_refused(pack: Pack, tmp_path: Path) -> None:
    whole = pack(tmp_path / "a", {"x": bytes(range(256)) * 5000}).read_bytes()
    for number, damaged in enumerate((whole[: len(whole) // 2], whole[:200] + bytes(200) + whole[400:], b"", b"text")):
        folder = tmp_path / str(number)
        folder.mkdir()
        (folder / "a").write_bytes(damaged)
        refused(folder / "a", "expected a readable")


def test_an_encrypted_file_is_refused(tmp_path: Path) -> None:
    path = zipped(tmp_path / "a", {"x": b"y"})
    data = bytearray(path.read_bytes())
    data[6] |= 1
    data[data.index(b"PK\x01\x02") + 8] |= 1
    path.write_bytes(data)
    refused(path, "'x' is encrypted")


def test_a_folder_that_is_there_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    with pytest.raises(DataError, match="expected a new folder"):
        extract(zipped(tmp_path / "a", FILES), tmp_path / "out")
