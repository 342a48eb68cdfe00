"""lockstep's parameters equal those of the plain Python DDP program, bit for bit."""

import json
import re

import pytest

from train_kit import (MNIST, PIMA, assert_same_tensors, metrics, newest, python_ranks, sets, write_config, write_small_mnist)
from process_kit import LONG_PATIENCE

pytestmark = pytest.mark.about("loop", "parallel", "optim")

torch = pytest.importorskip("torch")

# name -> (the Python program's variant, lockstep's settings)
VARIANTS = {
    "plain": (dict(max_steps=8, evaluate=True), dict(train__max_steps=8, train__eval_every=1)),
    "adam_one_cycle": (dict(batch=64, max_steps=5, optim="adam", schedule="one_cycle"),
                       dict(data__batch_size=64, train__max_steps=5, optim__name="adam", schedule__name="one_cycle",
                            schedule__max_lr=0.05)),
    "accumulate_clip": (dict(batch=32, max_steps=5, accumulate=3, clip=0.5, smoothing=0.1),
                        dict(data__batch_size=32, train__max_steps=5, train__accumulate=3, train__clip_norm=0.5,
                             train__label_smoothing=0.1)),
    "bf16": (dict(batch=32, max_steps=5, bf16=True),
             dict(data__batch_size=32, train__max_steps=5, train__precision="bf16")),
    "channels_last": (dict(batch=32, max_steps=5, channels_last=True),
                      dict(data__batch_size=32, train__max_steps=5, train__layout="channels_last")),
    # missing values, standardized columns, the stratified split
    "pima": (dict(task="pima", batch=16, epochs=2, optim="adam", lr=0.001, accumulate=3, evaluate=True),
             dict(train__epochs=2, train__accumulate=3)),
    # ZeroRedundancyOptimizer
    "pima_sharded": (dict(task="pima", batch=16, epochs=1, optim="adam", lr=0.001, zero=True),
                     dict(train__epochs=1, optim__sharded=True)),
    # the same layers under the same names on two devices
    "two_stages": (dict(max_steps=8), dict(train__max_steps=8, model__name="two_stage", model__devices="[0, 1]")),
}


# Each is one more feature of the loop; the widest run at every change.
EVERY_TIME = ("plain", "pima")
NAMES = [name if name in EVERY_TIME else pytest.param(name, marks=pytest.mark.full) for name in VARIANTS]


@pytest.fixture(scope="module")
def mnist_root(tmp_path_factory):
    return write_small_mnist(tmp_path_factory.mktemp("mnist"))


@pytest.fixture(scope="module")
def train_in_python(python, source_dir):
    """train_in_python(variants, mnist root, folder) -> what Python's DDP at world 2 made of each variant."""
    def train(variants, mnist, out):
        (out / "variants.json").write_text(json.dumps(variants))
        python_ranks(python, 2, out, source_dir / "tests/e2e/peers/ddp_train.py", "--mnist", mnist,
                     "--pima", source_dir / "data/pima/pima-indians-diabetes.csv", "--variants", out / "variants.json", "--out", out)
        return {name: torch.load(out / f"{name}.pt", weights_only=True) for name in variants}
    return train


@pytest.fixture(scope="module")
def peers(request, tmp_path_factory, mnist_root, train_in_python):
    """Each variant that is asked for, as Python trains it."""
    wanted = {item.callspec.params["name"] for item in request.session.items
              if item.path == request.path and hasattr(item, "callspec")}
    return train_in_python({name: VARIANTS[name][0] for name in sorted(wanted)}, mnist_root, tmp_path_factory.mktemp("python"))


@pytest.mark.mpi
@pytest.mark.parametrize("name", NAMES)
def test_parameters_equal_pythons(name, peers, mnist_root, lockstep, mpirun, tmp_path):
    task = VARIANTS[name][0].get("task", "mnist")
    config = write_config(tmp_path, PIMA if task == "pima" else MNIST)
    words = sets(**VARIANTS[name][1]) + ([] if task == "pima" else sets(data__root=mnist_root))
    mpirun(2, lockstep, "train", config, *words, cwd=tmp_path, check=True)
    mine, peer = newest(tmp_path / f"runs/{task}"), peers[name]
    assert mine["iter_no"] == peer["step"]
    assert_same_tensors(dict(mine["model"]), dict(peer["model"]))
    assert_same_tensors(mine["optimizer"]["state"], peer["optimizer"]["state"])
    if "correct" in peer:  # to the sample
        folder = tmp_path / f"runs/{task}"
        assert metrics(folder)[-1]["accuracy"] == pytest.approx(peer["correct"] / peer["evaluated"], abs=1e-9)


@pytest.mark.full
def test_five_epochs_reach_what_python_reaches(train_in_python, lockstep, mpirun, source_dir, tmp_path):
    """The workshop's own run, all 60,000 digits: the same parameters, and so the same digits right."""
    whole = write_small_mnist(tmp_path / "whole", train=60000, test=10000)
    peer = train_in_python({"five": dict(epochs=5, evaluate=True)}, whole, tmp_path)["five"]
    mpirun(2, lockstep, "train", source_dir / "configs/mnist.yaml", cwd=tmp_path, timeout=LONG_PATIENCE, check=True)
    assert_same_tensors(dict(newest(tmp_path / "runs/mnist")["model"]), dict(peer["model"]))
    assert metrics(tmp_path / "runs/mnist")[-1]["accuracy"] == peer["correct"] / peer["evaluated"]
    assert 0.984 <= peer["correct"] / peer["evaluated"] <= 0.987


def test_the_layout_that_a_measurement_chose_is_kept(lockstep, mpirun, tmp_path):
    """train.layout: auto has the bits of the layout that it names, in the config, in the log, and when the run goes on."""
    root = write_small_mnist(tmp_path / "data", train=256, test=64)
    config, words = write_config(tmp_path, MNIST), sets(data__root=root, data__batch_size=16)
    auto = words + sets(train__layout="auto")
    said = mpirun(2, lockstep, "train", config, *auto, *sets(train__max_steps=2), cwd=tmp_path, check=True).stderr
    chosen = re.search(r"train.layout: auto chose (\w+): \S+ ms per batch, against \S+ ms in (\w+)", said)
    assert set(chosen.groups()) == {"nchw", "channels_last"} and said.count("auto chose") == 1
    folder = tmp_path / "runs/mnist"
    assert f"layout: {chosen.group(1)}" in (folder / "config.yaml").read_text()
    again = mpirun(2, lockstep, "train", config, *auto, *sets(train__max_steps=4), "--resume", "auto", cwd=tmp_path, check=True)
    assert "auto chose" not in again.stderr and newest(folder)["iter_no"] == 4
    named = words + sets(train__layout=chosen.group(1), train__max_steps=4, run__name="named")
    mpirun(2, lockstep, "train", config, *named, cwd=tmp_path, check=True)
    assert_same_tensors(dict(newest(folder)["model"]), dict(newest(tmp_path / "runs/named")["model"]))
