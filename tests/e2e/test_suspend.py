"""A job that a scheduler suspends: every process stopped for longer than the ranks wait for each other, and let go on."""

import os
import signal
import time

import pytest
from cluster_kit import wait_for
from process_kit import PATIENCE
from test_signals import lines_of, ranks_of
from train_kit import PIMA, assert_same_run, sets, write_config

pytestmark = pytest.mark.about("loop", "comm/watch")

TIMEOUT, STOPPED = 5, 7


@pytest.mark.mpi
@pytest.mark.parametrize("backend", ["shared", *(pytest.param(backend, marks=pytest.mark.full) for backend in ("gloo", "mpi"))])
def test_a_job_suspended_for_longer_than_its_timeout_goes_on_to_the_same_bits(backend, start, mpiexec, mpi, mpirun, lockstep, tmp_path):
    config = write_config(tmp_path, PIMA)
    words = sets(train__epochs=40, launch__timeout=f"{TIMEOUT}s", launch__backend=backend)
    process = start(mpiexec, *mpi.quiet, "-n", "2", lockstep, "train", config, *words, cwd=tmp_path,
                    stdout=open(tmp_path / "log", "w"), stderr=open(tmp_path / "err", "w"))
    wait_for(lambda: lines_of(tmp_path / "runs/pima") > 5)
    pids = list(ranks_of(process).values())
    assert len(pids) >= 2
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    assert process.poll() is None, "it was to be stopped amid its work"
    time.sleep(STOPPED)
    for pid in pids:
        os.kill(pid, signal.SIGCONT)
    assert process.wait(PATIENCE) == 0, (tmp_path / "err").read_text()
    mpirun(2, lockstep, "train", config, *words, cwd=tmp_path, check=True)
    assert_same_run(tmp_path / "runs/pima", tmp_path / "runs/pima-2")
