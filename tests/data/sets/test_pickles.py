"""Arrays come out of a pickle as they went in; whatever else a pickle holds is refused and never run."""

import collections
import os
import pickle
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst
from scipy import sparse

from sirgcn.data.sets.pickles import NAMES, Pickled, as_array, load_pickle
from sirgcn.data.validate import DataError

plain = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**80), 2**80) | st.floats(allow_nan=False) | st.text() | st.binary(),
    lambda inner: (
        st.lists(inner) | st.tuples(inner, inner) | st.dictionaries(st.integers(-(2**70), 2**70) | st.text(), inner)
    ),
    max_leaves=8,
)
dtypes = npst.boolean_dtypes() | npst.integer_dtypes() | npst.floating_dtypes(endianness="?")
protocols = st.sampled_from([2, 3, 4])


def opened(content: bytes, folder: Path) -> Any:
    path = folder / "file.pickle"
    path.write_bytes(content)
    return load_pickle(path)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("pickles")


@given(value=plain, protocol=protocols)
def test_plain_data_come_out_as_they_went_in(value: Any, protocol: int, folder: Path) -> None:
    assert opened(pickle.dumps(value, protocol), folder) == value


@given(
    array=npst.arrays(dtypes, npst.array_shapes(min_dims=0, min_side=0)),
    order=st.sampled_from("CF"),
    protocol=protocols,
)
def test_arrays_come_out_as_they_went_in(array: Any, order: Any, protocol: int, folder: Path) -> None:
    array = np.array(array, order=order)
    found = as_array(opened(pickle.dumps(array, protocol), folder))
    assert found.dtype == array.dtype.newbyteorder("=")
    np.testing.assert_array_equal(found, array)


@given(value=st.floats(width=32, allow_nan=False), protocol=protocols)
def test_numpy_numbers_come_out_as_numbers(value: float, protocol: int, folder: Path) -> None:
    assert opened(pickle.dumps({"a": np.float32(value), "b": np.int16(-3)}, protocol), folder) == {"a": value, "b": -3}


@given(
    dense=npst.arrays(
        np.float32, st.tuples(st.integers(0, 5), st.integers(1, 5)), elements=st.sampled_from([0, 1, 2.5])
    ),
    protocol=protocols,
)
def test_sparse_matrices_come_out_dense(dense: Any, protocol: int, folder: Path) -> None:
    found = as_array(opened(pickle.dumps(sparse.csr_matrix(dense), protocol), folder))
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found, dense)


@pytest.mark.parametrize(
    "dtype", [torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.float32, torch.float64]
)
def test_tensors_and_their_views_come_out_as_they_went_in(dtype: torch.dtype, folder: Path) -> None:
    whole = (torch.arange(24) % 5).to(dtype).reshape(4, 6)
    for tensor in (whole, whole.T, whole[1:, 2:4], whole[2, 3], whole[:0], whole.expand(2, 4, 6), whole[::2, ::3]):
        found = as_array(opened(pickle.dumps({"t": tensor}, 4), folder)["t"])
        assert found.shape == tensor.shape
        assert torch.equal(torch.from_numpy(found), tensor)


def test_graphs_of_python_2_come_out_as_dicts_of_lists(folder: Path) -> None:
    graph = collections.defaultdict(list, {0: [1, 2], 700: [0]})
    assert opened(pickle.dumps(graph, 2), folder) == dict(graph)
    # SHORT_BINSTRING and BINSTRING: Python 2's str.
    assert opened(b"\x80\x02U\x02\xe9aT\x01\x00\x00\x00\xff\x86.", folder) == ("\xe9a", "\xff")


class Trap:
    """Unpickled by Python it would leave a mark: the pickles below are proved to be dangerous by it."""

    def __init__(self, *reduce: Any) -> None:
        self.reduce = reduce

    def __reduce__(self) -> Any:
        return self.reduce


def program(*lines: bytes) -> bytes:
    return b"\x80\x02" + b"".join(lines) + b"."


