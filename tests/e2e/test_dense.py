"""train.kernels: fast for linear layers: trained without a graph, near the exact losses, and to the same bits each time."""

import pytest

from train_kit import PIMA, metrics, sets, write_config, losses

pytestmark = pytest.mark.about("fast", "loop")

torch = pytest.importorskip("torch")

PLAIN = sets(task__class_weights="balanced", optim__name="sgd", optim__lr=0.02, optim__momentum=0.9, train__epochs=3, train__log_every=1)
FAST = sets(train__kernels="fast")


def train(mpirun, lockstep, world, folder, *words):
    folder.mkdir()
    ran = mpirun(world, lockstep, "train", write_config(folder, PIMA), *PLAIN, *words, cwd=folder, check=True)
    return folder / "runs/pima", ran


@pytest.mark.mpi
@pytest.mark.parametrize("world, words", [
    (2, ("launch.backend=gloo",)), (3, ("launch.backend=mpi", "train.label_smoothing=0.1", "train.clip_norm=0.3"))])
def test_losses_are_near_the_exact_ones(world, words, mpirun, lockstep, tmp_path):
    words = [part for word in words for part in ("--set", word)]
    exact, _ = train(mpirun, lockstep, world, tmp_path / "exact", *words)
    fast, ran = train(mpirun, lockstep, world, tmp_path / "fast", *words, *FAST)
    assert "sums in another order" in ran.stderr and "using libtorch's kernels" not in ran.stderr
    assert len(losses(exact)) == len(losses(fast)) >= 20
    assert losses(fast)[:40] == pytest.approx(losses(exact)[:40], abs=1e-6)
    assert losses(fast) != losses(exact)  # or it is the general way
    ours, theirs = metrics(fast)[-1], metrics(exact)[-1]
    assert ours["eval_loss"] == pytest.approx(theirs["eval_loss"], abs=1e-4)


def test_what_needs_a_graph_is_trained_with_one_and_told(mpirun, lockstep, tmp_path):
    words = sets(model__name="pima_net_branch", ddp__find_unused_parameters=True, train__max_steps=3)
    folder, ran = train(mpirun, lockstep, 2, tmp_path / "run", *words, *FAST)
    assert "using libtorch's kernels" in ran.stderr and "other layers than dense ones" in ran.stderr
    assert "sums in another order" not in ran.stderr
    assert len(losses(folder)) == 3
