"""train.as_world: the bits of Python's DDP at N ranks on any number of processes."""

import json
import os
import pathlib
import re
import signal
import subprocess

import pytest

from conftest import left_behind
from process_kit import PATIENCE, wait_for
from train_kit import (MNIST, PIMA, assert_same_run, assert_same_tensors, checkpoints, newest, python_ranks, sets, status,
                       write_config, write_small_mnist)

pytestmark = pytest.mark.about("setup", "launch/process", "loop")

torch = pytest.importorskip("torch")

# what Python's peer trains, and the same of lockstep
VARIANTS = {
    "pima": (dict(task="pima", batch=16, epochs=2, optim="adam", lr=0.001), PIMA, sets(train__epochs=2, train__eval_every=0)),
    "cnn": (dict(batch=16, max_steps=4, accumulate=2, clip=0.5), MNIST,
            sets(train__max_steps=4, data__batch_size=16, train__accumulate=2, train__clip_norm=0.5)),
}


@pytest.fixture(scope="module")
def mnist_root(tmp_path_factory):
    return write_small_mnist(tmp_path_factory.mktemp("mnist"), train=400, test=64)


@pytest.fixture(scope="module")
def peers(python, source_dir, mnist_root, tmp_path_factory):
    """peers(world) -> what Python's DDP at that world made of each variant."""
    made = {}

    def train(world):
        if world not in made:
            out = tmp_path_factory.mktemp(f"python-{world}")
            (out / "variants.json").write_text(json.dumps({name: row[0] for name, row in VARIANTS.items()}))
            python_ranks(python, world, out, source_dir / "tests/e2e/peers/ddp_train.py", "--mnist", mnist_root,
                         "--pima", source_dir / "data/pima/pima-indians-diabetes.csv", "--variants", out / "variants.json", "--out", out)
            made[world] = {name: torch.load(out / f"{name}.pt", weights_only=True) for name in VARIANTS}
        return made[world]
    return train


@pytest.fixture
def train(lockstep, run, mpirun, tmp_path):
    """train(processes, config text, words, name) -> the run's folder, trained by so many processes."""
    def begin(processes, text, words, name="job", **how):
        folder = tmp_path / name
        folder.mkdir(exist_ok=True)
        args = (lockstep, "train", write_config(folder, text), *words)
        begin.said = run(*args, cwd=folder, check=True, **how) if processes == 1 else \
            mpirun(processes, *args, cwd=folder, check=True, **how)
        return next((folder / "runs").iterdir())
    return begin


@pytest.mark.mpi
@pytest.mark.parametrize("processes, world", [(2, 3), pytest.param(3, 8, marks=pytest.mark.full)])
def test_the_parameters_are_those_of_pythons_ddp_at_that_world(processes, world, peers, train, mnist_root):
    for name, (_, text, words) in VARIANTS.items():
        root = sets(data__root=mnist_root) if text is MNIST else []
        mine = newest(train(processes, text, words + root + sets(train__as_world=world), name))
        peer = peers(world)[name]
        assert mine["iter_no"] == peer["step"] and mine["lockstep"]["world"] == world
        assert_same_tensors(dict(mine["model"]), dict(peer["model"]))
        assert_same_tensors(mine["optimizer"]["state"], peer["optimizer"]["state"])


BATCHES = sets(data__batch_size=8)
UNUSED = pathlib.Path(__file__).resolve().parents[2] / "configs/pima_unused.yaml"
MODES = {
    "sharded, clipped, one_cycle": (PIMA, BATCHES + sets(
        train__epochs=1, optim__name="adamw", optim__sharded=True, train__clip_norm=0.5, schedule__name="one_cycle",
        schedule__max_lr=0.05, train__accumulate=2)),
    "a branch without gradients": (UNUSED.read_text(), BATCHES + sets(train__epochs=1, data__root=UNUSED.parents[1] / "data/pima")),
}
CNN = sets(data__batch_size=16, train__max_steps=4)
SLOW_MODES = {
    "powersgd": (MNIST, CNN + sets(ddp__comm_hook="powersgd")),
    "shared layers": (MNIST, CNN + sets(model__name="mlp", model__hidden="[32]", parallel__tensor=2)),
    "stages": (MNIST, CNN + sets(parallel__pipeline=2)),
}


