"""Stops and checkpoints at awkward moments, with steps, loads, evaluations and writes that take long; and on request."""

import os
import signal
import subprocess
import time

import pytest

from conftest import OPEN_MPI, run_process
from process_kit import PATIENCE, ends_of, shared_library, wait_for
from test_signals import catches, ranks_of
from train_kit import PIMA, assert_same_run, checkpoints, metrics, newest, sets, status, write_config

pytestmark = pytest.mark.about("loop", "checkpoint")

# 3 steps an epoch at world 2, then 11 batches to evaluate on rank 0 and 10 on rank 1
SLOW = """
run: {{name: slow}}
task: {{name: {task}}}
model: {{name: mlp, hidden: [8]}}
data: {{batch_size: 40, workers: 0}}
train: {{epochs: 2, log_every: 1}}
"""
FOUR = sets(data__batch_size=4)  # 30 steps, 11 and 10 batches


@pytest.fixture(scope="session")
def slow(build_dir, tmp_path_factory):
    """The config of a run that is as slow as the environment asks for."""
    task = next(build_dir.glob("**/slow_task.so"))
    return write_config(tmp_path_factory.mktemp("slow"), SLOW.format(task=task))


@pytest.fixture
def train(lockstep, mpiexec, mpi, start, slow, tmp_path):
    """train(world, words, env) -> a process that trains in tmp_path."""
    def begin(world=1, words=(), env=None, config=slow):
        ranks = [mpiexec, *mpi.quiet, "-n", world] if world > 1 else []
        return start(*ranks, lockstep, "train", config, *words, cwd=tmp_path, env=env, stdout=subprocess.DEVNULL,
                     stderr=subprocess.PIPE, text=True)
    return begin


@pytest.fixture(scope="session")
def straight(lockstep, mpiexec, slow, once):
    """The run that nobody stopped, made once."""
    return once("straight", lambda folder: run_process([mpiexec, "-n", 2, lockstep, "train", slow, *FOUR], cwd=folder, check=True)) / "runs/slow"


def steps_of(run):
    return sum(line["event"] == "step" for line in metrics(run)) if (run / "metrics.jsonl").exists() else 0


def events(run, kind):
    return [line for line in metrics(run) if line["event"] == kind]


@pytest.mark.mpi
def test_a_stop_inside_an_evaluation_loses_nothing(train, lockstep, mpirun, slow, straight, tmp_path):
    """An evaluation of 11 slow batches: the stop is heard inside it, and the evaluation is made again."""
    folder = tmp_path / "runs/slow"
    process = train(2, FOUR, {"SLOW_EVAL": "0.5"})
    wait_for(lambda: steps_of(folder) == 30)
    os.kill(ranks_of(process)[1], signal.SIGINT)
    assert process.wait(PATIENCE) == 75, process.stderr.read()
    assert status(folder)["state"] == "stopped early"
    assert newest(folder)["iter_no"] == 30 and not events(folder, "epoch"), "it was not waited for the evaluation's end"
    mpirun(2, lockstep, "train", slow, *FOUR, "--resume", "auto", cwd=tmp_path, check=True)
    assert len(events(folder, "epoch")) == 2
    assert_same_run(folder, straight)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGUSR1])
@pytest.mark.mpi
def test_a_signal_to_mpirun_stops_the_run_which_continues_exactly(number, train, mpi, lockstep, mpirun, slow, straight, tmp_path):
    folder = tmp_path / "runs/slow"
    process = train(2, FOUR, {"SLOW_STEP": "0.1"})
    wait_for(lambda: steps_of(folder) > 3)
    process.send_signal(number)
    left = process.wait(PATIENCE)
    assert number == signal.SIGINT or left == 75
    said = process.stderr.read()
    assert said.count("stopping with a checkpoint; --resume auto resumes from it") == 1, said
    sent = "SIGUSR1" if number == signal.SIGUSR1 else "SIGTERM from mpi" if mpi is OPEN_MPI else "SIGINT from hydra"  # one translates it, the other passes it on
    assert status(folder)["state"] == "stopped early" and sent in status(folder)["reason"], status(folder)
    mpirun(2, lockstep, "train", slow, *FOUR, "--resume", "auto", cwd=tmp_path, check=True)
    assert_same_run(folder, straight)


def test_a_stop_while_loading(train, lockstep, run, slow, tmp_path):
    """Heard before the first step: what there is to save is the beginning, from which the same run comes."""
    process = train(1, env={"SLOW_LOAD": "2"})
    wait_for(lambda: catches(process.pid, signal.SIGTERM))
    process.terminate()
    assert process.wait(PATIENCE) == 75
    assert newest(tmp_path / "runs/slow")["iter_no"] == 0
    run(lockstep, "train", slow, "--resume", "auto", cwd=tmp_path, check=True)
    run(lockstep, "train", slow, cwd=tmp_path, check=True)
    assert_same_run(tmp_path / "runs/slow", tmp_path / "runs/slow-2")


