"""parallel.pipeline: the unsplit model's bits from its stages, its checkpoints, and clear words for what cannot be."""

import os
import signal
import subprocess

import pytest

from conftest import PATIENT
from process_kit import PATIENCE, wait_for
from test_signals import ranks_of
from train_kit import (PIMA, assert_same_run, assert_same_tensors, checkpoints, metrics, newest, sets, without_clocks, write_config)

pytestmark = pytest.mark.about("parallel", "loop")

torch = pytest.importorskip("torch")

FOUR_PARTS = dict(model__name="mlp", model__hidden="[24,20,16]")


@pytest.fixture
def train(lockstep, run, mpirun, tmp_path):
    """train(ranks, name, config=PIMA, more=[], **settings) -> the run's folder, and what was printed."""
    def begin(ranks, name, more=(), config=PIMA, **settings):
        words = [lockstep, "train", write_config(tmp_path, config), *sets(run__name=name, **settings), *more]
        result = mpirun(ranks, *words, cwd=tmp_path, check=True) if ranks > 1 else run(*words, cwd=tmp_path, check=True)
        return tmp_path / "runs" / name, result.output
    return begin


def assert_same_model(left, right):
    a, b = newest(left), newest(right)
    assert a["iter_no"] == b["iter_no"]
    assert_same_tensors(dict(a["model"]), dict(b["model"]))
    assert_same_tensors(a["optimizer"], b["optimizer"])


@pytest.mark.mpi
@pytest.mark.parametrize("stages, rows", [(2, 2), pytest.param(4, 1, marks=pytest.mark.full)])
def test_one_micro_batch_has_the_unsplit_models_bits(stages, rows, train):
    """Epochs with a smaller last batch, evaluation, the best, clipping over all stages, gradients that add up."""
    how = dict(FOUR_PARTS, train__epochs=2, train__clip_norm=0.2, train__accumulate=2)
    whole, _ = train(rows, "whole", **how)
    split, said = train(rows * stages, "split", parallel__pipeline=stages, parallel__micro_batches=1, **how)
    assert f"stage {stages - 1} of {stages}: " in said
    if rows == 1:
        assert_same_run(whole, split)  # the whole file: names, order, the optimizer's numbers
    assert_same_model(whole, split)
    assert without_clocks(metrics(whole)) == without_clocks(metrics(split))
    best = [torch.load(folder / "checkpoints/best.pt", weights_only=True)["model"] for folder in (whole, split)]
    assert_same_tensors(dict(best[0]), dict(best[1]))


def test_micro_batches_have_the_bits_of_accumulated_batches(train):
    """And the measured bubble stands beside its formula."""
    how = dict(FOUR_PARTS, train__max_steps=18, train__eval_every=0)
    whole, _ = train(2, "whole", data__batch_size=4, train__accumulate=4, **how)
    split, said = train(4, "split", parallel__pipeline=2, parallel__micro_batches=4, **how)
    assert_same_model(whole, split)
    line = next(line for line in said.splitlines() if line.startswith("Pipeline: "))
    assert "2 stages, 4 micro-batches" in line and "ideal 20.0 %" in line
    assert 0 < float(line.partition("bubble ")[2].partition(" %")[0]) < 100


def test_micro_batches_that_do_not_divide_the_batch(train):
    """16 samples in 7 parts, 6 at an epoch's end, and a mean over weights: the same loss."""
    how = dict(task__class_weights="balanced", train__epochs=2)
    whole, _ = train(1, "whole", **how)
    split, _ = train(2, "split", parallel__pipeline=2, parallel__micro_batches=7, **how)
    for ours, theirs in zip(metrics(split), metrics(whole), strict=True):
        for key in {"loss", "train_loss", "eval_loss"} & set(theirs):
            assert ours[key] == pytest.approx(theirs[key], rel=1e-4), (ours, theirs)
    assert {"loss", "train_loss", "eval_loss"} <= {key for line in metrics(whole) for key in line}


def test_a_checkpoint_goes_on_at_any_cut(train):
    """Four stages, then two of two rows' samples in one, then plain: the last parameters of a run that was never cut."""
    how = dict(FOUR_PARTS, parallel__micro_batches=1, train__eval_every=0)
    never_cut, _ = train(1, "never", train__max_steps=30, **how)
    folder, _ = train(4, "four", parallel__pipeline=4, train__max_steps=10, **how)
    for name, stages, steps in (("two", 2, 20), ("plain", 1, 30)):
        folder, _ = train(stages, name, more=["--resume", checkpoints(folder)[-1]], parallel__pipeline=stages,
                          train__max_steps=steps, **how)
    assert_same_model(never_cut, folder)


def test_eval_takes_the_whole_model_whatever_parallel_says(lockstep, train, run, tmp_path):
    folder, _ = train(2, "split", parallel__pipeline=2, train__epochs=1)
    said = run(lockstep, "eval", folder / "config.yaml", "--checkpoint", folder, cwd=tmp_path, check=True).stdout
    assert f"accuracy   {metrics(folder)[-1]['accuracy']:.4f}" in said


@pytest.fixture
def endless(lockstep, mpiexec, mpi, start, tmp_path):
    """endless(name, ranks) -> pipelines of two stages that train until somebody ends them, and the ranks' pids."""
    def begin(name, world):
        with open(tmp_path / "err", "w") as errors:
            process = start(mpiexec, *mpi.quiet, "-n", world, lockstep, "train", write_config(tmp_path, PIMA),
                            *sets(run__name=name, parallel__pipeline=2, train__epochs=10000, train__eval_every=0),
                            cwd=tmp_path, env=PATIENT, stdout=subprocess.DEVNULL, stderr=errors)
        file = tmp_path / "runs" / name / "metrics.jsonl"
        wait_for(lambda: file.exists() and file.read_text().count("\n") > 3, what="the first steps")
        return process, ranks_of(process)
    return begin


def test_a_stage_that_is_killed_is_named_and_nobody_hangs(endless, tmp_path):
    process, ranks = endless("killed", 2)
    os.kill(ranks[1], signal.SIGKILL)
    assert process.wait(PATIENCE) not in (0, 75)  # launch.timeout is 10 minutes
    assert "rank 1 (" in (tmp_path / "err").read_text()


def test_a_loss_that_is_no_number_on_the_last_stage_ends_all(lockstep, mpirun, tmp_path):
    result = mpirun(2, lockstep, "train", write_config(tmp_path, PIMA), *sets(
        parallel__pipeline=2, optim__name="sgd", optim__lr=1e30, train__log_every=1), cwd=tmp_path, quiet=True)
    assert result.returncode == 1, result.output
    assert result.stderr.count("error: the loss is ") == 1 and "at step 2" in result.stderr, result.stderr


def test_a_model_with_too_few_parts_is_refused_by_all(lockstep, mpirun, tmp_path):
    result = mpirun(4, lockstep, "train", write_config(tmp_path, PIMA), *sets(parallel__pipeline=4, model__name="pima_net"),
                    cwd=tmp_path, quiet=True)
    assert result.returncode == 2, result.output
    assert result.stderr.count("the model has 3 parts with parameters: fc1, fc2, head") == 1, result.stderr
    assert not (tmp_path / "runs").exists() or not any((tmp_path / "runs").iterdir())


@pytest.mark.full
@pytest.mark.mpi
def test_stages_talk_over_mpi(train):
    how = dict(FOUR_PARTS, train__max_steps=12, parallel__micro_batches=1)
    whole, _ = train(1, "whole", **how)
    split, _ = train(4, "split", parallel__pipeline=4, launch__backend="mpi", **how)
    assert_same_model(whole, split)
