"""A run's folder that is unreadable, taken over, removed, or held by a job on another host."""

import hashlib
import os
import shutil
import signal
import subprocess
import time

import pytest

from conftest import SOURCE
from process_kit import PATIENCE, shared_library, wait_for
from test_signals import ENDLESS, lines_of
from train_kit import PIMA, checkpoints, sets, status, write_config

pytestmark = pytest.mark.about("run_folder")


@pytest.fixture
def train(lockstep, start, tmp_path):
    """train(words, env) -> a lone rank that trains in tmp_path."""
    config = write_config(tmp_path, PIMA)

    def begin(*words, env=None):
        return start(lockstep, "train", config, *words, cwd=tmp_path, env=env, stdout=subprocess.DEVNULL,
                     stderr=subprocess.PIPE, text=True)
    return begin


def contents(folder):
    """{file: digest}: where they differ, pytest would be a quarter of an hour about the difference of long files."""
    return {file.relative_to(folder): hashlib.sha256(file.read_bytes()).hexdigest() for file in folder.rglob("*") if file.is_file()}


def contents_but_events_of(job, folder):
    """A job that was stopped in the middle of a line may end it, in files that nobody else has."""
    return {name: digest for name, digest in contents(folder).items() if not name.name.endswith(f".{job.pid}")}


def trained(folder):
    """Has the run written lines and a checkpoint?"""
    return lambda: lines_of(folder) > 10 and checkpoints(folder)


def test_checkpoints_that_cannot_be_read_are_not_begun_over(lockstep, run, tmp_path):
    config, folder = write_config(tmp_path, PIMA), tmp_path / "runs/pima"
    run(lockstep, "train", config, *sets(train__max_steps=30), cwd=tmp_path, check=True)
    for file in checkpoints(folder):
        file.write_bytes(file.read_bytes()[:-100])
    before = contents(folder)
    for resume in ("auto", folder):
        told = tmp_path / "told"
        result = run(lockstep, "train", config, "--resume", resume, *sets(train__max_steps=40), cwd=tmp_path,
                     env={"LOCKSTEP_RUN_FILE": told})
        assert result.returncode == 2 and "can be read" in result.stderr, result.output
        assert all(file.name in result.stderr for file in checkpoints(folder)), result.stderr
        assert not told.exists()  # a job script does not take it for an attempt that stopped early
        assert contents(folder) == before
    assert [path.name for path in (tmp_path / "runs").iterdir()] == ["pima"]


@pytest.fixture(scope="session")
def other_host(tmp_path_factory):
    """LD_PRELOAD of a library that gives the host another name."""
    source = SOURCE / "tests/e2e/peers/other_host.c"
    return {"LD_PRELOAD": shared_library(tmp_path_factory.mktemp("preload"), "other_host.so", source)}


@pytest.mark.full
def test_a_living_job_is_left_alone_and_a_stopped_one_leaves(other_host, train, lockstep, run, tmp_path):
    folder, elsewhere = tmp_path / "runs/pima", other_host | {"HOST_NAME": "elsewhere"}
    first = train(*ENDLESS, env=other_host)
    wait_for(trained(folder))
    assert run(lockstep, "status", folder, env=other_host).returncode == 3
    # on this host lockstep looks for the process, on others at the age of the lock
    for env in (other_host, elsewhere):
        refused = run(lockstep, "train", tmp_path / "config.yaml", "--resume", folder, env=env, cwd=tmp_path)
        assert refused.returncode == 2 and "in use by another job" in refused.stderr, refused.output
    first.send_signal(signal.SIGSTOP)
    os.utime(folder / "lock", (time.time() - 100, time.time() - 100))
    # however many steps the first one has made, this one makes some more and is done
    second = train("--resume", folder, *sets(train__max_seconds=status(folder)["seconds"] + 2, train__epochs=1000000), env=elsewhere)
    assert second.wait(PATIENCE) == 0, second.stderr.read()
    before = contents_but_events_of(first, folder)
    first.send_signal(signal.SIGCONT)
    assert first.wait(PATIENCE) == 1
    assert "the run's folder, or its lock file, was removed" in first.stderr.read()  # the second one has left
    assert contents_but_events_of(first, folder) == before


def test_a_removed_folder_ends_the_run(train, tmp_path):
    folder = tmp_path / "runs/pima"
    job = train(*ENDLESS)
    wait_for(trained(folder))
    folder.rename(tmp_path / "elsewhere")
    shutil.rmtree(tmp_path / "elsewhere")
    assert job.wait(PATIENCE) == 1
    assert "was removed while it trained" in job.stderr.read()
    assert not folder.exists()
