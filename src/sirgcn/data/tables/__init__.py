"""A user's own tables as a task, in the order of the pipeline.

`read` -> `columns` -> `roles` -> `structure` -> `labels` -> `splits` -> `features` -> `preprocessing` -> `assemble`,
and then `load`, or `apply` and `stream`.
"""

from sirgcn.data.tables.apply import Inputs, apply_tables
from sirgcn.data.tables.features import Column
from sirgcn.data.tables.load import load_tables
from sirgcn.data.tables.preprocessing import Preprocessing
from sirgcn.data.tables.stream import Chunk, stream_tables

__all__ = ["Chunk", "Column", "Inputs", "Preprocessing", "apply_tables", "load_tables", "stream_tables"]