MARK = "sirgcn-was-here"
# What a name leads to is of no interest: it is not looked up. The arguments are those that would work.
HOSTILE = {
    "os.system": pickle.dumps(Trap(os.system, (f"touch {MARK}",)), 2),
    "eval": pickle.dumps(Trap(eval, (f"open({MARK!r}, 'w')",)), 4),
    "exec": pickle.dumps(Trap(exec, (f"open({MARK!r}, 'w')",)), 2),
    "open": pickle.dumps(Trap(open, (MARK, "w")), 2),
    "getattr": pickle.dumps(Trap(getattr, ("", "format")), 2),
    "a chain of attributes": program(b"\x8c\x02os\x8c\x0bpath.system\x93U\x01x\x85R"),
    "a dotted name of an allowed module": program(b"\x8c\x05numpy\x8c\x0fndarray.tofile\x93)R"),
    "attributes through collections": program(b"\x8c\x0bcollections\x8c\x10_sys.modules.get\x93U\x02os\x85R"),
    "numpy's own eval": program(b"cnumpy.testing._private.utils\nrunstring\nU\x04x=1\n}\x86R"),
    "numpy.load": program(b"cnumpy\nload\nU\x01x\x85R"),
    "numpy.fromfile": program(b"cnumpy\nfromfile\nU\x0b/etc/passwd\x85R"),
    "numpy.memmap": program(b"cnumpy\nmemmap\nU\x01x\x85R"),
    "torch.load": program(b"ctorch\nload\nU\x01x\x85R"),
    "torch.storage._load_from_bytes's own unpickler": program(b"ctorch.serialization\nload\nU\x01x\x85R"),
    "functools.partial": program(b"cfunctools\npartial\ncos\nsystem\n\x85R"),
    "copyreg": program(b"ccopyreg\n_reconstructor\nc__builtin__\nobject\nc__builtin__\nobject\nN\x87R"),
    "INST": b"(S'x'\nios\nsystem\n.",
    "OBJ": program(b"(cos\nsystem\nU\x01xo"),
    "EXT1": program(b"\x82\x01"),
    "NEWOBJ_EX": program(b"cos\nsystem\n)}\x92"),
    "PERSID": b"Pos.system\n.",
    "NEXT_BUFFER": program(b"\x97"),
    "a set": pickle.dumps({1}, 4),
    "a class of ours": pickle.dumps(DataError("x", "y"), 2),
    # Allowed names in other roles.
    "a list that is called": program(b"c__builtin__\nlist\n)R"),
    "a type that is called": program(b"cnumpy\nndarray\n(K\x01tR"),
    "a storage that is called": program(b"ctorch\nFloatStorage\n)R"),
    "an array of objects": pickle.dumps(np.array([Trap(os.system, (f"touch {MARK}",))], dtype=object), 2),
    "a dtype of objects": program(b"cnumpy\ndtype\nU\x02O8K\x00K\x01\x87R"),
    "a structured dtype": pickle.dumps(np.zeros(1, "i4,f8"), 2),
    "a state for a list": program(b"]}U\x01aK\x01sb"),
    "a state for a name": program(b"cnumpy\nndarray\n}U\x01aK\x01sb"),
    "a state for a tensor": pickle.dumps({"t": torch.zeros(1)}, 2)[:-1] + b"}b.",
    "a second state": program(b"cnumpy.core.multiarray\n_reconstruct\nNNN\x87R(K\x01tb(K\x01tb"),
    "a defaultdict's factory with a side": program(b"ccollections\ndefaultdict\ncos\nsystem\n\x85R"),
    "a dict with content": program(b"ccollections\nOrderedDict\n}\x85R"),
    "a codec": program(b"c_codecs\nencode\nX\x01\x00\x00\x00aX\x03\x00\x00\x00hex\x86R"),
}


@pytest.mark.parametrize("what", HOSTILE)
def test_a_hostile_pickle_is_refused_and_not_run(what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DataError) as refusal:
        opened(HOSTILE[what], tmp_path)
    assert refusal.value.source == str(tmp_path / "file.pickle")
    assert refusal.value.field == "pickle"
    assert not (tmp_path / MARK).exists()


def test_the_traps_are_traps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    pickle.loads(HOSTILE["os.system"])
    assert (tmp_path / MARK).exists()


def test_a_refused_name_is_told(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"expected plain data, got the name (posix|nt)\.system"):
        opened(HOSTILE["os.system"], tmp_path)


def test_the_list_of_names_is_short_and_known() -> None:
    assert {name.split()[0].split(".")[0] for name in NAMES} == {
        "__builtin__", "_codecs", "builtins", "collections", "numpy", "scipy", "torch",
    }  # fmt: skip
    assert len(NAMES) == 21


