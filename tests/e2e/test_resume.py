"""A run that was killed anywhere and resumed ends with the same bits as one that never was."""

import os
import random
import shutil
import signal
import time

import pytest

from conftest import members, run_process
from process_kit import PATIENCE
from train_kit import (MNIST, PIMA, assert_same_run, assert_same_tensors, checkpoints, newest, sets, status,
                       write_config, write_small_mnist)

pytestmark = pytest.mark.about("loop", "checkpoint")

torch = pytest.importorskip("torch")

EPOCHS = 20
LONG = sets(train__epochs=EPOCHS, checkpoint__every_steps=7)


def end_ranks(process, how=signal.SIGKILL):
    """Kills the ranks and their mpirun at once, without a word to anybody."""
    for pid in members(process):
        try:
            os.kill(pid, how)
        except ProcessLookupError:
            pass
    process.wait(PATIENCE)


@pytest.fixture(scope="session")
def unbroken(once, lockstep, mpiexec):
    def make(folder):
        run_process([mpiexec, "-n", 2, lockstep, "train", write_config(folder, PIMA), *LONG], cwd=folder, check=True)
    return once("unbroken", make) / "runs/pima"


@pytest.fixture
def stopped_inside_an_epoch(once, lockstep, mpiexec, tmp_path):
    """The config and the folder of a run that ended at step 50 of many, with checkpoints 35, 42 (or 49) and 50."""
    def make(folder):
        run_process([mpiexec, "-n", 2, lockstep, "train", write_config(folder, PIMA), *LONG, *sets(train__max_steps=50)],
                    cwd=folder, check=True)
    shutil.copytree(once("stopped_inside_an_epoch", make), tmp_path, dirs_exist_ok=True)
    return tmp_path / "config.yaml", tmp_path / "runs/pima"


@pytest.fixture(scope="session")
def small_mnist(once):
    return once("mnist_of_512", lambda folder: write_small_mnist(folder, train=512, test=99))


def finished(run):
    return (run / "status.json").exists() and status(run)["state"] == "done"


@pytest.mark.mpi
def test_killed_at_random_moments(unbroken, lockstep, mpiexec, start, tmp_path):
    chance, folder = random.Random(1), tmp_path / "runs/pima"
    command = [mpiexec, "-n", 2, lockstep, "train", write_config(tmp_path, PIMA), *LONG, "--resume", "auto"]
    for _ in range(4):
        if not finished(folder):  # it may be quicker than we kill
            job = start(*command, cwd=tmp_path, stdout=-3, stderr=-3)
            time.sleep(chance.uniform(0.5, 1.6))
            end_ranks(job)
    if not finished(folder):
        run_process(command, cwd=tmp_path, check=True)
    assert [folder.name for folder in (tmp_path / "runs").iterdir()] == ["pima"]
    assert_same_run(unbroken, folder)


@pytest.mark.mpi
def test_a_stop_inside_an_epoch_is_exact(unbroken, stopped_inside_an_epoch, lockstep, mpirun, tmp_path):
    config, folder = stopped_inside_an_epoch
    assert newest(folder)["iter_no"] == 50
    mpirun(2, lockstep, "train", config, *LONG, "--resume", folder, cwd=tmp_path, check=True)
    assert_same_run(unbroken, folder)


@pytest.mark.mpi
@pytest.mark.parametrize("stop, hook", [(1, "none"), pytest.param(4, "powersgd", marks=pytest.mark.full)])
def test_resume_beyond_two_ranks_is_exact(stop, hook, small_mnist, lockstep, mpiexec, mpirun, once, tmp_path):
    """gloo's order of summation depends on a gradient's place in its bucket, and DDP finds its buckets in the first
    step: the checkpoint has to bring them. What PowerSGD keeps from step to step, too."""
    words = sets(data__batch_size=16, data__root=small_mnist, ddp__comm_hook=hook)
    if hook == "powersgd":
        words += sets(ddp__options__start_powerSGD_iter=2)

    def unbroken_at_three(folder):
        run_process([mpiexec, "-n", 3, lockstep, "train", write_config(folder, MNIST), *words, *sets(train__max_steps=8)],
                    cwd=folder, check=True)
    whole = once(f"unbroken_at_three_{hook}", unbroken_at_three) / "runs/mnist"
    config = write_config(tmp_path, MNIST)
    for steps in (stop, 8):
        mpirun(3, lockstep, "train", config, *words, *sets(train__max_steps=steps), "--resume", "auto", cwd=tmp_path, check=True)
    assert [folder.name for folder in (tmp_path / "runs").iterdir()] == ["mnist"] and newest(whole)["iter_no"] == 8
    assert_same_run(whole, tmp_path / "runs/mnist")


