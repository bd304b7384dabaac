"""Example tables that come with the package: real data to try the command line with, without a download."""

import gzip
from dataclasses import dataclass
from pathlib import Path

from sirgcn.files import write_atomic
from sirgcn.strict import check_name

FOLDER = Path(__file__).parent / "example_files"


@dataclass(frozen=True)
class Example:
    """An entry of `EXAMPLES`.

    Args:
        name: its name on the command line.
        files: the files that it writes.
        what: what they hold, in words.
        target: the column to predict.
        source: where the data come from, and their licence.

    >>> EXAMPLES["cora"].files
    ('nodes.csv', 'edges.csv')
    """

    name: str
    files: tuple[str, ...]
    what: str
    target: str
    source: str


EXAMPLES: dict[str, Example] = {
    example.name: example
    for example in (
        Example(
            "cora",
            ("nodes.csv", "edges.csv"),
            "2,708 papers with their words and topic, and 5,278 citations between them",
            "topic",
            "Planetoid, MIT licence",
        ),
        Example(
            "esol",
            ("molecules.csv",),
            "1,128 molecules with their solubility in water",
            "solubility",
            "MoleculeNet, CC0",
        ),
    )
}
"""The examples by name."""


def write_example(name: str, folder: str | Path) -> list[Path]:
    """Write the files of an example into a folder, and return them.

    Files of the same names are replaced, each as a whole.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     [path.name for path in write_example("cora", folder)]
    ['nodes.csv', 'edges.csv']
    """
    example = EXAMPLES[check_name("example", name, EXAMPLES)]
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for file in example.files:
        data = gzip.decompress((FOLDER / f"{example.name}_{file}.gz").read_bytes())
        write_atomic(folder / file, data)
        written.append(folder / file)
    return written
