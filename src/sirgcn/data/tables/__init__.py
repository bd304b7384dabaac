"""A user's own tables as a task, in the order of the pipeline.

`read` -> `columns` -> `roles` -> `structure` -> `labels` -> `splits` -> `features` -> `preprocessing` -> `assemble`,
and then `load` or `apply`.
"""

from sirgcn.data.tables.apply import Inputs, apply_tables
from sirgcn.data.tables.features import Column
from sirgcn.data.tables.load import load_tables
from sirgcn.data.tables.preprocessing import Preprocessing

__all__ = ["Column", "Inputs", "Preprocessing", "apply_tables", "load_tables"]
