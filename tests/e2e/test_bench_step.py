"""lockstep bench step: where a step's time goes, on any training, and nothing is left."""

import json
import os
import signal

import pytest
from conftest import OPEN_MPI, members
from process_kit import PATIENCE, line_with, on_terminal
from train_kit import DATA, PIMA, sets, write_config, write_small_mnist

pytestmark = pytest.mark.about("bench")

PHASES = ["data", "forward", "backward", "waiting for communication", "optimiser", "other"]


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
    # Adam keeps two numbers for each of 2722 parameters, and a count or so for each of six tensors
    assert 0 <= rank["optimiser_bytes"] - 4 * 2722 * (3 + 2 * 2) <= 6 * 2 * 8
    assert found["phases"]["waiting for communication"] == 0
    assert rank["peak_flops"] > 1e8 and rank["peak_bytes"] > 1e7 and found["vector_bits"] >= 128
    assert found["arithmetic"]["both"]["flop"] == PIMA_FORWARD + PIMA_BACKWARD


HEAD = "per step mean % min median max most on"  # milliseconds or microseconds


@pytest.mark.mpi
def test_two_ranks_stand_in_one_table_and_one_bar(bench, lockstep, start, mpiexec, mpi, tmp_path):
    root = write_small_mnist(tmp_path / "mnist", train=2048, test=64)
    words = ["configs/mnist.yaml", *sets(data__root=root), "--steps", 4]
    page, picture = tmp_path / "page.html", tmp_path / "bars.svg"
    piped = bench(2, *words, "--out", page, check=True)
    text = piped.stdout
    assert "mnist, simple_cnn: 2 ranks on 1 node, 1 thread each, cpu\nddp, fp32, nchw, kernels exact, shared\n" in text
    head, = [line for line in text.splitlines() if " per step " in line and "most on" in line]
    assert head.split()[1:] == HEAD.split()
    for phase in [*PHASES, "step"]:
        assert any(line.startswith(phase + "  ") and " rank " in line for line in text.splitlines()), phase
    assert "4 steps after" in text and "256 samples a step" in text
    assert "most work of its own: rank " in text and "mean of 2 ranks " in text
    assert "the whole step" in text and "peak of 2 ranks at once: " in text and "-bit vectors" in text
    assert max(map(len, text.splitlines())) <= 80 and text.isascii() and "\x1b" not in text
    assert page.read_text().count('class="card') == 1 and "waiting for communication" in page.read_text()
    shown = on_terminal(start, mpiexec, *mpi.quiet, "-n", "2", lockstep, "--log", "error", "bench", "step", *words,
                        "--out", picture, env={"TORCH_CPP_LOG_LEVEL": "ERROR"}, cwd=tmp_path)
    assert "mean of 2 ranks " in shown and "\x1b" not in shown
    assert picture.read_text().startswith("<svg")


@pytest.mark.parametrize("world, args, forward, backward", [
    (1, ["train.mode=single"], 1, 1),
    (1, ["train.mode=data_parallel", "data_parallel.devices=2"], 1, 1),
    (1, ["train.precision=bf16", "train.layout=channels_last"], 1, 1),
    (1, ["train.kernels=fast"], 1, 1),
    (1, ["train.accumulate=2"], 2, 2),
    (2, ["parallel.tensor=2", "model.name=mlp"], None, None),
    (2, ["parallel.pipeline=2"], 1, 1),
    (2, ["launch.backend=mpi", "optim.sharded=true"], 2, 2),
], ids=lambda value: value[0] if isinstance(value, list) else None)
@pytest.mark.mpi
def test_every_way_to_train_is_measured_and_counted(bench, tmp_path, world, args, forward, backward):
    root = write_small_mnist(tmp_path / "mnist", train=1024, test=64)
    words = [word for key in args for word in ("--set", key)]
    result = bench(world, "configs/mnist.yaml", *sets(data__root=root, data__workers=0), *words, "--steps", 2, "--json")
    found = measured(result)
    if forward:
        assert sum(rank["flop_forward"] for rank in found["ranks"]) == forward * MNIST_FORWARD
        assert sum(rank["flop_backward"] for rank in found["ranks"]) == backward * MNIST_BACKWARD
    notes = " ".join(found["notes"])
    assert ("what libtorch would do" in notes) == ("train.kernels=fast" in args)
    assert ("bf16 has instructions of its own" in notes) == ("train.precision=bf16" in args)
    assert ("it is sharded" in notes) == ("optim.sharded=true" in args)


def test_acting_is_no_part_of_a_steps_arithmetic(bench):
    found = measured(bench(1, "configs/cartpole.yaml", "--steps", 3, "--json"))
    assert found["ranks"][0]["flop_forward"] == 2 * 256 * (4 * 64 + 64 * 64 + 64 * 3)


