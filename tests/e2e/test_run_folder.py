"""A run's folder in the wrong hands: unreadable, taken over, removed, or held by somebody who is hard to see."""

import hashlib
import json
import os
import shutil
import signal
import subprocess

import pytest

from conftest import SOURCE
from process_kit import PATIENCE, shared_library, wait_for
from test_signals import ENDLESS, lines_of
from train_kit import PIMA, checkpoints, metrics, sets, status, write_config

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
    before.pop(next(name for name in before if name.name == "lock"))
    for resume in ("auto", folder):
        told = tmp_path / "told"
        result = run(lockstep, "train", config, "--resume", resume, *sets(train__max_steps=40), cwd=tmp_path,
                     env={"LOCKSTEP_RUN_FILE": told})
        assert result.returncode == 2 and "can be read" in result.stderr, result.output
        assert all(file.name in result.stderr for file in checkpoints(folder)), result.stderr
        assert not told.exists()  # a job script does not take it for an attempt that stopped early
        after = contents(folder)
        after.pop(next(name for name in after if name.name == "lock"))
        assert after == before
    assert [path.name for path in (tmp_path / "runs").iterdir()] == ["pima"]


@pytest.fixture(scope="session")
def no_flock(tmp_path_factory):
    """LD_PRELOAD of a library that takes flock away."""
    source = SOURCE / "tests/e2e/peers/no_flock.c"
    return {"LD_PRELOAD": shared_library(tmp_path_factory.mktemp("preload"), "no_flock.so", source)}


def silent_for(folder, seconds):
    """Makes it look as if nobody had written there for so long."""
    for name, key in (("status.json", "updated"), ("lock", "since")):
        told = json.loads((folder / name).read_text())
        told[key] -= seconds
        (folder / name).write_text(json.dumps(told))


@pytest.mark.full
def test_without_flock_a_living_job_is_left_alone_and_a_stopped_one_leaves(no_flock, train, lockstep, run, tmp_path):
    folder = tmp_path / "runs/pima"
    first = train(*ENDLESS, env=no_flock)
    wait_for(trained(folder))
    assert run(lockstep, "status", folder, env=no_flock).returncode == 3
    # on this host its process is looked at, elsewhere its heart is heard
    for env in (no_flock, no_flock | {"HOST_NAME": "elsewhere"}):
        refused = run(lockstep, "train", tmp_path / "config.yaml", "--resume", folder, env=env, cwd=tmp_path)
        assert refused.returncode == 2 and "in use by another job" in refused.stderr, refused.output
    first.send_signal(signal.SIGSTOP)
    silent_for(folder, 100)
    # however many steps the first one has made, this one makes some more and is done
    second = train("--resume", folder, *sets(train__max_seconds=status(folder)["seconds"] + 2, train__epochs=1000000),
                   env=no_flock | {"HOST_NAME": "elsewhere"})
    assert second.wait(PATIENCE) == 0, second.stderr.read()
    before = contents_but_events_of(first, folder)
    first.send_signal(signal.SIGCONT)
    assert first.wait(PATIENCE) == 1
    assert "another job has taken the run over" in first.stderr.read()
    assert contents_but_events_of(first, folder) == before


def test_a_removed_folder_is_noticed_and_what_can_be_is_saved_beside_it(train, lockstep, run, tmp_path):
    folder, beside, told = tmp_path / "runs/pima", tmp_path / "runs/pima-2", tmp_path / "told"
    job = train(*ENDLESS, env={"LOCKSTEP_RUN_FILE": told})
    wait_for(trained(folder))
    steps = len([line for line in metrics(folder) if line["event"] == "step"])
    folder.rename(tmp_path / "elsewhere")
    shutil.rmtree(tmp_path / "elsewhere")
    wait_for(trained(beside))
    job.send_signal(signal.SIGUSR1)
    assert job.wait(PATIENCE) == 1
    error = job.stderr.read()
    assert "was removed" in error and "pima-2" in error, error
    assert not folder.exists() and told.read_text().strip() == str(beside)
    saved = [line for line in metrics(beside) if line["event"] == "step"]
    assert len(saved) > steps and saved[0]["step"] == 3  # from its first line on
    assert status(beside)["state"] == "failed" and "removed" in status(beside)["reason"]
    assert checkpoints(beside)[-1].name == f"step-{status(beside)['step']:08}.pt"
    assert run(lockstep, "status", beside).returncode == 1
    assert run(lockstep, "inspect", beside, check=True).stdout.startswith(str(checkpoints(beside)[-1]))


def test_what_is_no_file_is_refused_and_never_waited_for(lockstep, run, tmp_path):
    config, folder = write_config(tmp_path, PIMA), tmp_path / "runs/pima"
    run(lockstep, "train", config, *sets(train__max_steps=30), cwd=tmp_path, check=True)
    for name in ("metrics.jsonl", "checkpoints/best.pt"):
        odd, kept = folder / name, tmp_path / name.replace("/", " ")
        if odd.exists():
            odd.replace(kept)
        os.mkfifo(odd)
        before = contents(folder)
        # by its path before the data are looked for
        words = sets(train__max_steps=40, data__root=tmp_path / "no-data")
        result = run(lockstep, "train", config, "--resume", folder, *words, cwd=tmp_path)
        assert result.returncode == 2 and str(odd) in result.stderr and "is a pipe" in result.stderr, (name, result.output)
        assert contents(folder) == before, name
        result = run(lockstep, "train", config, "--resume", "auto", *sets(train__max_steps=40), cwd=tmp_path)
        assert result.returncode == 2 and "is a pipe" in result.stderr, (name, result.output)
        odd.unlink()
        if kept.exists():
            kept.replace(odd)
