"""Gradients in the shared memory of a node's ranks, over the mpi backend: lost and stopped ranks, and too little of it."""

import os
import re
import signal
import subprocess

import pytest
from conftest import PATIENT, run_process
from process_kit import PATIENCE
from test_comm import STEPS_FOR_EVER, ready_pids
from train_kit import PIMA, assert_same_run, sets, write_config

pytestmark = pytest.mark.about("comm/mpi", "comm/shm")

# 1.1 million numbers, which two ranks want 8.5 MB for
LARGE = sets(launch__backend="mpi", model__name="mlp", model__hidden="[1024,1024]", train__epochs=1)
SLOWER = "gradients are summed more slowly"


def test_a_rank_killed_amid_sums_is_named(start, mpiexec, peer):
    process = start(mpiexec, "-n", 3, peer, "mpi", 20_000, 20_000, STEPS_FOR_EVER, 0, env=PATIENT, stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE, text=True)
    pids = ready_pids(process, 3)
    assert len(pids) == 3, process.stderr.read()
    os.kill(pids[2], signal.SIGKILL)
    _, err = process.communicate(timeout=PATIENCE)
    assert process.returncode != 0
    assert re.search(rf"rank 2 \(host \S+, pid {pids[2]}\) has died", err), err


def in_small_memory(size, mpiexec, *words, **how):
    script = f'mount -t tmpfs -o size={size} tmpfs /dev/shm || exit 77; exec "$@"'
    done = run_process(["unshare", "--mount", "sh", "-c", script, "sh", mpiexec, "-n", 2, *words], **how)
    if done.returncode == 77 or "unshare" in done.stderr:
        pytest.skip(f"no file system can be mounted here: {done.stderr.strip()}")
    return done


@pytest.mark.parametrize("size", ["64k", "64m,huge=always"])
def test_with_any_room_sums_are_right_or_the_error_names_the_place(mpiexec, peer, size):
    done = in_small_memory(size, mpiexec, peer, "mpi", 20_000, 20_000, 50)
    if done.returncode == 0:
        assert "done 0" in done.stdout and "done 1" in done.stdout
    else:
        assert done.returncode == 1 and "/dev/shm" in done.stderr, done.stderr
        assert re.search(r"KiB of shared memory, and this node has none: rank \d: .*No space left", done.stderr), done.stderr
    assert size != "64m,huge=always" or done.returncode == 0 and SLOWER not in done.stderr, done.stderr


def test_without_room_training_says_so_and_has_the_same_bits(mpiexec, mpirun, lockstep, tmp_path):
    config = write_config(tmp_path, PIMA)
    small = in_small_memory("14m", mpiexec, lockstep, "train", config, *LARGE, cwd=tmp_path)
    assert small.returncode == 0, small.stderr
    assert SLOWER in small.stderr, small.stderr
    large = mpirun(2, lockstep, "train", config, *LARGE, cwd=tmp_path, check=True)
    assert SLOWER not in large.stderr, large.stderr
    assert_same_run(tmp_path / "runs/pima", tmp_path / "runs/pima-2")