def test_a_training_that_diverges_is_measured_and_said(bench, config):
    found = measured(bench(1, config, *sets(optim__lr=1e30), "--steps", 3, "--json"))
    assert any("a loss was no number" in note for note in found["notes"])


@pytest.mark.mpi
def test_a_rank_with_slow_data_is_named(bench, build_dir, lockstep, mpirun, mpi, tmp_path):
    task = next(build_dir.glob("**/slow_task.so"))
    config = write_config(tmp_path, f"""
task: {{name: {task}}}
data: {{batch_size: 8, workers: 0}}
model: {{name: mlp, hidden: [8]}}
""")
    script = f'[ "${mpi.rank}" = 1 ] && export SLOW_STEP=0.02; exec {lockstep} bench step {config} --steps 5 "$@"'
    result = mpirun(2, "sh", "-c", script, cwd=tmp_path, check=True)
    assert "most work of its own: rank 1 on " in result.stdout, result.output
    assert "rank 1, most work |" in result.stdout and "rank 0, least" in result.stdout
    data, = [line.split() for line in result.stdout.splitlines() if line.startswith("data ")]
    least, _, most, _, rank = data[3:]
    assert float(most) >= 20 > float(least) and rank == "1", result.stdout


@pytest.mark.mpi
@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGINT], ids=["killed", "Ctrl-C"])
def test_a_bench_that_is_ended_leaves_nothing_and_says_who(start, mpiexec, mpi, lockstep, config, tmp_path, end):
    folder = tmp_path / "folder"
    folder.mkdir()
    quiet = () if end == signal.SIGKILL else mpi.quiet  # where mpirun is quicker to end rank 0, it says why
    process = start(mpiexec, *quiet, "-n", "2", lockstep, "bench", "step", config, "--steps", "100000", cwd=folder, text=True, stderr=-1,
                    stdout=-1)
    line_with(process, process.stderr, "timing 100000 steps")
    if end == signal.SIGINT:
        process.send_signal(end)
    else:
        ranks = [pid for pid in members(process)
                 if f"{mpi.rank}=1\0".encode() in open(f"/proc/{pid}/environ", "rb").read()]
        os.kill(ranks[-1], end)
    status, said = process.wait(PATIENCE), process.stderr.read()
    assert status != 0 or mpi is not OPEN_MPI, said  # hydra forgets it after Ctrl-C
    if end == signal.SIGKILL and mpi is OPEN_MPI:
        assert "rank 1" in said and ("has died" in said or "exited on signal 9" in said), said
    printed = process.stdout.read()  # hydra has words of its own
    assert (printed == "" if mpi is OPEN_MPI else "median" not in printed) and not list(folder.iterdir())


@pytest.mark.mpi
@pytest.mark.parametrize("args, words", [
    ([], "CONFIG.yaml"),
    (["configs/pima.yaml", "--steps", "0"], "--steps is a number from 1 to 100000"),
    (["configs/pima.yaml", "--steps", "-3"], "--steps is a number from 1 to 100000"),
    (["configs/pima.yaml", "--steps", "many"], "--steps"),
    (["configs/pimma.yaml"], "configs/pimma.yaml"),
    (["configs/pima.yaml", "--set", "train.epoch=3"], "unknown key train.epoch"),
    (["configs/pima.yaml", "--set", "data.root=/nowhere"], "/nowhere"),
    (["configs/pima.yaml", "--set", "data.batch_size=400"], "a batch of 400 is larger"),
    (["configs/pima.yaml", "--set", "train.mode=single"], "trains on one process"),
    (["configs/pima.yaml", "--out", "/nowhere/page.html"], "there is no folder"),
    (["configs/pima.yaml", "--out", "page.txt"], "neither a page nor a picture"),
])
def test_bad_input_is_said_once_for_all(mpirun, lockstep, source_dir, args, words):
    result = mpirun(2, lockstep, "bench", "step", *args, cwd=source_dir, quiet=True)
    assert result.returncode == 2, result.output
    assert result.stderr.count(words) == 1 and result.stderr.count("to do:") == 1, result.output


def test_an_empty_training_set_is_an_error_of_the_input(run, lockstep, tmp_path):
    (tmp_path / "rows.csv").write_text("a,b,label\n")
    config = write_config(tmp_path, f"task: {{name: csv, file: rows.csv}}\ndata: {{root: {tmp_path}}}\n")
    result = run(lockstep, "bench", "step", config, cwd=tmp_path)
    assert result.returncode == 2 and "rows.csv" in result.stderr, result.output
