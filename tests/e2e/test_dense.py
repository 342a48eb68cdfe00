"""train.kernels: fast for linear layers: trained without a graph, near the exact losses, and to the same bits each time."""

import pathlib

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
# 40 rows of 3 numbers; a number, or a class, is to come
ROWS = ["a,b,c,y"] + [f"{i % 7},{(3 * i) % 5},{i % 2},{{}}" for i in range(40)]


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


@pytest.mark.parametrize("hidden, kind, batch", [
    ("[1]", "regression", 3), pytest.param("[7, 1, 33]", "classification", 1, marks=pytest.mark.full)])
def test_odd_sizes(hidden, kind, batch, mpirun, lockstep, tmp_path):
    table = tmp_path / "table.csv"
    target = [("y" if i == 0 else i % 3 if kind == "classification" else (i % 7) * 0.3 - i % 2) for i in range(len(ROWS))]
    table.write_text("\n".join(row.format(y) for row, y in zip(ROWS, target)) + "\n")
    text = f"""
run: {{name: pima}}
task: {{name: csv, file: {table}, label: y, kind: {kind}}}
data: {{batch_size: {batch}, workers: 0}}
model: {{name: mlp, hidden: {hidden}}}
optim: {{name: sgd, lr: 0.01, momentum: 0.9}}
train: {{epochs: 8, log_every: 1, eval_every: 0}}
"""
    exact, fast = both(mpirun, lockstep, 2, tmp_path, text, "--set", "launch.backend=mpi")
    assert_near(exact, fast)


def test_a_task_with_a_loss_of_its_own_is_asked_for_it(build_dir, mpirun, lockstep, tmp_path):
    text = f"""
run: {{name: pima}}
task: {{name: {next(build_dir.glob("**/rings_task.so"))}}}
model: {{name: mlp, hidden: [16]}}
train: {{epochs: 1, log_every: 1}}
"""
    folder, ran = train(mpirun, lockstep, 2, tmp_path / "run", text, *FAST)
    assert "used instead: the task has its own loss" in ran.stderr
    assert losses(folder)


@pytest.mark.parametrize("words, why", [
    (("model.name=pima_net_branch", "ddp.find_unused_parameters=true"), "other layers than dense ones"),
    (("ddp.comm_hook=bf16",), "ddp.comm_hook"),
])
def test_what_needs_a_graph_is_trained_with_one_and_told(words, why, mpirun, lockstep, tmp_path):
    words = [part for word in (*words, "train.max_steps=3") for part in ("--set", word)]
    folder, ran = train(mpirun, lockstep, 2, tmp_path / "run", PIMA, *words, *FAST)
    assert "libtorch's kernels are used instead" in ran.stderr and why in ran.stderr
    assert "the order of sums" not in ran.stderr
    slow = "train.precision=bf16" in words and "bf16" not in pathlib.Path("/proc/cpuinfo").read_text()
    assert ran.stderr.count("no bf16 instructions") == slow
    assert len(losses(folder)) == 3
