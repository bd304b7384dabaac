"""Definition 1, Assumption 1 and Remark 1, on any sample; the closed forms against their formulas."""

import math
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from sirgcn import SIRConv
from sirgcn.theory import (
    Pseudometric,
    check_assumption,
    check_axioms,
    discrete,
    euclidean,
    feature_distance,
    gaussian,
    layer_distance,
    mahalanobis,
    manhattan,
    squared_score,
    table_distance,
    violating_example,
)
from tests.theory.draws import Metric, layer, metrics, points, seeded

# d is a root: a unit in the last place of a square is 1e-8 of the largest distance.
ROOT = 1e-7


@given(metrics(2), points(2))
def test_every_pseudometric_satisfies_the_axioms(metric: Metric, x: Tensor) -> None:
    assert check_axioms(metric.d(x, query=metric.query))


@given(metrics(2), points(2))
def test_every_pseudometric_satisfies_assumption_1(metric: Metric, x: Tensor) -> None:
    assert check_assumption(metric.d, x, metric.query)


@given(metrics(2), metrics(2, contextual=False), points(2), st.floats(0.01, 100), st.floats(0.05, 1))
def test_the_rules_of_remark_1_keep_assumption_1(metric: Metric, other: Metric, x: Tensor, a: float, p: float) -> None:
    d, query = metric.d, metric.query
    values = d(x, query=query)
    made = {"a * d": a * d, "d1 & d2": d & other.d, "d ** p": d**p}
    expected = {"a * d": a * values, "d1 & d2": torch.hypot(values, other.d(x)), "d ** p": values**p}
    for rule, found in made.items():
        torch.testing.assert_close(found(x, query=query), expected[rule], rtol=1e-12, atol=1e-12)
        assert check_axioms(found(x, query=query)), rule
        assert check_assumption(found, x, query), rule


@given(metrics(2, features=True), points(2), points(2))
def test_known_features_have_the_distances_of_d(metric: Metric, x: Tensor, y: Tensor) -> None:
    d, query = metric.d, metric.query
    assert d.features is not None
    apart = d.features(x, query).unsqueeze(1) - d.features(y, query).unsqueeze(0)
    torch.testing.assert_close(apart.norm(dim=-1), d(x, y, query), rtol=1e-12, atol=1e-12)


@given(metrics(3), points(3, size=4), points(3, size=3))
def test_a_batch_gives_what_its_samples_give(metric: Metric, x: Tensor, y: Tensor) -> None:
    d, query = metric.d, metric.query
    queries = None if query is None else torch.stack([query, -query])
    batch = d(torch.stack([x, x + 1]), torch.stack([y, y - 1]), queries)
    for i, (one, two) in enumerate(((x, y), (x + 1, y - 1))):
        single = d(one, two, None if queries is None else queries[i])
        torch.testing.assert_close(batch[i], single, rtol=1e-9, atol=ROOT)


@given(points(2, min_size=2), points(2, min_size=2), st.integers(0, 99))
def test_closed_forms_are_their_formulas(x: Tensor, y: Tensor, seed: int) -> None:
    root = seeded(seed, 2, 2)
    precision = root @ root.T
    apart = x.unsqueeze(1) - y.unsqueeze(0)
    euclid = (apart**2).sum(-1).sqrt()
    forms = {
        euclidean(): euclid,
        squared_score(): ((x.unsqueeze(1) ** 2 - y.unsqueeze(0) ** 2) ** 2).sum(-1).sqrt(),
        mahalanobis(precision): torch.einsum("nmi,ij,nmj->nm", apart, precision, apart).clamp(min=0).sqrt(),
        discrete(): (euclid > 0).double(),
        manhattan(): apart.abs().sum(-1),
        gaussian(scale=1.5): (2 - 2 * torch.exp(-(euclid**2) / (2 * 1.5**2))).clamp(min=0).sqrt(),
    }
    for d, expected in forms.items():
        torch.testing.assert_close(d(x, y), expected, rtol=1e-9, atol=ROOT, msg=repr(d))


@given(st.integers(0, 99), points(2), st.sampled_from(["relu", "gelu"]))
def test_the_distance_of_a_layer_is_that_of_its_messages(seed: int, x: Tensor, sigma: str) -> None:
    conv = layer(seed, 2, sigma=sigma)
    query = seeded(seed, 2)
    # A graph for every point: it alone sends to the query.
    nodes = torch.cat([x, query.expand_as(x)])
    edges = torch.stack([torch.arange(len(x)), torch.arange(len(x)) + len(x)])
    out = conv(nodes, edges)[len(x) :]
    expected = torch.cdist(out, out, compute_mode="donot_use_mm_for_euclid_dist")
    torch.testing.assert_close(layer_distance(conv)(x, query=query), expected.detach(), rtol=1e-9, atol=1e-12)


def test_the_distance_of_a_message_network_is_that_of_its_messages() -> None:
    network = nn.Sequential(nn.Linear(4, 6), nn.GELU(), nn.Linear(6, 3))
    conv = SIRConv(2, 3, message_network=network).double()
    x, query = seeded(0, 5, 2), seeded(1, 2)
    assert conv.message_network is not None
    expected = conv.message_network(torch.cat([query.expand_as(x), x], dim=-1)).detach()
    found = layer_distance(conv)(x, query=query)
    torch.testing.assert_close(found, torch.cdist(expected, expected), rtol=1e-6, atol=1e-6)


