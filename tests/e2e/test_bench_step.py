"""lockstep bench step: where a step's time goes, on any training, and nothing is left."""

import json
import os
import signal

import pytest
from conftest import OPEN_MPI, members
from process_kit import PATIENCE, line_with
from train_kit import PIMA, sets, write_config, write_small_mnist

pytestmark = pytest.mark.about("bench")

PHASES = ["data", "forward", "backward", "waiting for communication", "optimizer", "other"]


@pytest.fixture
def config(tmp_path):
    return write_config(tmp_path, PIMA)


@pytest.fixture
def bench(lockstep, run, mpirun, tmp_path):
    """bench(world, ARG...) -> Result of a bench in an empty folder, which it leaves empty."""
    empty = tmp_path / "empty"
    empty.mkdir()

    def measure(world, *args, **how):
        words = (lockstep, "bench", "step", *args)
        result = run(*words, cwd=empty, **how) if world == 1 else mpirun(world, *words, cwd=empty, **how)
        assert not list(empty.iterdir())
        return result
    return measure


def measured(result):
    """What --json said, after its sums were looked at."""
    assert result.returncode == 0, result.output
    found = json.loads(result.stdout)
    assert list(found["phases"]) == PHASES
    assert sum(found["phases"].values()) == pytest.approx(found["seconds_a_step"])
    for rank in found["ranks"]:
        assert sum(rank["phases"].values()) == pytest.approx(rank["step"])
        assert rank["min"] <= rank["median"] <= rank["max"]
        assert rank["min"] <= rank["step"] <= 1.2 * rank["max"]
    return found


# of a batch of 307: 8 numbers to 64 to 32 to 2
PIMA_FORWARD = 2 * 307 * (8 * 64 + 64 * 32 + 32 * 2)
PIMA_BACKWARD = 2 * PIMA_FORWARD - 2 * 307 * 8 * 64
MNIST_FORWARD = 2 * 128 * (28 * 28 * 32 * 9 + 14 * 14 * 64 * 32 * 9 + 3136 * 128 + 128 * 10)
MNIST_BACKWARD = 2 * MNIST_FORWARD - 2 * 128 * 28 * 28 * 32 * 9


def test_one_rank_tells_its_phases_its_arithmetic_and_the_peak(bench, config):
    # two batches an epoch: 25 of them
    found = measured(bench(1, config, *sets(data__batch_size=307), "--steps", 50, "--json"))
    assert (found["world"], found["steps"], found["samples_a_step"]) == (1, 50, 307)
    rank, = found["ranks"]
    assert (rank["flop_forward"], rank["flop_backward"]) == (PIMA_FORWARD, PIMA_BACKWARD)
    assert found["phases"]["waiting for communication"] == 0
    assert rank["peak_flops"] > 1e8
    assert found["arithmetic"]["both"]["flop"] == PIMA_FORWARD + PIMA_BACKWARD


@pytest.mark.parametrize("world, args, forward, backward", [
    (2, ["launch.backend=mpi", "optim.sharded=true"], 2, 2),
    *(pytest.param(*row, marks=pytest.mark.full) for row in (
        (1, ["train.mode=data_parallel", "data_parallel.devices=2"], 1, 1),
        (1, ["train.precision=bf16", "train.layout=channels_last", "train.accumulate=2"], 2, 2),
        (2, ["parallel.tensor=2", "model.name=mlp"], None, None),
        (2, ["parallel.pipeline=2"], 1, 1))),
], ids=lambda value: value[0] if isinstance(value, list) else None)
@pytest.mark.mpi
def test_every_way_to_train_is_measured_and_counted(bench, tmp_path, world, args, forward, backward):
    root = write_small_mnist(tmp_path / "mnist", train=1024, test=64)
    words = [word for key in args for word in ("--set", key)]
    page = tmp_path / "page.html"
    result = bench(world, "configs/mnist.yaml", *sets(data__root=root, data__workers=0), *words, "--steps", 2, "--json", "--out", page)
    assert page.read_text().count('{"bars":') == 1
    found = measured(result)
    if forward:
        assert sum(rank["flop_forward"] for rank in found["ranks"]) == forward * MNIST_FORWARD
        assert sum(rank["flop_backward"] for rank in found["ranks"]) == backward * MNIST_BACKWARD
    notes = " ".join(found["notes"])
    assert ("bf16 has its own instructions" in notes) == ("train.precision=bf16" in args)


@pytest.mark.mpi
def test_a_bench_that_is_killed_leaves_nothing_and_says_who(start, mpiexec, mpi, lockstep, config, tmp_path):
    folder = tmp_path / "folder"
    folder.mkdir()
    process = start(mpiexec, "-n", "2", lockstep, "bench", "step", config, "--steps", "100000", cwd=folder, text=True, stderr=-1, stdout=-1)
    line_with(process, process.stderr, "timing 100000 steps")
    ranks = [pid for pid in members(process) if f"{mpi.rank}=1\0".encode() in open(f"/proc/{pid}/environ", "rb").read()]
    os.kill(ranks[-1], signal.SIGKILL)
    status, said = process.wait(PATIENCE), process.stderr.read()
    assert status != 0, said
    if mpi is OPEN_MPI:
        assert "rank 1" in said and ("has died" in said or "exited on signal 9" in said), said
    printed = process.stdout.read()  # hydra has words of its own
    assert (printed == "" if mpi is OPEN_MPI else "median" not in printed) and not list(folder.iterdir())
