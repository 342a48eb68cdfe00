"""The GPU's step as far as a machine without one can tell: resident data, and what train.graph refuses."""

import re

import pytest

from train_kit import MNIST, PIMA, assert_same_tensors, newest, sets, write_config, write_small_mnist

pytestmark = pytest.mark.about("cuda", "loop", "data")

pytest.importorskip("torch", reason="reads checkpoints with it")

GRAPH = {"data.resident": True, "train.graph": True}
UNCAPTURED = {
    "data.resident": (False, "set data.resident to true"),
    "train.mode": ("data_parallel", "use ddp or single"),
    "train.precision": ("fp16", "use bf16"),
    "train.accumulate": (2, "set train.accumulate to 1"),
    "train.provoke": ("local_loss", "leave out train.provoke"),
    "parallel.tensor": (2, "set parallel.tensor to 1"),
    "parallel.pipeline": (2, "set parallel.pipeline to 1"),
    "optim.sharded": (True, "set optim.sharded to false"),
    "ddp.comm_hook": ("bf16", "set ddp.comm_hook to none"),
    "ddp.sync_batchnorm": (True, "set ddp.sync_batchnorm to false"),
    "ddp.find_unused_parameters": (True, "ddp.static_graph"),
    "model.checkpointing": (True, "set model.checkpointing to false"),
    "train.nvtx": (True, "turn one of the two off"),
    "launch.backend": ("mpi", "NCCL"),
    "launch.allreduce": ("ring", "leave launch.allreduce at auto"),
}


def words(keys):
    return sets(**{key.replace(".", "__"): value for key, value in keys.items()})


@pytest.fixture
def no_gpu(lockstep, run):
    result = run(lockstep, "whoami", "--device", "cuda")
    if result.returncode == 0:
        pytest.skip("this machine has a GPU")


@pytest.mark.parametrize("text,keys,ranks", [(MNIST, {"train.max_steps": 9}, 2), (PIMA, {"train.epochs": 2}, 1)],
                         ids=["images", "table"])
def test_a_resident_set_gives_the_same_bits(text, keys, ranks, lockstep, mpirun, tmp_path):
    """At the end of an epoch with a short batch, too."""
    if text is MNIST:
        keys = {"data.root": write_small_mnist(tmp_path / "mnist", train=2048 + 100), **keys}
    config = write_config(tmp_path, text)
    trained = []
    for resident in (False, True):
        name = f"resident-{resident}"
        result = mpirun(ranks, lockstep, "train", config, cwd=tmp_path, check=True,
                        *words({**keys, "run.name": name, "data.resident": resident}))
        assert ("resident on cpu: " in result.stderr) == resident
        trained.append(newest(tmp_path / "runs" / name))
    assert_same_tensors(trained[0]["model"], trained[1]["model"])
    assert_same_tensors(trained[0]["optimizer"], trained[1]["optimizer"])


def test_what_cannot_be_captured_is_refused_by_its_key(lockstep, run, tmp_path):
    config = write_config(tmp_path, MNIST)
    for key, (value, hint) in UNCAPTURED.items():
        result = run(lockstep, "config", config, *words({**GRAPH, key: value}))
        assert result.returncode == 2, key
        assert re.search(f"train.graph and {key}[ a-z0-9_]* exclude each other: ", result.stderr), key
        assert hint in result.stderr and "--set" in result.stderr, key
    run(lockstep, "config", config, *words(GRAPH), check=True)


def test_a_graph_without_a_gpu_is_an_error(no_gpu, lockstep, mpirun, tmp_path):
    config = write_config(tmp_path, MNIST)
    for command in (["train"], ["train", "--dry-run"]):
        result = mpirun(2, lockstep, *command, config, *words(GRAPH), cwd=tmp_path)
        assert result.returncode == 2
        assert result.stderr.count("train.graph: a step is captured on a GPU") == 1
    assert not (tmp_path / "runs").exists()


def test_ranges_without_a_gpu_are_an_error(no_gpu, lockstep, run, tmp_path):
    result = run(lockstep, "train", write_config(tmp_path, MNIST), *sets(train__nvtx=True), cwd=tmp_path)
    assert result.returncode == 2
    assert "train.nvtx: ranges are shown beside a GPU's work, and this rank has none" in result.stderr


def test_the_config_for_a_gpu_says_that_there_is_none(no_gpu, lockstep, run, source_dir, tmp_path):
    config = source_dir / "configs/mnist_gpu.yaml"
    run(lockstep, "config", config, check=True)
    result = run(lockstep, "train", config, cwd=tmp_path)
    assert result.returncode == 2
    assert "launch.device is cuda, but rank 0 sees no GPU" in result.stderr


def test_the_config_for_a_gpu_trains_on_a_cpu_step_by_step(lockstep, run, source_dir, tmp_path):
    config, there = source_dir / "configs/mnist_gpu.yaml", words({"launch.device": "cpu", "train.graph": False})
    result = run(lockstep, "train", "--dry-run", config, *there, cwd=tmp_path, check=True)
    assert "A dry run" in result.stdout
    run(lockstep, "train", config, *there, "--set", "train.max_steps=2", "--set", "train.eval_every=0", cwd=tmp_path,
        check=True)
