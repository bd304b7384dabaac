"""Data out of a pickle without running it.

A pickle is a program for a stack machine that may call anything. This machine knows only the instructions that build
numbers, texts, bytes, lists, tuples and dicts. A name is never looked up but compared with a closed list, the few by
which NumPy, SciPy and PyTorch write arrays: nothing is imported, no object is called, no attribute is set.
"""

import math
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sirgcn.data.validate import DataError

Array = NDArray[Any]

LARGEST = 4 << 30
"""Bytes of a pickle, at most."""

SMALL, GROWTH = 256 << 20, 8
"""Bytes that copies and arrays of a pickle may take together: SMALL, and GROWTH for each byte of the file. Planetoid's
sparse matrices take 50 times their size with all their zeros, and 40 MB at most."""


def load_pickle(path: Path) -> Any:
    """The data of a pickle: None, bool, int, float, str, bytes, list, tuple, dict (keys int or str), `Pickled` arrays.

    Python 2's byte strings come as text in Latin-1, one letter for each byte. Anything else in the file is refused.
    """
    try:
        if path.stat().st_size > LARGEST:
            raise DataError(f"expected at most {LARGEST} bytes, got {path.stat().st_size}", "pickle")
        return _Machine(path.read_bytes()).run()
    except DataError as error:
        raise DataError(error.message, error.field, str(path), error.row, error.value) from error


@dataclass(slots=True)
class Room:
    """Bytes that may still be made from a pickle: a few bytes of it can name a large array, and any number of times."""

    left: int = SMALL

    def take(self, count: int) -> None:
        """Refuse what does not fit; the rest is left."""
        self.left -= count
        if self.left < 0:
            expected = f"at most {SMALL >> 20} MiB and {GROWTH} times the size of the file in arrays"
            raise DataError(f"expected {expected}, got an array of more than that", "pickle")


@dataclass(eq=False, slots=True)
class Pickled:
    """An array in the form in which a pickle holds it.

    Args:
        kind: ndarray, tensor, storage (a tensor's numbers) or csr_matrix.
        state: what was written; None while it is still to come.
        room: for all arrays of its pickle.
    """

    kind: str
    state: Any = None
    room: Room = field(default_factory=Room, repr=False)

    def array(self) -> Array:
        """The array of an ndarray or tensor, or of a csr_matrix with all its zeros; a copy."""
        make = {"ndarray": _ndarray, "tensor": _tensor, "csr_matrix": _csr}.get(self.kind)
        if make is None or self.state is None:
            raise DataError(f"expected an array, got {self.kind}", "pickle")
        try:
            return make(self.state, self.room)
        except DataError:
            raise
        except (ValueError, TypeError, IndexError, KeyError, AttributeError, struct.error, OverflowError) as error:
            raise DataError(f"expected a {self.kind}, got a malformed one: {error}", "pickle") from error


def as_array(value: Any) -> Array:
    """The array of a value out of a pickle."""
    if not isinstance(value, Pickled):
        raise DataError(f"expected an array, got {type(value).__name__}", "pickle")
    return value.array()


@dataclass(frozen=True, slots=True)
class _Name:
    name: str


@dataclass(slots=True)
class _Dtype:
    code: str
    order: str = "="

    def numpy(self) -> np.dtype[Any]:
        return np.dtype(self.order + self.code)


def _dict(*factory: Any) -> dict[Any, Any]:
    # What is in it is set afterwards; a defaultdict names what makes its missing values.
    if factory not in ((), (_Name("__builtin__ list"),), (_Name("builtins list"),)):
        raise ValueError("a dict with content")
    return {}


def _no_bytes() -> bytes:
    return b""


def _codecs_encode(text: str, encoding: str) -> bytes:
    # Python 3 writes bytes in the old protocols as Latin-1 text to be encoded.
    if encoding != "latin1":
        raise ValueError("another encoding than Latin-1")
    return text.encode("latin-1")


