"""The optimizer's state shared over the ranks (optim.sharded): the same bits, files and resumes as without."""

import pytest

from train_kit import PIMA, assert_same_tensors, metrics, newest, sets, write_config

pytestmark = pytest.mark.about("zero")

torch = pytest.importorskip("torch")

SHARDED = sets(optim__sharded=True)


@pytest.fixture
def train(mpirun, lockstep, tmp_path):
    """train(ranks, config text, run's name, words...) -> its newest checkpoint; the result is train.said."""
    def start(ranks, text, name, *words):
        folder = tmp_path / name
        folder.mkdir(exist_ok=True)
        start.said = mpirun(ranks, lockstep, "train", write_config(folder, text), *words, cwd=folder, check=True, quiet=True)
        return newest(next((folder / "runs").iterdir()))
    return start


def assert_same_state(left, right):
    for key in ("model", "optimizer", "iter_no"):
        assert_same_tensors(left[key], right[key])
    assert_same_tensors(left["lockstep"]["schedule"], right["lockstep"]["schedule"])


def test_a_run_goes_on_with_and_without_and_at_another_world(train, tmp_path):
    """One run, its optimizer plain and shared in turn, ends as one that never changed."""
    words = sets(checkpoint__every_steps=5)
    whole = train(2, PIMA, "whole", *words)
    folder = "in-turn"
    for stop, more in ((13, SHARDED), (31, [])):
        train(2, PIMA, folder, *words, *sets(train__max_steps=stop), *more, *(["--resume", "runs/pima"] if stop > 13 else []))
    mixed = train(2, PIMA, folder, *words, *SHARDED, "--resume", "runs/pima")
    assert_same_state(whole, mixed)
    # at 3 ranks, from the same file: shared and plain alike
    file = sorted((tmp_path / "whole/runs/pima/checkpoints").glob("step-*.pt"))[-2]
    content = torch.load(file, weights_only=True)
    content["lockstep"]["losses"] = torch.tensor([[1000.0, 1.0], [0.0, 0.0]], dtype=torch.float64)  # a sum and a count a rank
    torch.save(content, file)
    left = train(3, PIMA, "left", *sets(train__epochs=5), "--resume", file)
    first = next(line["train_loss"] for line in metrics(tmp_path / "left/runs/pima") if "train_loss" in line)
    assert first == pytest.approx((1000 + 9 * 0.5) / (1 + 9), abs=1)  # what was summed counts once; then 3 batches a rank
    right = train(3, PIMA, "right", *sets(train__epochs=5), "--resume", file, *SHARDED)
    assert_same_state(left, right)