@pytest.mark.mpi
@pytest.mark.parametrize("name", [
    pytest.param(name, marks=() if name.startswith("sharded") else pytest.mark.full) for name in (*MODES, *SLOW_MODES)])
def test_every_mode_has_the_bits_of_a_rank_a_process(name, train, mpirun, lockstep, mnist_root, tmp_path):
    text, words = {**MODES, **SLOW_MODES}[name]
    words = words + sets(train__threads=1) + (sets(data__root=mnist_root) if text is MNIST else [])
    folder = tmp_path / "plain"
    folder.mkdir()
    mpirun(4, lockstep, "train", write_config(folder, text), *words, cwd=folder, check=True)
    for processes in (1, 3):
        carried = train(processes, text, words + sets(train__as_world=4), f"on-{processes}")
        assert_same_run(next((folder / "runs").iterdir()), carried)


@pytest.mark.mpi
def test_a_run_goes_on_with_fewer_and_with_more_processes(train, peers):
    """Stopped at 4 processes, on at 1, then at 2: as one that was never stopped, and as Python's."""
    _, text, words = VARIANTS["pima"]
    more = words + sets(train__as_world=3)
    whole = train(1, text, more, "whole")
    train(4, text, more + sets(train__max_steps=5), "parts")  # the fourth carries none
    train(1, text, more + sets(train__max_steps=9) + ["--resume", "runs/pima"], "parts")
    parts = train(2, text, more + ["--resume", "auto"], "parts")
    assert "bits" not in train.said.stderr and status(parts)["attempt"] == 3
    assert_same_run(whole, parts)
    assert_same_tensors(dict(newest(parts)["model"]), dict(peers(3)["pima"]["model"]))


def carried(process):
    """The pids of the ranks that a process carries, by rank."""
    found = {}
    for folder in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            words = dict(word.split(b"=", 1) for word in (folder / "environ").read_bytes().split(b"\0") if b"=" in word)
            if (folder / "comm").read_text().strip() == "lockstep" and int(words[b"LOCKSTEP_CARRIER"]) == process.pid:
                found[int(words[b"LOCKSTEP_RANK"])] = int(folder.name)
        except (OSError, KeyError):
            continue
    return found