POWERSGD = sets(ddp__comm_hook="powersgd", ddp__options__start_powerSGD_iter=2, model__name="mlp", model__hidden="[700,700]",
                data__batch_size=16)


@pytest.mark.mpi
@pytest.mark.parametrize("ranks, before, after, said", [
    (2, {"ddp__bucket_cap_mb": 0.005}, {"ddp__bucket_cap_mb": 0.02}, "the saved state does not match the current gradient buckets"),
    pytest.param(4, {"parallel__pipeline": 2}, {"parallel__pipeline": 1}, "the model is split among the ranks in another way",
                 marks=pytest.mark.full)])
def test_powersgd_that_finds_other_buckets_begins_afresh_and_says_so(ranks, before, after, said, lockstep, mpirun, tmp_path):
    config = write_config(tmp_path, PIMA)
    words = [*POWERSGD, *sets(model__hidden="[64,64]", run__dir=tmp_path / "runs")]
    mpirun(ranks, lockstep, "train", config, *words, *sets(**before, train__max_steps=4), cwd=tmp_path, check=True)
    again = mpirun(ranks, lockstep, "train", config, *words, *sets(**after, train__max_steps=8), "--resume", tmp_path / "runs/pima",
                   cwd=tmp_path, check=True)
    assert said in again.stderr, again.output


def test_a_checkpoint_of_another_libtorch_goes_on_and_the_log_says_so(stopped_inside_an_epoch, lockstep, mpirun, tmp_path):
    config, run = stopped_inside_an_epoch
    path = checkpoints(run)[-1]
    content = newest(run)
    own, content["lockstep"]["libtorch"] = content["lockstep"]["libtorch"], "2.5.1"
    torch.save(content, path)
    result = mpirun(2, lockstep, "train", config, "--resume", run, *sets(train__max_steps=60), cwd=tmp_path, check=True)
    said = f"the checkpoint was written with libtorch 2.5.1, but this run uses {own}. Results may differ from now on"
    assert result.output.count(said) == 1 and newest(run)["iter_no"] == 60
    assert newest(run)["lockstep"]["libtorch"] == own


def test_a_checkpoint_starts_a_new_folder(stopped_inside_an_epoch, lockstep, mpirun, tmp_path):
    config, folder = stopped_inside_an_epoch
    before = sorted((file, file.stat().st_mtime_ns) for file in folder.rglob("*"))
    mpirun(2, lockstep, "train", config, *sets(train__max_steps=55), "--resume", checkpoints(folder)[-1], cwd=tmp_path, check=True)
    assert sorted((file, file.stat().st_mtime_ns) for file in folder.rglob("*")) == before
    assert newest(tmp_path / "runs/pima-2")["iter_no"] == 55


def test_what_is_not_there_is_refused_before_a_long_load(lockstep, mpirun, tmp_path):
    """The data are not there either, and are not what is complained about."""
    config = write_config(tmp_path, PIMA)
    missing = sets(data__root=tmp_path / "no-data")
    for words, said in ((["train", config, "--resume", "nowhere"], "no such file or folder"),
                        (["eval", config, "--checkpoint", "nowhere"], "no such file or folder")):
        result = mpirun(2, lockstep, *words, *missing, cwd=tmp_path, quiet=True)
        assert result.returncode == 2, result.stderr
        assert result.stderr.count("error:") == 1 and said in result.stderr, result.stderr
        assert "data folder" not in result.stderr and not (tmp_path / "runs").exists()


def test_pythons_checkpoint_goes_on(lockstep, run, tmp_path):
    """Saved by torch.save from a DDP model, with its optimizer, as the seed's save_checkpoint does."""
    config = write_config(tmp_path, PIMA)
    run(lockstep, "train", config, *sets(train__max_steps=6), cwd=tmp_path, check=True)
    state = newest(tmp_path / "runs/pima")
    torch.save({"iter_no": state["iter_no"], "optimizer": state["optimizer"],
                "model": {f"module.{name}": tensor for name, tensor in state["model"].items()}}, tmp_path / "python.pt")
    run(lockstep, "train", config, *sets(train__max_steps=9), "--resume", tmp_path / "python.pt", cwd=tmp_path, check=True)
    run(lockstep, "train", config, *sets(train__max_steps=9), cwd=tmp_path, check=True)
    there, unbroken_here = newest(tmp_path / "runs/pima-2"), newest(tmp_path / "runs/pima-3")
    assert there["iter_no"] == 9
    assert_same_tensors(there["model"], unbroken_here["model"])
