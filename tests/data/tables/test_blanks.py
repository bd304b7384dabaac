"""In every source, blanks are missing, white space makes no category, and numbers written for people are refused."""

import csv
import importlib
import importlib.util
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape, quoteattr

import networkx as nx
import pandas as pd
import pytest
import torch

from sirgcn.data.tables import Preprocessing, apply_tables, load_tables, text
from sirgcn.data.task import Task
from sirgcn.data.validate import DataError

pa = pytest.importorskip("pyarrow")

Columns = dict[str, list[Any]]
Sources = tuple[Any, Any]
"""Nodes and edges, as `load_tables` takes them."""


def ends(columns: Columns) -> pd.DataFrame:
    """A path through the nodes."""
    return pd.DataFrame({"source": columns["id"][:-1], "target": columns["id"][1:]})


def delimited(suffix: str) -> Callable[[Path, Columns], Sources]:
    def write(folder: Path, columns: Columns) -> Sources:
        path = folder / f"nodes{suffix}"
        with path.open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file, delimiter="," if suffix == ".csv" else "\t")
            writer.writerows([list(columns), *zip(*columns.values(), strict=True)])
        return path, ends(columns)

    return write


def of_pandas(dtype: Any) -> Callable[[Path, Columns], Sources]:
    def make(folder: Path, columns: Columns) -> Sources:
        return pd.DataFrame({name: pd.Series(values, dtype=dtype) for name, values in columns.items()}), ends(columns)

    return make


def parquet(dtype: Any) -> Callable[[Path, Columns], Sources]:
    def write(folder: Path, columns: Columns) -> Sources:
        from pyarrow import parquet as files

        files.write_table(pa.table({name: pa.array(v, dtype) for name, v in columns.items()}), folder / "n.parquet")
        return folder / "n.parquet", ends(columns)

    return write


def arrow(folder: Path, columns: Columns) -> Sources:
    return pa.table(columns), ends(columns)


def polars(folder: Path, columns: Columns) -> Sources:
    return importlib.import_module("polars").DataFrame(columns), ends(columns)


def networkx(folder: Path, columns: Columns) -> Sources:
    graph = nx.path_graph(columns["id"])
    for name in list(columns)[1:]:
        nx.set_node_attributes(graph, dict(zip(columns["id"], columns[name], strict=True)), name)
    return graph, None


def graphml(folder: Path, columns: Columns) -> Sources:
    names = list(columns)[1:]
    keys = "".join(f'<key id="{name}" for="node" attr.name="{name}" attr.type="string"/>' for name in names)
    rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    nodes = "".join(
        f"<node id={quoteattr(row['id'])}>"
        + "".join(f'<data key="{name}">{escape(row[name])}</data>' for name in names if row[name] is not None)
        + "</node>"
        for row in rows
    )
    edges = "".join(f"<edge source={quoteattr(u)} target={quoteattr(v)}/>" for u, v in ends(columns).to_numpy())
    path = folder / "g.graphml"
    path.write_text(f'<graphml>{keys}<graph edgedefault="undirected">{nodes}{edges}</graph></graphml>', "utf-8")
    return path, None


SOURCES: dict[str, Callable[[Path, Columns], Sources]] = {
    "csv": delimited(".csv"),
    "csv, without pyarrow": delimited(".csv"),
    "tsv": delimited(".tsv"),
    "pandas, object": of_pandas(object),
    "pandas, object, without pyarrow": of_pandas(object),
    "pandas, string": of_pandas("string"),
    "pandas, default": of_pandas(None),
    "pandas, category": of_pandas("category"),
    "parquet": parquet(None),
    "parquet, dictionary": parquet(pa.dictionary(pa.int32(), pa.string())),
    "arrow": arrow,
    "networkx": networkx,
    "graphml": graphml,
    **({"polars": polars} if importlib.util.find_spec("polars") else {}),
}

# What has the type of categories is said to be categories.
OF_TEXT = [name for name in SOURCES if name not in ("pandas, category", "parquet, dictionary")]