@pytest.fixture
def endless(lockstep, start, tmp_path):
    """An endless run of three ranks on one process that has taken its first steps."""
    config = write_config(tmp_path, PIMA)
    process = start(lockstep, "train", config, *sets(train__as_world=3, train__epochs=1000000), cwd=tmp_path,
                    stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    file = tmp_path / "runs/pima/metrics.jsonl"
    wait_for(lambda: file.exists() and file.read_text().count("\n") > 10)
    return process


@pytest.mark.parametrize("rank", [None, 2])
def test_a_signal_to_the_process_or_to_a_rank_stops_all_with_a_checkpoint(rank, endless, tmp_path):
    os.kill(endless.pid if rank is None else carried(endless)[rank], signal.SIGTERM)
    assert endless.wait(PATIENCE) == 75
    assert status(tmp_path / "runs/pima")["state"] == "stopped early" and checkpoints(tmp_path / "runs/pima")
    assert not left_behind(endless)


def test_a_killed_rank_is_named_and_the_rest_leave(endless, tmp_path):
    pid = carried(endless)[1]
    os.kill(pid, signal.SIGKILL)
    said = endless.communicate(timeout=PATIENCE)[1]
    assert endless.returncode == 1 and status(tmp_path / "runs/pima")["state"] == "failed"
    assert re.search(rf"rank 1 \(process {pid} on \S+\) was killed by SIGKILL", said), said
    assert not left_behind(endless)


def test_ranks_end_with_the_process_that_carries_them_and_the_run_knows_what_that_cost(endless, lockstep, run, tmp_path):
    endless.kill()
    endless.wait(PATIENCE)
    assert not left_behind(endless)
    folder = tmp_path / "runs/pima"
    reached = status(folder)["step"]
    run(lockstep, "train", tmp_path / "config.yaml", *sets(train__as_world=3, train__epochs=1000000, train__max_steps=reached + 50),
        "--resume", folder, cwd=tmp_path, check=True)
    now, (first, second) = status(folder), json.loads((folder / "report.json").read_text())["attempts"]
    again = max(0, reached - second["from_step"])  # the checkpoint may be newer than the status
    assert now["attempt"] == 2 and now["lost_steps"] == again and now["lost_seconds"] > 0
    assert first["step"] == reached and first["ended"] <= second["began"]
    assert second["lost_steps"] == again and second["lost_seconds"] == pytest.approx(now["lost_seconds"], abs=5)
    said = run(lockstep, "status", folder, check=True).stdout
    assert f"between attempts, {again} step{'' if again == 1 else 's'} repeated)" in said
    run(lockstep, "report", folder, "--out", tmp_path / "report.html", check=True)
    assert "lost before" in (tmp_path / "report.html").read_text()


def test_what_cannot_be_kept_is_refused_once_and_by_name(lockstep, run, mpirun, mpi, tmp_path):
    config = write_config(tmp_path, PIMA)
    unlike = f"exec {lockstep} train {config} --set train.as_world=$((3 + {mpi.rank}))"
    result = mpirun(2, "sh", "-c", unlike, cwd=tmp_path, quiet=True)
    assert result.returncode == 2 and "train.as_world is 3 for process 0 and 4 for process 1" in result.stderr, result.output
    result = run(lockstep, "train", config, *sets(train__as_world=3, launch__backend="mpi"), cwd=tmp_path)
    assert result.returncode == 2 and result.stderr.count("error:") == 1 and "launch.backend" in result.stderr
    result = run(lockstep, "train", config, *sets(train__as_world=3), "--ranks", 2, cwd=tmp_path)
    assert result.returncode == 2 and "train.as_world: 3 cannot be combined with --ranks 2" in result.stderr, result.output
    assert not (tmp_path / "runs").exists()


@pytest.mark.mpi
def test_exact_refuses_what_would_change_the_bits(lockstep, mpirun, tmp_path):
    config, exact = write_config(tmp_path, PIMA), sets(train__exact="required", train__threads=1)
    mpirun(2, lockstep, "train", config, *sets(train__max_steps=3), *exact, cwd=tmp_path, check=True)
    folder = tmp_path / "runs/pima"
    content = newest(folder)

    def resume(ranks, *words, **changes):
        torch.save({**content, "lockstep": {**content["lockstep"], **changes}}, checkpoints(folder)[-1])
        return mpirun(ranks, lockstep, "train", config, *sets(train__max_steps=6), *words, "--resume", folder, cwd=tmp_path)
    for ranks, words, changes, said in ((1, exact, {}, "with 1 rank (was 2)"), (2, exact, {"libtorch": "another"}, "another"),
                                        (2, exact, {"libtorch": ""}, "libtorch"),  # a file that does not tell is not trusted
                                        (2, exact + sets(data__batch_size=8), {}, "the config has changed: data.batch_size")):
        result = resume(ranks, *words, **changes)
        assert result.returncode == 2 and said in result.stderr and "train.exact" in result.stderr, result.stderr
        assert newest(folder)["iter_no"] == 3
    assert resume(1, *sets(train__exact="off", train__threads=1)).returncode == 0


@pytest.mark.parametrize("left, words", [
    (dict(LOCKSTEP_RANK=1, LOCKSTEP_WORLD_SIZE=2), "unset LOCKSTEP_RANK LOCKSTEP_WORLD_SIZE"),
    (dict(LOCKSTEP_CARRIER=1, LOCKSTEP_RENDEZVOUS="x"), "")])
def test_variables_that_somebody_left_behind(left, words, lockstep, run, tmp_path):
    result = run(lockstep, "train", write_config(tmp_path, PIMA), *sets(train__max_steps=2), cwd=tmp_path, env=left)
    assert result.returncode == (2 if words else 0) and words in result.stderr, result.stderr
