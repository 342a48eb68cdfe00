"""train.kernels: fast for linear layers: trained without a graph, near the exact losses, and to the same bits each time."""

import pytest

from train_kit import DATA, metrics, sets, write_config, losses

pytestmark = pytest.mark.about("fast", "loop")

torch = pytest.importorskip("torch")

PIMA = f"""
run: {{name: pima}}
task: {{name: pima, class_weights: balanced}}
data: {{root: {DATA}/pima, batch_size: 16, shuffle: true, workers: 0}}
optim: {{name: sgd, lr: 0.02, momentum: 0.9}}
train: {{epochs: 3, log_every: 1, eval_every: 1}}
"""
FAST = sets(train__kernels="fast")


def train(mpirun, lockstep, world, folder, text, *words, **how):
    folder.mkdir()
    ran = mpirun(world, lockstep, "train", write_config(folder, text), *words, cwd=folder, check=True, **how)
    return folder / "runs/pima", ran


def both(mpirun, lockstep, world, folder, text, *words):
    exact, _ = train(mpirun, lockstep, world, folder / "exact", text, *words)
    fast, ran = train(mpirun, lockstep, world, folder / "fast", text, *words, *FAST)
    assert "the order of sums differs" in ran.stderr and "used instead" not in ran.stderr
    return exact, fast


def assert_near(exact, fast, steps=40):
    assert len(losses(exact)) == len(losses(fast)) >= min(steps, 20)
    assert losses(fast)[:steps] == pytest.approx(losses(exact)[:steps], abs=1e-6)
    assert losses(fast) != losses(exact)  # or it is the general way


@pytest.mark.mpi
@pytest.mark.parametrize("world, words", [
    (2, ("launch.backend=gloo",)), (3, ("launch.backend=mpi", "train.label_smoothing=0.1", "train.clip_norm=0.3"))])
def test_losses_are_near_the_exact_ones(world, words, mpirun, lockstep, tmp_path):
    words = [part for word in words for part in ("--set", word)]
    exact, fast = both(mpirun, lockstep, world, tmp_path, PIMA, *words)
    assert_near(exact, fast)
    ours, theirs = metrics(fast)[-1], metrics(exact)[-1]
    assert ours["eval_loss"] == pytest.approx(theirs["eval_loss"], abs=1e-4)


def test_what_needs_a_graph_is_trained_with_one_and_told(mpirun, lockstep, tmp_path):
    words = sets(model__name="pima_net_branch", ddp__find_unused_parameters=True, train__max_steps=3)
    folder, ran = train(mpirun, lockstep, 2, tmp_path / "run", PIMA, *words, *FAST)
    assert "libtorch's kernels are used instead" in ran.stderr and "other layers than dense ones" in ran.stderr
    assert "the order of sums" not in ran.stderr
    assert len(losses(folder)) == 3