@pytest.fixture(params=list(SOURCES))
def source(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """A function from columns of text to arguments of `load_tables`."""
    if "without" in request.param:
        monkeypatch.setattr(text, "pa", None)
    return lambda columns: SOURCES[request.param](tmp_path, columns)


def table(**columns: Sequence[Any]) -> Columns:
    """Columns of text with ids, a target, a category and a split, all but those that are given without a blank."""
    count = len(next(iter(columns.values())))
    usual = {"id": [f"n{row}" for row in range(count)], "label": ["x", "y"] * count, "cat": ["p", "q", "r"] * count}
    usual |= {"split": ["train", "train", "val", "test"] * count}
    return {name: list(values)[:count] for name, values in (usual | columns).items()}


def load(sources: Sources, **options: Any) -> Task:
    return load_tables(*sources, **{"target": "label", **options})


BLANKS = ["", " ", "\t", " \n ", "\u00a0", "\u2009\u3000", "\u200b", "\ufeff "]


def test_a_blank_target_is_no_label(source: Any) -> None:
    labels = ["x", "y", "x", "y", *BLANKS]
    task = load(source(table(label=labels)))
    assert task.classes == ("x", "y")
    assert task.graphs.y.tolist() == [0, 1, 0, 1, *[-1] * len(BLANKS)]


def test_a_blank_category_is_missing(source: Any) -> None:
    task = load(source(table(cat=["p", "q", "p", "q", *BLANKS])))
    (column,) = task.details["preprocessing"].nodes
    assert column.categories == ("p", "q")
    assert column.gaps
    assert task.details["missing"] == {"cat": len(BLANKS)}
    assert task.graphs.x.flatten().tolist() == [0, 1, 0, 1, *[2] * len(BLANKS)]


def test_a_blank_is_missing_in_categories_that_the_user_calls_so(source: Any) -> None:
    task = load(
        source(table(label=["x", "y", "x", "y", *BLANKS], cat=["p", "q", "p", "q", *BLANKS])),
        types={"cat": "categorical", "label": "categorical"},
    )
    assert task.classes == ("x", "y")
    assert task.details["missing"] == {"cat": len(BLANKS)}


def test_a_blank_word_of_a_split_is_no_part(source: Any) -> None:
    task = load(source(table(split=["train", "train", "val", "test", *BLANKS])))
    parts = [part.tolist() for part in (task.splits[0].train, task.splits[0].val, task.splits[0].test)]
    assert parts == [[0, 1], [2], [3]]


def test_a_column_of_blanks_is_empty(source: Any) -> None:
    assert load(source(table(cat=BLANKS))).details["left_out"] == {"cat": "it is empty"}
    with pytest.raises(DataError, match="label: expected labels, got none"):
        load(source(table(label=BLANKS)))


def test_a_blank_is_missing_whatever_else_is(tmp_path: Path) -> None:
    columns = table(label=["x", "y", "x", "", "?", " "], cat=["1", "2", "3", "", "?", "4"], split=["train"] * 6)
    sources = delimited(".csv")(tmp_path, columns)
    task = load(sources, missing=["?"])
    assert task.classes == ("x", "y")
    assert task.details["missing"] == {"cat": 2}
    assert load(sources, missing=[], types={"cat": "categorical"}).classes == ("?", "x", "y")


@pytest.mark.parametrize(
    ("values", "held"),
    [
        ([1.5, "", 2.5, " "], "numeric"),
        ([1, "\u00a0", 2, 3], "numeric"),
        ([True, "", False, True], "boolean"),
        ([[1, 2], "", [3, 4], [5, 6]], "list"),
        ([pd.Timestamp("2024-01-31"), " ", pd.Timestamp("2024-02-01"), None], "time"),
    ],
)
@pytest.mark.parametrize("make", [of_pandas(object), networkx])
def test_a_blank_among_numbers_of_any_type_is_missing(tmp_path: Path, make: Any, values: list[Any], held: str) -> None:
    task = load(make(tmp_path, table(value=values)), features=["value"])
    (column,) = task.details["preprocessing"].nodes
    assert column.type == held
    assert task.details["missing"] == {"value": sum(isinstance(v, str) or v is None for v in values)}


def test_mixed_values_are_categories_where_the_user_says_so(tmp_path: Path) -> None:
    values = [1, "", "a", 2.5, "1", "a "]
    for make in (of_pandas(object), networkx):
        task = load(make(tmp_path, table(cat=values)), types={"cat": "categorical"}, fractions=(1, 0, 0))
        assert set(task.details["preprocessing"].nodes[0].categories) <= {"1", "2.5", "a"}
        assert task.details["missing"] == {"cat": 1}
        with pytest.raises(DataError, match="cat, row 3: expected values of one type"):
            load(make(tmp_path, table(cat=values)))


SPACED = ["x", "x ", " x", "\u00a0x", "x\u00a0", "x\u202f", "\tx\n", "x\u200b"]


def test_white_space_makes_no_class(source: Any) -> None:
    task = load(source(table(label=["y", *SPACED])))
    assert task.classes == ("x", "y")
    assert task.graphs.y.tolist() == [1, *[0] * len(SPACED)]
    found = task.describe()
    assert found.trimmed == {"label": len(SPACED) - 1}
    assert f"white space left out: label: {len(SPACED) - 1}" in str(found)


def test_white_space_makes_no_category(source: Any) -> None:
    task = load(source(table(cat=["y", *SPACED, "y", "y", "y"])), split="split")
    (column,) = task.details["preprocessing"].nodes
    assert column.categories == ("x", "y")
    assert task.graphs.x.flatten().tolist() == [1, *[0] * len(SPACED), 1, 1, 1]
    assert task.details["trimmed"] == {"cat": len(SPACED) - 1}
    assert not any("cat" in warning for warning in task.describe().warnings)


def test_white_space_makes_no_part_of_a_split(source: Any) -> None:
    task = load(source(table(split=["train", " Train", "train\u00a0", "val ", "\u00a0test", "\u200btest "])))
    parts = [part.tolist() for part in (task.splits[0].train, task.splits[0].val, task.splits[0].test)]
    assert parts == [[0, 1, 2], [3], [4, 5]]


def test_new_tables_are_read_by_the_same_rules(source: Any, tmp_path: Path) -> None:
    for make in (delimited(".csv"), of_pandas(object)):
        old = table(cat=["p", "q ", "p\u00a0", "q", "p", "q", "p", "q"])
        preprocessing = load(make(tmp_path, old)).details["preprocessing"]
        preprocessing = Preprocessing.from_json(preprocessing.to_json())
        assert preprocessing.nodes[0].categories == ("p", "q")
        found = apply_tables(preprocessing, *source(table(cat=[" p", "q\u00a0", "\tq", "p"])))
        assert found.graphs.x.flatten().tolist() == [0, 1, 1, 0]
        gap = source(table(cat=["p", "q", "\u00a0", "p"]))
        with pytest.raises(DataError, match="cat, row 3: expected a value as in all training rows, got none"):
            apply_tables(preprocessing, *gap)
        assert apply_tables(preprocessing, *gap, unknown="other").graphs.x.flatten().tolist() == [0, 1, 2, 0]


@pytest.mark.parametrize("name", ["", "x ", "\u00a0x", " "])
def test_a_preprocessing_with_categories_that_nothing_is_read_as_is_refused(name: str) -> None:
    task = load(of_pandas(object)(Path(), table(cat=["p", "q"] * 4)))
    written = task.details["preprocessing"].to_json()
    assert '"q"' in written
    with pytest.raises(DataError, match="expected categories without white space around them") as refusal:
        Preprocessing.from_json(written.replace('"q"', f'"{name}"'))
    assert refusal.value.field == "nodes[0].categories"


def test_the_target_of_a_graph_may_differ_by_white_space_among_its_nodes() -> None:
    nodes = pd.DataFrame({"graph": ["g", "g", "h", "h"], "id": range(4), "label": ["x ", "x", "y", "\u00a0y"]})
    edges = pd.DataFrame({"source": [0, 2], "target": [1, 3]})
    assert load_tables(nodes, edges, target="label", level="graph").classes == ("x", "y")


def test_a_column_is_known_with_white_space_around_its_name() -> None:
    nodes = pd.DataFrame(
        {" ID": list("abcd"), "split ": ["train", "val", "train", "test"], "label\u00a0": list("xyxy")}
    )
    task = load_tables(nodes, pd.DataFrame({"source ": ["a"], " target": ["b"]}))
    assert task.details["ids"].tolist() == list("abcd")
    assert task.details["inferred"]["split"] == "column 'split '"
    assert task.classes == ("x", "y")


# Ids


def nodes_and_edges(ids: Sequence[str], *pairs: tuple[str, str]) -> Sources:
    nodes = pd.DataFrame({"id": ids, "label": (["x", "y"] * len(ids))[: len(ids)]})
    return nodes, pd.DataFrame(pairs, columns=["source", "target"])


def test_ids_are_as_they_stand() -> None:
    task = load(nodes_and_edges(["a ", "b", "\u00a0c"], ("a ", "\u00a0c")), directed=True)
    assert task.details["ids"].tolist() == ["a ", "b", "\u00a0c"]
    assert task.graphs.edge_index.tolist() == [[0], [2]]


@pytest.mark.parametrize(("known", "named"), [("a", "a "), ("a ", "a"), ("\u00a0a", "a"), ("a\u200b", " a")])
def test_an_id_that_differs_by_white_space_is_refused_for_it(tmp_path: Path, known: str, named: str) -> None:
    sources = nodes_and_edges([known, "b"], ("b", known), ("b", named))
    with pytest.raises(DataError, match=r"target, row 2: expected the id of a node, got .*by white space alone"):
        load(sources)
    dropped = tmp_path / "dropped.csv"
    assert load(sources, on_error="skip", dropped=dropped).details["dropped"] == 1
    assert "white space alone" in dropped.read_text(encoding="utf-8")
    with pytest.raises(DataError, match=r"got 'z'; on_error='skip'"):
        load(nodes_and_edges([known, "b"], ("b", "z")))


@pytest.mark.parametrize("blank", ["", " ", "\u00a0", "\u200b"])
def test_a_blank_is_no_id(blank: str) -> None:
    with pytest.raises(DataError, match="id, row 2: expected an id, got none"):
        load(nodes_and_edges(["a", blank], ("a", "a")))
    with pytest.raises(DataError, match="target, row 1: expected an id, got none"):
        load(nodes_and_edges(["a", "b"], ("a", blank)))


def test_two_ids_that_differ_by_white_space_alone_are_refused() -> None:
    expected = "expected ids that differ by more than white space, got 'a ' and, in row 1, 'a'"
    with pytest.raises(DataError, match=f"nodes: id, row 3: {expected}"):
        load(nodes_and_edges(["a", "b", "a "], ("a", "b")))
    # Without a table of nodes, the slip would be a node of its own.
    edges = pd.DataFrame({"source": ["a", "b"], "target": ["b", "a "], "label": ["x", "y"]})
    with pytest.raises(DataError, match=f"edges: target, row 2: {expected}"):
        load((None, edges))
    with pytest.raises(DataError, match=r"edges: source, row 3: .*got ' b' and, in row 2, 'b'"):
        load((None, pd.DataFrame({"source": ["a", "b", " b"], "target": "a", "label": list("xyx")})))


def test_ids_of_graphs_that_differ_by_white_space_are_refused() -> None:
    nodes = pd.DataFrame({"graph": ["g", "g ", "h"], "id": [0, 1, 2]})
    edges = pd.DataFrame({"source": [0], "target": [0]})
    graphs = pd.DataFrame({"graph": ["g", "h"], "label": ["x", "y"]})
    with pytest.raises(DataError, match=r"nodes: graph, row 2: expected a graph of graphs, got 'g '.*white space"):
        load((nodes, edges), graphs=graphs)
    with pytest.raises(DataError, match="graphs: graph, row 3: expected ids that differ by more than white space"):
        load((nodes, edges), graphs=pd.DataFrame({"graph": ["g", "h", "g "], "label": ["x", "y", "x"]}))
    with pytest.raises(DataError, match="nodes: graph, row 2: expected ids that differ by more than white space"):
        load((nodes.assign(label=["x", "y", "x"]), edges), target="label", level="graph")
    in_graphs = pd.DataFrame({"graph": ["g", "h"], "id": ["a", "a "], "label": ["x", "y"]})
    # Each in a graph of its own, they are not mistaken for one another.
    within = pd.DataFrame({"graph": ["g", "h"], "source": ["a", "a "], "target": ["a", "a "]})
    assert load((in_graphs, within), level="graph").graphs.num_nodes == 2
    with pytest.raises(DataError, match=r"edges: graph, row 2: expected a graph that has nodes, got 'h '.*white space"):
        load((in_graphs, within.assign(graph=["g", "h "])), level="graph")


# Numbers that are written for people

NUMERALS = {
    "decimal commas": (["3,14", "2,5", "7", "-0,5"], "3.14"),
    "thousands by commas": (["1,234,567", "2,345", "12,345.5", "-1,234,567"], "1234567"),
    "thousands by spaces": (["1 234", "56 789", "12 345 678", "910"], "1234"),
    "thousands by hard spaces": (["1\u00a0234", "56\u202f789", "12\u2009345"], "1234"),
    "thousands by apostrophes": (["1'234", "56’789", "12'345.50"], "1234"),
    "thousands by points": (["1.234,50", "12.345,00", "7,25"], "1234.50"),
    "millions by points": (["1.234.567", "12.345.678"], "1234567"),
    "lakhs": (["1,23,456", "12,34,567"], "123456"),
    "dollars": (["$5.00", "$1,234.50", "-$7", "($8.00)"], "5.00"),
    "euros": (["5 €", "7,50 €", "12€"], "5"),
    "codes of currencies": (["EUR 5", "EUR 7.50", "EUR 1,000"], "5"),
    "currencies of all types": (["US$ 5", "£7", "8 CHF", "kr 5", "R$ 7,00", "₹500"], "5"),
    "millions of dollars": (["$5M", "$7.5B", "$3 million"], "plain numbers"),
    "percents": (["5%", "7.5 %", "0,5%"], "5"),
    "units": (["5 kg", "7.5 kg", "12kg"], "5"),
    "units without a space": (["5cm", "12cm", "7cm"], "5"),
    "units with signs": (["5 m/s", "7 m/s", "-2 m/s"], "5"),
    "exponents in units": (["5 kg/m3", "7 kg/m3"], "5"),
    "degrees": (["5 °C", "-7.5 °C"], "5"),
    "words for units": (["12 months", "24 months", "36 months"], "12"),
    "fractions of a rare unit": (["1.5x", "2x", "3.25x"], "1.5"),
    "a typesetter's minus": (["−5", "5", "−7.5"], "-5"),
    "white space around": ([" 3,14", "2,5\u00a0", "7,0"], "3.14"),
}


@pytest.mark.parametrize("name", OF_TEXT)
@pytest.mark.parametrize(("values", "write"), NUMERALS.values(), ids=NUMERALS.keys())
def test_numbers_that_are_written_for_people_are_no_categories(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, values: list[str], write: str
) -> None:
    if "without" in name:
        monkeypatch.setattr(text, "pa", None)
    column = ["", *(values * 4)[:12]]
    expected = "expected numbers with a decimal point, without separators, currencies or units"
    for role in ("cat", "label"):
        with pytest.raises(DataError, match=f"{role}, row 2: {expected}, got ") as refusal:
            load(SOURCES[name](tmp_path, table(**{role: column})))
        assert refusal.value.value == values[0]
        assert f": write {write}; if these are categories, say types={{'{role}': 'categorical'}}" in str(refusal.value)


def as_columns(lists: dict[str, list[str]]) -> Columns:
    """Each list as a column, over and over to twelve rows."""
    return {name.replace(" ", "_"): (values * 12)[:12] for name, values in lists.items()}


def test_a_user_who_calls_them_categories_is_obeyed(source: Any) -> None:
    columns = as_columns({name: values for name, (values, _) in NUMERALS.items()})
    sources = source(table(label=["x", "y"] * 6) | columns)
    task = load(sources, types=dict.fromkeys(columns, "categorical"), split="split")
    for column in task.details["preprocessing"].nodes[1:]:
        assert column.type == "categorical"
        assert set(column.categories) <= {value.strip() for value in columns[column.name]}
    assert len(task.details["preprocessing"].nodes) == len(columns) + 1
    assert task.details["doubts"] == {}


@pytest.mark.parametrize("name", ["csv", "pandas, object", "graphml"])
@pytest.mark.parametrize(("values", "write"), NUMERALS.values(), ids=NUMERALS.keys())
def test_a_user_who_calls_them_classes_is_obeyed(tmp_path: Path, name: str, values: list[str], write: str) -> None:
    column = (values * 12)[:12]
    task = load(SOURCES[name](tmp_path, table(label=column)), types={"label": "categorical"})
    assert [task.classes[code] for code in task.graphs.y.tolist()] == [value.strip() for value in column]
    assert task.details["doubts"] == {}


ORDINARY = {
    "codes": ["A1", "B2", "A10", "C3"],
    "ages": ["2-3 years", "4-5 years", "6+ years"],
    "versions": ["v1.2", "v1.3", "v2.0"],
    "versions of three": ["1.2.3", "1.10.0", "2.0.1"],
    "dates of Germany": ["31.01.2024", "01.02.2024"],
    "dates of America": ["01/31/2024", "02/01/2024"],
    "dates in words": ["1 Jan 2024", "2 Jan 2024", "31 Jan 2024"],
    "days of a month": ["1 May", "2 May", "3 May"],
    "times of day": ["12:30", "08:15"],
    "telephones": ["555-1234", "555-4321"],
    "telephones in groups": ["612 345 678", "699 000 123"],
    "telephones of countries": ["+48 612 345 678", "+1 555 123"],
    "area codes": ["030 123 456", "0800 123 456"],
    "addresses": ["192.168.100.101", "192.168.100.102"],
    "SMILES": ["CCO", "c1ccccc1", "CC(=O)O", "N#N"],
    "shares in classes": ["10%-20%", "20%-30%", "<10%"],
    "ranges": ["10-20", "20-30", "30–40"],
    "ordinals": ["1st", "2nd", "3rd", "4th"],
    "ordinals alike": ["4th", "5th", "6th"],
    "grades": ["4th grade", "5th grade"],
    "dimensions": ["2D", "3D"],
    "nets": ["4G", "5G"],
    "drives": ["2WD", "4WD"],
    "decades": ["80s", "90s"],
    "races": ["5K", "10K"],
    "seats": ["12A", "14C", "1A"],
    "post codes": ["1234 AB", "1235 CD", "9999 ZZ"],
    "numbered things": ["Level 5", "Level 6"],
    "the best": ["TOP 10", "TOP 50"],
    "footnotes": ["(1)", "(2)"],
    "several answers": ["1,2,3", "2,3,4", "1,4"],
    "places": ["52.5,13.4", "48.1,11.6"],
    "bounds": ["<5", ">10", "65+"],
    "chromosomes": ["1", "2", "X", "Y", "MT"],
    "leading zeros": ["007,5x", "008,5x"],
}


def test_ordinary_categories_are_categories(source: Any) -> None:
    columns = as_columns(ORDINARY)
    task = load(source(table(label=["x", "y"] * 6) | columns))
    fitted = {column.name: column for column in task.details["preprocessing"].nodes}
    assert fitted.keys() == {"cat", *columns}
    assert {column.type for column in fitted.values()} == {"categorical"}
    assert task.details["doubts"] == {}
    assert not any("look alike" in warning for warning in task.describe().warnings)


@pytest.mark.parametrize("name", ["csv", "pandas, object", "graphml"])
@pytest.mark.parametrize("values", ORDINARY.values(), ids=ORDINARY.keys())
def test_ordinary_classes_are_classes(tmp_path: Path, name: str, values: list[str]) -> None:
    task = load(SOURCES[name](tmp_path, table(label=(values * 12)[:12])))
    assert set(task.classes) == set(values)
    assert task.details["doubts"] == {}


def test_texts_of_which_half_look_like_numbers_are_told(source: Any) -> None:
    column = ["free", "$5.00", "7", "$7.50", "sold", "8.5", "on request", "$1", "free", "sold", "$3"]
    task = load(source(table(cat=column, label=column)))
    told = "6 of 11 texts look like numbers, such as '$5.00' in row 2, and are read as categories; types="
    assert [words.startswith(told) for words in task.details["doubts"].values()] == [True, True]
    assert f"column 'cat': {told}{{'cat': 'categorical'}} confirms it" in task.describe().warnings
    assert load(source(table(cat=column)), types={"cat": "categorical"}).details["doubts"] == {}


@pytest.mark.parametrize("name", sorted(set(SOURCES) - set(OF_TEXT)))
def test_what_has_the_type_of_categories_is_one_and_is_told(tmp_path: Path, name: str) -> None:
    column = ["3,14", "2,5", "7"] * 4
    task = load(SOURCES[name](tmp_path, table(cat=column, label=column)))
    assert task.classes == ("2,5", "3,14", "7")
    assert list(task.details["doubts"]) == ["label", "cat"]


def test_text_of_plain_numbers_is_text_by_its_type() -> None:
    nodes, edges = of_pandas(object)(Path(), table(cat=["10", "20", "30"] * 4))
    assert load((nodes, edges)).details["preprocessing"].nodes[0].categories == ("10", "20", "30")
    assert load((nodes, edges)).details["doubts"] == {}
    # A fraction is hardly the code of a category.
    nodes["cat"] = ["1.5", "2.5", "?"] * 4
    assert "8 of 12 texts look like numbers, such as '1.5' in row 1" in load((nodes, edges)).details["doubts"]["cat"]


def test_a_number_that_is_asked_for_is_refused_with_its_remedy(tmp_path: Path) -> None:
    csv_file = delimited(".csv")(tmp_path, table(cat=["1.5", "2.5", "3,14", "4"]))
    for options in ({"types": {"cat": "numeric"}}, {"target": ["cat", "cat"]}):
        with pytest.raises(DataError, match=r"cat, row 3: expected a number, got '3,14': write 3\.14$"):
            load(csv_file, **options)
    preprocessing = load(delimited(".csv")(tmp_path, table(cat=["1.5", "2.5", "3.5", "4"]))).details["preprocessing"]
    with pytest.raises(DataError, match=r"cat, row 3: expected a number, got '1,234': write 1234 or 1\.234$"):
        apply_tables(preprocessing, *delimited(".csv")(tmp_path, table(cat=["1.5", "2.5", "1,234", "4"])))


@pytest.mark.parametrize(
    "values", [pd.to_timedelta(range(6), "D"), pd.Series([1j, 2j] * 3), pd.date_range("2024", periods=6)]
)
def test_any_type_is_of_categories_where_the_user_says_so(values: Any) -> None:
    nodes, edges = of_pandas(object)(Path(), table(label=["x", "y"] * 3))
    task = load((nodes.assign(cat=values), edges), types={"cat": "categorical"})
    assert task.details["preprocessing"].nodes[0].type == "categorical"
    assert len(load((nodes.assign(label=values), edges), types={"label": "categorical"}).classes) >= 2


def test_an_empty_table_of_text_has_no_blanks() -> None:
    nodes, _ = of_pandas(object)(Path(), table(label=["x", "y"] * 3))
    edges = pd.DataFrame({name: pd.Series([], dtype=object) for name in ("source", "target", "kind")})
    task = load((nodes, edges))
    assert task.graphs.num_edges == 0
    assert task.details["left_out"] == {"edge kind": "it is empty"}


def test_edges_have_the_same_rules(tmp_path: Path) -> None:
    nodes, edges = of_pandas(object)(tmp_path, table(label=["x", "y"] * 3))
    task = load((nodes, edges.assign(kind=["a", "a ", "", "b", "\u00a0b"])))
    assert task.details["missing"] == {"edge kind": 1}
    assert task.details["trimmed"] == {"edge kind": 2}
    assert task.schema.edge_vocabularies == (3,)
    with pytest.raises(DataError, match=r"edges: weight, row 1: .*got '5 kg': write 5; .*types=\{'weight'"):
        load((nodes, edges.assign(weight=["5 kg", "6 kg", "7 kg", "8 kg", "9 kg"])))
    assert torch.equal(task.graphs.edge_index, load((nodes, edges)).graphs.edge_index)


def test_categories_that_look_alike_are_told() -> None:
    towns = ["New York", "New\u00a0York", "New  York", "Orle\u0301ans", "Orl\u00e9ans", "Paris"] * 4
    task = load(of_pandas(object)(Path(), table(cat=towns, label=towns)))
    found = [warning for warning in task.describe().warnings if "look alike" in warning]
    assert "column 'cat' has categories that look alike: 'New  York' and 'New York'" in found
    assert "the target has categories that look alike: 'New  York' and 'New\\xa0York'" in found
    assert len(found) == 6