def test_a_module_is_looked_at_in_eval_mode_and_left_as_it_was() -> None:
    module = nn.Sequential(nn.Linear(2, 3), nn.Dropout(0.5)).double().train()
    module[0].eval()
    d = feature_distance(module)
    x = seeded(0, 4, 2)
    assert torch.equal(d(x), d(x))
    assert not d(x).requires_grad
    assert (module.training, module[0].training, module[1].training) == (True, False, True)


def test_a_metric_violates_assumption_1() -> None:
    d, x = violating_example()
    assert check_axioms(d(x))
    found = check_assumption(d, x)
    assert not found
    c = found.coefficients
    torch.testing.assert_close(c.sum(), torch.tensor(0.0, dtype=torch.float64), rtol=0, atol=1e-12)
    assert float(c @ -d.squares(x) @ c) == pytest.approx(found.smallest)
    # 4 points at distance 1 of the centre and 2 of each other: c = (2, -1/2, -1/2, -1/2, -1/2) / sqrt(5) gives -4/5.
    assert found.smallest == pytest.approx(-0.8)
    assert check_assumption(d**0.5, x)


@given(st.floats(1.01, 3))
def test_powers_above_1_which_are_refused_break_the_triangle_inequality(p: float) -> None:
    line = torch.tensor([[0.0], [1.0], [2.0]], dtype=torch.float64)
    assert check_axioms(euclidean()(line))
    assert check_axioms(euclidean()(line) ** p).triple in ((0, 1, 2), (2, 1, 0))
    assert not check_axioms(euclidean()(line) ** p)


@given(points(2, min_size=2))
def test_the_root_of_the_manhattan_distance_satisfies_assumption_1(x: Tensor) -> None:
    assert check_assumption(manhattan() ** 0.5, x)


def test_a_table_gives_distances_of_categories() -> None:
    distances = torch.tensor([[0.0, 1, 2], [1, 0, 1.5], [2, 1.5, 0]], dtype=torch.float64)
    d = table_distance(distances)
    x = torch.tensor([[2], [0], [0]])
    assert torch.equal(d(x), distances[[2, 0, 0]][:, [2, 0, 0]])
    batch = torch.stack([x, x.flip(0)])
    assert torch.equal(d(batch), torch.stack([d(x), d(x.flip(0))]))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: euclidean() ** 1.5, r"0 < p <= 1 \(Remark 1\), got 1.5"),
        (lambda: euclidean() ** 0, "0 < p <= 1"),
        (lambda: 0 * euclidean(), r"a > 0 \(Remark 1\), got 0"),
        (lambda: math.nan * euclidean(), "a > 0"),
        (lambda: math.inf * euclidean(), "expected a finite a > 0"),
        (lambda: gaussian(scale=0.0), "scale: expected more than 0"),
        (lambda: mahalanobis(torch.tensor([[1.0, 0], [0, -1]]).double()), "no negative eigenvalue, got -1"),
        (lambda: mahalanobis(torch.tensor([[1.0, 2], [0, 1]])), "expected a symmetric matrix, got 2 at"),
        (lambda: mahalanobis(torch.zeros(0, 0)), "at least one row"),
        (lambda: table_distance(torch.tensor([[0.0, -1], [-1, 0]])), "no negative distance, got -1 at"),
        (lambda: table_distance(torch.tensor([[1.0, 1], [1, 0]])), "0 on the diagonal, got 1 at 0"),
        (lambda: table_distance(torch.tensor([[0.0, math.inf], [math.inf, 0]])), "finite"),
        (lambda: table_distance(torch.zeros(2, 2))(torch.zeros(2, 1)), "one column of integers"),
        (lambda: table_distance(torch.zeros(2, 2))(torch.tensor([[0], [-1]])), "from 0 to 1, got -1"),
        (
            lambda: table_distance(torch.zeros(2, 2))(torch.tensor([[0]]), torch.tensor([[2]])),
            "y: .* from 0 to 1, got 2",
        ),
        (lambda: euclidean()(torch.zeros(3)), r"rows of features \[n, channels\]"),
        (lambda: euclidean()(torch.zeros(3, 2), torch.zeros(3, 1)), "expected 2 channels as x has, got 1"),
        (lambda: euclidean()(torch.zeros(3, 2), query=torch.zeros(2)), "not contextual"),
        (lambda: layer_distance(SIRConv(2, 2))(torch.zeros(3, 2)), "contextual and expects the query"),
        (lambda: layer_distance(layer(0, 2, edges=True)), "without edge features"),
    ],
)
def test_what_makes_no_pseudometric_is_refused(make: object, message: str) -> None:
    assert callable(make)
    with pytest.raises(ValueError, match=message):
        make()


def test_other_operands_are_refused() -> None:
    d: Any = euclidean()
    with pytest.raises(TypeError):
        d & 2
    with pytest.raises(TypeError):
        d * d
    with pytest.raises(TypeError):
        "a" * d
    with pytest.raises(TypeError, match="expected a SIRConv, got Linear"):
        layer_distance(nn.Linear(2, 2))  # type: ignore[arg-type]


def test_names_tell_how_a_pseudometric_was_made() -> None:
    made: Pseudometric = 2 * (euclidean() & squared_score()) ** 0.5
    assert repr(made) == "Pseudometric(2 * (sqrt(euclidean^2 + squared_score^2))^0.5)"
