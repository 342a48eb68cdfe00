"""Reinforcement learning under DDP: it learns, a resumed run has the bits of one that went through, eval plays."""

import re

import pytest

from conftest import run_process
from train_kit import assert_same_run, assert_same_tensors, checkpoints, metrics, newest, sets, status, write_config

pytestmark = pytest.mark.about("tasks", "loop")

torch = pytest.importorskip("torch")

CARTPOLE = """
run: {name: cartpole}
task: {name: cartpole, options: {environments: 8, steps: 64, passes: 2}}
data: {batch_size: 128, workers: 0}
model: {name: mlp, hidden: [32]}
optim: {name: adam, lr: 0.003}
train: {epochs: 6, log_every: 0}
checkpoint: {every_epochs: 1, keep: 0}
"""
STEPS = 8  # an epoch: 8 x 64 x 2 samples in batches of 128


def command_of(lockstep, mpiexec, world, *words):
    return [*([mpiexec, "-n", world] if world > 1 else []), lockstep, *words]


@pytest.fixture
def train(lockstep, mpiexec):
    def train(folder, world, *words, text=CARTPOLE):
        folder.mkdir(exist_ok=True)
        config = write_config(folder, text)
        run_process(command_of(lockstep, mpiexec, world, "train", config, *words), cwd=folder, check=True)
        return folder / "runs/cartpole"
    return train


@pytest.fixture(scope="session")
def unbroken(once, lockstep, mpiexec):
    def make(folder):
        run_process(command_of(lockstep, mpiexec, 2, "train", write_config(folder, CARTPOLE)), cwd=folder, check=True)
    return once("unbroken_cartpole", make) / "runs/cartpole"


def epochs_of(run):
    return [line for line in metrics(run) if line["event"] == "epoch"]


def test_ppo_learns(train, tmp_path):
    run = train(tmp_path, 2, *sets(train__epochs=30, checkpoint__every_epochs=0, task__options__steps=128,
                                       task__options__environments=8, task__options__passes=4))
    lines = epochs_of(run)
    assert lines[0]["reward"] < 60
    assert lines[-1]["recent_reward"] > 150
    assert status(run)["reward"] == lines[-1]["recent_reward"]


def test_a_run_ends_when_it_is_solved(train, tmp_path):
    run = train(tmp_path, 2, *sets(task__options__solved=12, task__options__method="policy_gradient", task__options__passes=1))
    assert status(run)["state"] == "done" and status(run)["reason"] == "solved"
    assert epochs_of(run)[-1]["recent_reward"] >= 12 and len(epochs_of(run)) < 6
    before = newest(run)
    train(tmp_path, 2, *sets(task__options__solved=12), "--resume", "auto")
    assert_same_tensors(newest(run)["model"], before["model"])  # it had reached what it was for


@pytest.mark.parametrize("step", [STEPS + 3, pytest.param(STEPS, marks=pytest.mark.full)])
def test_a_run_that_is_cut_and_resumed_ends_with_the_same_bits(train, unbroken, tmp_path, step):
    words = sets(checkpoint__every_steps=step)
    run = train(tmp_path, 2, *words, *sets(train__max_steps=4 * STEPS))
    for path in checkpoints(run):  # as if it had been killed right after this one
        if int(path.stem.split("-")[1]) != step:
            path.unlink()
    train(tmp_path, 2, *words, *sets(train__max_steps=0), "--resume", "auto")
    assert_same_run(run, unbroken)


@pytest.mark.full
def test_other_ranks_begin_new_environments_and_train_the_rest_of_the_epoch(lockstep, run, train, tmp_path):
    where = train(tmp_path, 2, *sets(train__max_steps=STEPS + 3))
    result = run(lockstep, "train", tmp_path / "config.yaml", *sets(train__max_steps=0), "--resume", "auto", cwd=tmp_path)
    assert result.returncode == 0 and "warning: " in result.stderr, result.stderr
    assert [line["epoch"] for line in epochs_of(where)] == list(range(6))


def test_eval_plays_the_same_episodes_at_any_world_size(lockstep, mpiexec, run, unbroken, tmp_path):
    told = [run(*command_of(lockstep, mpiexec, world, "eval", unbroken / "config.yaml", "--checkpoint", unbroken),
                cwd=tmp_path) for world in (1, 2)]
    assert told[0].returncode == told[1].returncode == 0, told[0].stderr + told[1].stderr
    assert told[0].stdout == told[1].stdout
    assert re.search(r"^reward +[0-9.]+\nsmallest +\d+\nlargest +\d+\nsolved +(yes|no)", told[0].stdout, re.MULTILINE)