@pytest.mark.parametrize("backend, lost", [("shared", 0), ("gloo", 2)])
def test_a_rank_that_dies_while_data_is_loaded_ends_the_others(start, lockstep, slow, free_port, tmp_path, backend, lost):
    """Rank 0 loads for the others, which wait for longer than `launch.timeout` without an error until a rank dies."""
    words = sets(launch__backend=backend, launch__timeout="1s")
    port = free_port()
    ranks = [start(lockstep, "train", slow, *words, cwd=tmp_path, stderr=subprocess.PIPE, text=True,
                   env=dict(WORLD_SIZE=3, RANK=rank, LOCAL_RANK=rank, MASTER_ADDR="127.0.0.1", MASTER_PORT=port,
                            SLOW_LOAD=600, LOADING=tmp_path / "loading"))
             for rank in range(3)]
    wait_for((tmp_path / "loading").exists)
    time.sleep(2)  # twice as long as a collective may take
    assert [rank.poll() for rank in ranks] == [None] * 3
    ranks[lost].kill()
    begin = time.monotonic()
    ends = ends_of(ranks)
    assert time.monotonic() - begin < 20
    left = [end for rank, end in enumerate(ends) if rank != lost]
    assert all(status == 1 for status, _, _ in left), ends
    assert f"rank {lost}" in "".join(err for _, _, err in left), ends


@pytest.mark.mpi
def test_ranks_that_fail_together_leave_with_the_status_of_the_first(lockstep, mpirun, mpi, slow, tmp_path):
    """Rank 1 meets bad data, and rank 0 the end of rank 1. Rank 0's process ends first, so that mpirun has its status."""
    script = (f'[ ${mpi.rank} = 0 ] || export BAD_BATCH=1; "$0" "$@"; status=$?; [ ${mpi.rank} = 1 ] || touch left; '
              "until [ -e left ]; do sleep 0.05; done; exit $status")
    result = mpirun(2, "sh", "-c", script, lockstep, "train", slow, cwd=tmp_path, quiet=True)
    assert result.returncode == 2 and result.stderr.count("error: ") == result.stderr.count("error: a bad batch") == 1, result.output


SLOW_SYNC = r"""
#define _GNU_SOURCE
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>
int fsync(int fd) {
  char link[64], path[4096] = "";
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  if (readlink(link, path, sizeof path - 1) > 0 && strstr(path, "step-")) sleep(8);
  return syscall(SYS_fsync, fd);
}
"""


@pytest.mark.full
@pytest.mark.mpi
def test_a_sigterm_inside_the_last_write_lets_it_end(train, tmp_path):
    """The write takes longer than a rank looks for agreement: there is nothing left to agree on."""
    words = sets(train__epochs=1, train__eval_every=0)
    process = train(2, words, {"LD_PRELOAD": shared_library(tmp_path, "sync.so", SLOW_SYNC)})
    partial = tmp_path / "runs/slow/checkpoints"
    wait_for(lambda: partial.is_dir() and any(partial.iterdir()))
    for rank in ranks_of(process).values():
        os.kill(rank, signal.SIGTERM)
    assert process.wait(PATIENCE) == 0, process.stderr.read()
    assert status(tmp_path / "runs/slow")["state"] == "done"
    assert newest(tmp_path / "runs/slow")["iter_no"] == 3


@pytest.mark.mpi
def test_a_checkpoint_on_request_then_a_stop_on_request(train, lockstep, run, tmp_path):
    folder = tmp_path / "runs/pima"
    words = sets(train__epochs=1000000, checkpoint__every_epochs=0, train__eval_every=0)
    process = train(2, words, config=write_config(tmp_path, PIMA))
    wait_for(lambda: steps_of(folder) > 3)
    told = run(lockstep, "checkpoint", folder)
    assert told.returncode == 0 and told.stdout.startswith("running: checkpoint "), told.output
    one, = checkpoints(folder)
    assert str(one.name) in told.stdout and process.poll() is None
    assert run(lockstep, "checkpoint", folder, "--no-wait").returncode == 0
    wait_for(lambda: len(checkpoints(folder)) == 2)
    told = run(lockstep, "stop", folder)
    assert told.returncode == 0 and told.stdout.startswith("stopped on request"), told.output
    assert process.wait(PATIENCE) == 75
    asked = run(lockstep, "status", folder)
    assert asked.returncode == 4 and "lockstep stop" in asked.stdout
    assert newest(folder)["iter_no"] == status(folder)["step"]
    assert not list(folder.glob("*.request"))
    for command in ("stop", "checkpoint"):  # nobody is there any more
        late = run(lockstep, command, folder)
        assert late.returncode == 2 and "ended: stopped on request" in late.stderr, late.output
    assert not list(folder.glob("*.request"))
