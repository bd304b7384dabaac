"""Data-parallel training: the ranks together do what one process does."""

import json
from pathlib import Path

import pytest
import torch

from sirgcn.engine.checkpoint import Checkpoints
from sirgcn.engine.loop import Trainer
from sirgcn.engine.ranks import ALONE
from sirgcn.scale.launch import RankError, launch
from sirgcn.scale.ranks import DataParallel
from tests.scale import onranks
from tests.scale.same import same_numbers

LIMIT = 240.0


@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
def test_ranks_train_as_one_process_does_and_their_weights_are_equal_bit_for_bit(ranks: int) -> None:
    # The last batch has three graphs, so that one of four ranks has none. The gradient is clipped and has penalties.
    # Adam divides by the size of a gradient, and makes more of a rounding of 1e-16.
    task = onranks.tiny(dtype=torch.float64)
    expected = onranks.train_alone(task)
    found = launch(onranks.train_data_parallel, ranks, (task,), seconds=LIMIT)
    assert len({rank["sha256"] for rank in found}) == 1
    same_numbers(found[0], expected, 1e-6)


def test_each_rank_draws_its_own_dropout_and_the_training_repeats_bit_for_bit() -> None:
    first, second = (
        launch(onranks.train_data_parallel, 2, (onranks.tiny(), onranks.CONFIG, 0.3), 0, LIMIT) for _ in "12"
    )
    assert {rank["sha256"] for rank in first} == {rank["sha256"] for rank in second}
    assert first[0]["sha256"] == first[1]["sha256"]
    assert first[0]["history"] != launch(
        onranks.train_data_parallel, 1, (onranks.tiny(), onranks.CONFIG, 0.3), 0, LIMIT
    )


@pytest.mark.parametrize(("rank", "step"), [(0, 5), (1, 8)])
def test_a_killed_rank_is_started_again_and_changes_no_weight(tmp_path: Path, rank: int, step: int) -> None:
    # 20 kills at random steps: `python tools/soak.py --only ranks`
    task = onranks.tiny()
    whole = launch(onranks.train_resumed, 2, (task, str(tmp_path / "whole"), []), seconds=LIMIT)
    (tmp_path / "kill").mkdir()
    found = launch(onranks.train_resumed, 2, (task, str(tmp_path / "kill"), [rank, step]), seconds=LIMIT)
    assert (tmp_path / "kill" / "killed").exists()
    assert found == whole


def test_a_training_is_taken_up_with_another_number_of_ranks(tmp_path: Path) -> None:
    task = onranks.tiny(dtype=torch.float64)
    said = launch(onranks.train_until, 2, (task, str(tmp_path), 5), seconds=LIMIT)
    assert [json.loads(each)[0] for each in said] == ["Interrupted", "Interrupted"]
    expected = onranks.train_alone(task)
    state = Checkpoints(tmp_path)
    state.of = json.loads(next(tmp_path.glob("*.json")).read_text())["of"]
    kept = state.load()
    assert kept is not None
    assert (kept["state"]["epoch"], kept["state"]["step"]) == (1, 2)  # four batches and two more
    # The identity of a training does not depend on its ranks, so that one process takes it up.
    found = onranks.trained(ALONE, task, onranks.CONFIG, checkpoints=Checkpoints(tmp_path))
    same_numbers(found, expected, 1e-6)


@pytest.mark.parametrize(
    ("what", "message"),
    [("version", "rank 1: torch: expected '[^']+', as on rank 0, got '2.0.0'"), ("data", "rank 1: data: expected '")],
)
def test_ranks_that_differ_are_refused_with_the_reason(what: str, message: str) -> None:
    with pytest.raises(RankError, match=message):
        launch(onranks.different, 2, (what,), seconds=LIMIT)


def test_one_process_is_not_asked_for_ranks() -> None:
    task = onranks.tiny()
    trainer = Trainer(onranks.network(), task, onranks.CONFIG)
    assert trainer.ranks is ALONE
    assert not torch.distributed.is_initialized()


def test_a_single_graph_is_not_shared_by_data_parallel_ranks() -> None:
    from sirgcn.data import Graphs, Schema, Split, Task

    graph = Graphs(torch.ones(4, 1), torch.tensor([[0], [1]]), torch.tensor([0, 1, 0, 1]), "node")
    task = Task("single", graph, Schema(features=1, outputs=2), (Split.draw(4),), "cross_entropy", "accuracy")
    with pytest.raises(ValueError, match="ranks: expected a task of several graphs"):
        DataParallel(0, 2).check(onranks.network(), task)