DEEP = b")" + b"\x85" * 100_000 + b"q\x00"
# Tuples of twice the same: 2 ** 200 leaves.
MANY = b")q\x00" + b"h\x00h\x00\x86q\x00" * 200
USES = {
    "a key": b"}h\x00K\x01s",
    "a module": b"h\x00U\x01x\x93",
    "a name": b"U\x01xh\x00\x93",
    "a dtype": b"cnumpy\ndtype\nh\x00K\x00K\x01\x87R",
    "an encoding": b"c_codecs\nencode\nU\x01xh\x00\x86R",
    "a factory": b"ccollections\ndefaultdict\nh\x00\x85R",
    "a byte order": b"cnumpy\ndtype\nU\x02i4K\x00K\x01\x87RK\x03h\x00\x86b",
}


@pytest.mark.parametrize("nested", [DEEP, MANY], ids=["deep", "many"])
def test_what_is_nested_beyond_any_stack_is_neither_hashed_nor_shown(nested: bytes, tmp_path: Path) -> None:
    assert opened(program(nested), tmp_path) is not None
    for use in USES.values():
        with pytest.raises(DataError):
            opened(program(nested, use), tmp_path)


def test_absurd_sizes_are_refused_before_they_are_allocated(tmp_path: Path) -> None:
    array = Pickled("ndarray", (1, (2**40,), None, False, b""))
    with pytest.raises(DataError, match="malformed"):
        array.array()
    head = b"cnumpy.core.multiarray\n_reconstruct\nNNN\x87R(K\x01"
    tail = b"cnumpy\ndtype\nU\x02f8K\x00K\x01\x87R\x89U\x00tb"
    huge = opened(program(head + b"J\xff\xff\xff\x7fJ\xff\xff\xff\x7f\x86" + tail), tmp_path)
    with pytest.raises(DataError, match="an array of more than"):
        as_array(huge)
    with pytest.raises(DataError, match="expected a whole pickle"):
        opened(b"\x80\x04B\xff\xff\xff\xff.", tmp_path)


@pytest.mark.parametrize(
    ("field", "value"),
    [("indptr", [0, 9, 1]), ("indptr", [0, 1]), ("indices", [-1]), ("indices", [7]), ("data", [1.0, 2.0])],
)
def test_a_matrix_that_does_not_fit_together_is_refused(field: str, value: list[float], tmp_path: Path) -> None:
    matrix = sparse.csr_matrix(np.array([[0.0, 1.0], [0.0, 0.0]]))
    setattr(matrix, field, np.array(value, getattr(matrix, field).dtype))
    with pytest.raises(DataError, match="malformed"):
        as_array(opened(pickle.dumps(matrix, 2), tmp_path))


def test_a_view_outside_its_storage_is_refused(tmp_path: Path) -> None:
    found = opened(pickle.dumps({"t": torch.arange(6.0)}, 4), tmp_path)["t"]
    storage = found.state[0]
    for offset, sizes, strides in [
        (4, (3,), (1,)),
        (-1, (3,), (1,)),
        (0, (7,), (1,)),
        (0, (2, 2), (1,)),
        (0, (3,), (-1,)),
    ]:
        with pytest.raises(DataError, match="malformed"):
            Pickled("tensor", (storage, offset, sizes, strides)).array()


@given(data=st.data())
def test_any_bytes_are_read_or_refused(data: st.DataObject, folder: Path) -> None:
    content = bytearray(pickle.dumps({"t": torch.arange(3.0), "a": np.arange(3), "l": [1, "x", None]}, 4))
    for place in data.draw(st.lists(st.integers(0, len(content) - 1), max_size=5)):
        content[place] = data.draw(st.integers(0, 255))
    content = content[: data.draw(st.integers(0, len(content)))]
    try:
        found = opened(bytes(content), folder)
        if isinstance(found, dict):
            for value in found.values():
                if isinstance(value, Pickled):
                    value.array()
    except DataError:
        pass


def test_a_cut_or_altered_storage_is_refused(tmp_path: Path) -> None:
    whole = opened(pickle.dumps({"t": torch.tensor([1.0, 2.0])}, 4), tmp_path)["t"]
    raw, view = whole.state[0].state, whole.state[1:]
    assert Pickled("tensor", (Pickled("storage", raw), *view)).array().tolist() == [1.0, 2.0]
    for broken in (raw[:-4], raw[:20], raw.replace(struct.pack("<q", 2), struct.pack("<q", 2**60)), b"", raw[1:]):
        with pytest.raises(DataError):
            Pickled("tensor", (Pickled("storage", broken), *view)).array()
