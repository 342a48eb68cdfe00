"""Signals, deadlines, peers that die or hang: who leaves, when, with what status, and what it says."""

import os
import pathlib
import signal
import subprocess

import pytest

from conftest import OPEN_MPI, PATIENT, free_port, members
from process_kit import PATIENCE, has_signal, status_of, wait_for
from train_kit import PIMA, checkpoints, metrics, newest, sets, status, write_config

pytestmark = pytest.mark.about("loop", "comm/watch", "launch")

ENDLESS = sets(train__epochs=1000000)


def lines_of(folder):
    file = folder / "metrics.jsonl"
    return file.read_text().count("\n") if file.exists() else 0


def ranks_of(process):
    """The pids of the job's ranks, by rank."""
    found = {}
    for pid in members(process):
        try:
            words = pathlib.Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
            name = pathlib.Path(f"/proc/{pid}/comm").read_text().strip()
        except OSError:
            continue
        rank = [word.partition(b"=")[2] for word in words
                if word.startswith((b"OMPI_COMM_WORLD_RANK=", b"PMI_RANK=", b"RANK="))]
        if rank and name == "lockstep":
            found[int(rank[0])] = pid
    return found


@pytest.fixture
def job(lockstep, mpiexec, mpi, start, tmp_path):
    """job(words) -> a run that has taken its first steps."""
    config = write_config(tmp_path, PIMA)

    def begin(words=ENDLESS, steps=10, env=None, world=2):
        process = start(mpiexec, *mpi.quiet, "-n", world, lockstep, "train", config, *words, cwd=tmp_path, env=env,
                        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        wait_for(lambda: lines_of(tmp_path / "runs/pima") > steps)
        return process
    return begin


@pytest.mark.mpi
def test_a_signal_to_one_rank_stops_all_with_75(job, lockstep, run, tmp_path):
    process = job()
    os.kill(ranks_of(process)[1], signal.SIGTERM)
    assert process.wait(PATIENCE) == 75
    folder = tmp_path / "runs/pima"
    assert status(folder)["state"] == "stopped early" and "SIGTERM" in status(folder)["reason"]
    told = run(lockstep, "status", folder)
    assert told.returncode == 75 and told.stdout.startswith("stopped early")
    # without losing a step
    assert newest(folder)["iter_no"] == status(folder)["step"] >= metrics(folder)[-1]["step"]


def catches(pid, which):
    """Has this process a handler for the signal?"""
    return has_signal(status_of(pid), which, "SigCgt")


def test_a_warning_before_the_first_step_is_not_lost(lockstep, start, tmp_path):
    """Rank 0 still waits for rank 1 when it is told that its time is up."""
    config = write_config(tmp_path, PIMA)
    ranks, port = [], free_port()
    for rank in (0, 1):
        env = dict(RANK=rank, WORLD_SIZE=2, LOCAL_RANK=rank, LOCAL_WORLD_SIZE=2, MASTER_ADDR="127.0.0.1",
                   MASTER_PORT=port)
        ranks.append(start(lockstep, "train", config, *ENDLESS, cwd=tmp_path, env=env, stdout=subprocess.DEVNULL,
                           stderr=subprocess.PIPE, text=True))
        if rank == 0:
            wait_for(lambda: catches(ranks[0].pid, signal.SIGUSR1))
            ranks[0].send_signal(signal.SIGUSR1)
    assert [rank.wait(PATIENCE) for rank in ranks] == [75, 75]
    assert "SIGUSR1" in status(tmp_path / "runs/pima")["reason"]


def test_a_removed_folder_ends_the_run(job, tmp_path):
    process = job(world=1)
    (tmp_path / "runs/pima").rename(tmp_path / "elsewhere")
    assert process.wait(PATIENCE) == 1 and "was removed while it trained" in process.stderr.read()


def test_a_peer_that_dies_is_named_once(job, mpi, tmp_path):
    process = job(env=PATIENT, world=3)
    victim = ranks_of(process)[1]
    os.kill(victim, signal.SIGKILL)
    process.wait(PATIENCE)  # launch.timeout is 10 minutes
    error = process.stderr.read()
    assert "rank 1" in error and os.uname().nodename in error, error
    errors = [line for line in error.splitlines() if "error: " in line]
    if mpi is OPEN_MPI:  # hydra may end all ranks before one of them has seen anything
        assert len(errors) == 1, error
    assert len(errors) <= 1 and all(f"rank 1 (host {os.uname().nodename}, pid {victim}) has died" in line for line in errors), error
    told = status(tmp_path / "runs/pima")
    assert told["state"] == "failed" and "rank 1" in told["reason"], told
    assert checkpoints(tmp_path / "runs/pima")


@pytest.mark.mpi
def test_a_peer_that_hangs_is_named_after_the_timeout(job, tmp_path):
    process = job(ENDLESS + sets(launch__timeout="3s"))
    stopped = ranks_of(process)[1]
    os.kill(stopped, signal.SIGSTOP)
    try:
        wait_for(lambda: status(tmp_path / "runs/pima")["state"] == "failed")
    finally:
        os.kill(stopped, signal.SIGCONT)
    process.wait(PATIENCE)
    assert "rank 1" in status(tmp_path / "runs/pima")["reason"]