def _dtype(code: str, *_: Any) -> _Dtype:
    if code not in ("b1", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8"):
        raise ValueError("a dtype of no plain numbers")
    return _Dtype(code)


def _scalar(dtype: _Dtype, raw: bytes | str) -> Any:
    kind = dtype.numpy()
    if len(raw) != kind.itemsize:
        raise ValueError("a number of another size")
    return np.frombuffer(_bytes(raw), kind)[0].item()


BUILDERS: dict[str, Callable[..., Any]] = {
    "__builtin__ bytes": _no_bytes,
    "_codecs encode": _codecs_encode,
    "collections OrderedDict": _dict,
    "collections defaultdict": _dict,
    "numpy dtype": _dtype,
    "numpy.core.multiarray _reconstruct": lambda *_: Pickled("ndarray"),
    "numpy.core.multiarray scalar": _scalar,
    "scipy.sparse.csr csr_matrix": lambda: Pickled("csr_matrix"),
    "torch._utils _rebuild_tensor_v2": lambda *state: Pickled("tensor", state),
    "torch.storage _load_from_bytes": lambda raw: Pickled("storage", raw),
}
"""What stands for each name that may be called, none of it the object of that name."""

STORAGES = {
    "torch BoolStorage": "b1",
    "torch ByteStorage": "u1",
    "torch CharStorage": "i1",
    "torch ShortStorage": "i2",
    "torch IntStorage": "i4",
    "torch LongStorage": "i8",
    "torch FloatStorage": "f4",
    "torch DoubleStorage": "f8",
}
"""The dtype of each kind of PyTorch storage."""

# NumPy 2 and SciPy 1.8 gave some modules other names.
MOVED = {"numpy._core.multiarray": "numpy.core.multiarray", "scipy.sparse._csr": "scipy.sparse.csr"}
NAMES = {name: _Name(name) for name in (*BUILDERS, *STORAGES, "numpy ndarray", "__builtin__ list", "builtins list")}


class _Machine:
    """Reads one pickle from `data`, starting at `place`; afterwards `place` is behind it."""

    def __init__(self, data: bytes, place: int = 0) -> None:
        self.data = data
        self.place = place
        self.stack: list[Any] = []
        self.marks: list[list[Any]] = []
        self.memo: dict[int, Any] = {}
        self.room = Room(SMALL + GROWTH * len(data))

    def run(self) -> Any:
        table, data = _INSTRUCTIONS, self.data
        start = self.place
        try:
            while (code := data[self.place]) != _STOP:
                self.place += 1
                table[code](self)
            self.place += 1
            return self.stack.pop()
        except DataError:
            raise
        except KeyError as error:
            what = f"instruction {chr(code)!r}" if code not in table else f"{error} to be known"
            raise DataError(f"expected plain data, got {what} at byte {self.place - 1}", "pickle") from error
        except (ValueError, TypeError, IndexError, AttributeError, struct.error, OverflowError, MemoryError) as error:
            message = f"expected a whole pickle, got {error} in the {self.place - start} bytes up to {self.place}"
            raise DataError(message, "pickle") from error

    def take(self, count: int) -> bytes:
        if count < 0 or self.place + count > len(self.data):
            raise IndexError(f"{len(self.data) - self.place} bytes of {count}")
        self.place += count
        return self.data[self.place - count : self.place]

    def number(self, form: str) -> Any:
        (value,) = struct.unpack_from(form, self.data, self.place)
        self.place += struct.calcsize(form)
        return value

    def line(self) -> str:
        end = self.data.index(b"\n", self.place)
        text = self.data[self.place : end].decode("ascii")
        self.place = end + 1
        return text

    def to_mark(self) -> list[Any]:
        items, self.stack = self.stack, self.marks.pop()
        return items

    def pop(self, count: int) -> list[Any]:
        if count > len(self.stack):
            raise IndexError("too few values")
        items = self.stack[-count:]
        del self.stack[-count:]
        return items

    def name(self, module: Any, name: Any) -> None:
        # Nothing but texts is hashed or shown: nested tuples could be too deep for the one and too large for the other.
        if type(module) is not str or type(name) is not str:
            raise TypeError("a name that is no text")
        full = f"{MOVED.get(module, module)} {name}"
        if full not in NAMES:
            shown = f"{module[:100]}.{name[:100]}"
            raise DataError(f"expected plain data, got the name {shown}", "pickle", value=shown)
        self.stack.append(NAMES[full])

    def mark(self) -> None:
        self.marks.append(self.stack)
        self.stack = []

    def call(self) -> None:
        callee, arguments = self.pop(2)
        if not isinstance(callee, _Name) or type(arguments) is not tuple or callee.name not in BUILDERS:
            raise DataError(
                f"expected plain data, got a call of {getattr(callee, 'name', type(callee).__name__)}", "pickle"
            )
        made = BUILDERS[callee.name](*arguments)
        if isinstance(made, Pickled):
            made.room = self.room
        elif isinstance(made, bytes):
            self.room.take(len(made))
        self.stack.append(made)

    def build(self) -> None:
        state = self.stack.pop()
        target = self.stack[-1]
        if isinstance(target, _Dtype) and type(state) is tuple and state[1] in ("<", ">", "|", "="):
            target.order = state[1]
        elif isinstance(target, Pickled) and target.kind in ("ndarray", "csr_matrix") and target.state is None:
            target.state = state
        else:
            raise DataError(f"expected plain data, got a state for {type(target).__name__}", "pickle")

    def extend(self, items: list[Any]) -> None:
        target = self.stack[-1]
        if type(target) is not list:
            raise TypeError(f"items for {type(target).__name__}")
        target.extend(items)

    def update(self, items: list[Any]) -> None:
        target = self.stack[-1]
        if type(target) is not dict or len(items) % 2:
            raise TypeError(f"items for {type(target).__name__}")
        for key, value in zip(items[::2], items[1::2], strict=True):
            # No other keys, for the reason given at `name`.
            if type(key) not in (int, str):
                raise TypeError(f"a key of type {type(key).__name__}")
            target[key] = value


def _push(value: Callable[[_Machine], Any]) -> Callable[[_Machine], None]:
    def instruction(machine: _Machine) -> None:
        # First the value: to find it may exchange the stack.
        found = value(machine)
        machine.stack.append(found)

    return instruction


def _skip(count: int) -> Callable[[_Machine], Any]:
    return lambda machine: machine.take(count)


def _put(index: Callable[[_Machine], int]) -> Callable[[_Machine], None]:
    return lambda machine: machine.memo.__setitem__(index(machine), machine.stack[-1])


_STOP = ord(".")
_INSTRUCTIONS: dict[int, Callable[[_Machine], Any]] = {
    0x80: _skip(1),  # PROTO
    0x95: _skip(8),  # FRAME
    ord("("): _Machine.mark,
    ord("N"): _push(lambda m: None),
    0x88: _push(lambda m: True),
    0x89: _push(lambda m: False),
    ord("K"): _push(lambda m: m.number("<B")),  # BININT1
    ord("M"): _push(lambda m: m.number("<H")),  # BININT2
    ord("J"): _push(lambda m: m.number("<i")),  # BININT
    0x8A: _push(lambda m: int.from_bytes(m.take(m.number("<B")), "little", signed=True)),  # LONG1
    ord("G"): _push(lambda m: m.number(">d")),  # BINFLOAT
    ord("U"): _push(lambda m: m.take(m.number("<B")).decode("latin-1")),  # SHORT_BINSTRING
    ord("T"): _push(lambda m: m.take(m.number("<i")).decode("latin-1")),  # BINSTRING
    ord("X"): _push(lambda m: m.take(m.number("<I")).decode()),  # BINUNICODE
    0x8C: _push(lambda m: m.take(m.number("<B")).decode()),  # SHORT_BINUNICODE
    ord("B"): _push(lambda m: m.take(m.number("<I"))),  # BINBYTES
    ord("C"): _push(lambda m: m.take(m.number("<B"))),  # SHORT_BINBYTES
    ord(")"): _push(lambda m: ()),
    0x85: _push(lambda m: tuple(m.pop(1))),
    0x86: _push(lambda m: tuple(m.pop(2))),
    0x87: _push(lambda m: tuple(m.pop(3))),
    ord("t"): _push(lambda m: tuple(m.to_mark())),
    ord("]"): _push(lambda m: []),
    ord("a"): lambda m: m.extend(m.pop(1)),
    ord("e"): lambda m: m.extend(m.to_mark()),
    ord("}"): _push(lambda m: {}),
    ord("s"): lambda m: m.update(m.pop(2)),
    ord("u"): lambda m: m.update(m.to_mark()),
    ord("q"): _put(lambda m: m.number("<B")),  # BINPUT
    ord("r"): _put(lambda m: m.number("<I")),  # LONG_BINPUT
    0x94: _put(lambda m: len(m.memo)),  # MEMOIZE
    ord("h"): _push(lambda m: m.memo[m.number("<B")]),  # BINGET
    ord("j"): _push(lambda m: m.memo[m.number("<I")]),  # LONG_BINGET
    ord("c"): lambda m: m.name(m.line(), m.line()),  # GLOBAL
    0x93: lambda m: m.name(*m.pop(2)),  # STACK_GLOBAL
    ord("R"): _Machine.call,  # REDUCE
    0x81: _Machine.call,  # NEWOBJ
    ord("b"): _Machine.build,  # BUILD
    ord("Q"): lambda m: None,  # BINPERSID: the description of a storage stands for it
}


def _bytes(raw: bytes | str) -> bytes:
    return raw.encode("latin-1") if isinstance(raw, str) else raw


def _shape(sizes: Any) -> tuple[int, ...]:
    if type(sizes) is not tuple or any(type(size) is not int or size < 0 for size in sizes):
        raise ValueError("a shape that is no tuple of sizes")
    return sizes


def _ndarray(state: Any, room: Room) -> Array:
    _, sizes, dtype, fortran, raw = state
    kind = dtype.numpy()
    shape = _shape(sizes)
    room.take(max(math.prod(shape) * kind.itemsize, len(raw)))
    flat = np.frombuffer(_bytes(raw), kind).astype(kind.newbyteorder("="))
    return flat.reshape(shape, order="F" if fortran else "C")


def _csr(state: Any, room: Room) -> Array:
    """Row i has data[p_i : p_{i+1}] in the columns indices[p_i : p_{i+1}], p = indptr."""
    parts = [state[name] for name in ("indptr", "indices", "data")]
    # A matrix of matrices could contain itself.
    if not all(isinstance(part, Pickled) and part.kind == "ndarray" for part in parts):
        raise ValueError("parts that are no arrays")
    indptr, indices, data = (part.array() for part in parts)
    rows, columns = _shape(state["_shape"])
    room.take(rows * columns * data.itemsize)
    count = np.diff(indptr)
    if len(indptr) != rows + 1 or indptr[0] != 0 or (count < 0).any() or not indptr[-1] == len(indices) == len(data):
        raise ValueError("row pointers that do not fit")
    if len(indices) and not 0 <= indices.min() <= indices.max() < columns:
        raise ValueError("a column outside the matrix")
    dense = np.zeros((rows, columns), data.dtype)
    np.add.at(dense, (np.repeat(np.arange(rows), count), indices), data)
    return dense


def _tensor(state: Any, room: Room) -> Array:
    storage, offset, sizes, strides = state[:4]
    if not isinstance(storage, Pickled) or storage.kind != "storage" or type(storage.state) is not bytes:
        raise ValueError("a storage that is none")
    flat = _storage(storage.state)
    shape = _shape(sizes)
    # A stride of 0 repeats a number any number of times.
    room.take(math.prod(shape) * flat.itemsize)
    if type(offset) is not int or len(_shape(strides)) != len(shape):
        raise ValueError("strides that do not fit")
    last = offset + sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True))
    if 0 in shape:
        return np.zeros(shape, flat.dtype)
    if not 0 <= offset <= last < len(flat):
        raise ValueError("a view outside its storage")
    steps = [stride * flat.itemsize for stride in strides]
    return np.lib.stride_tricks.as_strided(flat[offset:], shape, steps, writeable=False).copy()


def _storage(raw: bytes) -> Array:
    """PyTorch's format before zip files: pickles (magic, protocol, system, kind, keys), then count and numbers."""
    machine = _Machine(raw)
    magic, protocol, system = machine.run(), machine.run(), machine.run()
    if (magic, protocol, system["little_endian"]) != (0x1950A86A20F9469CFC6C, 1001, True):
        raise ValueError("a storage of another format")
    kind, keys = machine.run()[1], machine.run()
    dtype = np.dtype("<" + STORAGES[kind.name])
    count = machine.number("<q")
    if len(keys) != 1 or not 0 <= count <= (len(raw) - machine.place) // dtype.itemsize:
        raise ValueError("a storage that is cut off")
    return np.frombuffer(raw, dtype, count, machine.place)
