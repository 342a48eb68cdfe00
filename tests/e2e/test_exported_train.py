"""`lockstep train` with a model that Python exported: in every way of training, to the bits of the same as TorchScript."""

import shutil
import zipfile

import pytest

from conftest import run_process
from train_kit import PIMA, checkpoints, sets, write_config

pytestmark = pytest.mark.about("exported", "loop", "step")

torch = pytest.importorskip("torch", reason="needs Python's torch to export with")

MAKE = """
import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 2)).train()
free = {0: torch.export.Dim.AUTO}
torch.export.save(torch.export.export(model, (torch.randn(4, 8),), dynamic_shapes=(free,)), "model.pt2")
torch.jit.script(model).save("model.pt")
"""

# settings, ranks
WAYS = {
    "sharded": ({"optim.name": "adamw", "optim.sharded": "true", "train.accumulate": 2, "train.clip_norm": 1}, 2),
    "bf16": ({"train.precision": "bf16", "ddp.static_graph": "true", "ddp.find_unused_parameters": "false"}, 2),
    "sync_batchnorm": ({"ddp.sync_batchnorm": "true", "ddp.gradient_as_bucket_view": "true"}, 3),
}


@pytest.fixture(scope="module")
def place(python, tmp_path_factory):
    home = tmp_path_factory.mktemp("exported")
    write_config(home, PIMA)
    assert run_process([python, "-W", "ignore", "-c", MAKE], cwd=home).returncode == 0
    return home


@pytest.fixture
def trained(place, lockstep, mpirun):
    """trained(NAME, KIND, ranks, KEY=VALUE...) -> the newest checkpoint's file."""
    def go(name, kind, ranks, settings, *words):
        path = {"exported": "model.pt2", "torchscript": "model.pt"}[kind]
        given = [f"--set={key}={value}" for key, value in {"train.max_steps": 6, "run.name": name, "model.name": kind,
                                                           "model.path": path, **settings}.items()]
        mpirun(ranks, lockstep, "train", "config.yaml", *given, *words, cwd=place, check=True, quiet=True)
        return checkpoints(place / f"runs/{name}")[-1]
    return go


def tensors(path):
    return torch.load(path, weights_only=True)["model"]


@pytest.mark.parametrize("way", [pytest.param(way, marks=() if way == "sharded" else pytest.mark.full) for way in WAYS])
def test_every_way_of_training_ends_as_with_torchscript(way, trained):
    settings, ranks = WAYS[way]
    ours, theirs = (tensors(trained(f"{way}-{kind}", kind, ranks, settings)) for kind in ("exported", "torchscript"))
    assert ours.keys() == theirs.keys() and all(torch.equal(ours[name], theirs[name]) for name in ours)


def test_a_resumed_run_ends_as_one_never_stopped(trained):
    whole = tensors(trained("whole", "exported", 1, {"train.max_steps": 10}))
    trained("stopped", "exported", 1, {"train.max_steps": 4})
    resumed = tensors(trained("stopped", "exported", 1, {"train.max_steps": 10}, "--resume", "auto"))
    assert all(torch.equal(whole[name], resumed[name]) for name in whole)


def test_evaluating_and_predicting_take_the_run_alone(place, trained, run, lockstep):
    trained("evaluated", "exported", 1, {"train.epochs": 1, "train.max_steps": 0})
    assert "accuracy" in run(lockstep, "eval", "runs/evaluated", cwd=place, check=True).stdout
    (place / "new.csv").write_text("6,148,72,35,0,33.6,0.627,50\n")
    words = ["runs/evaluated", "--input", "new.csv", *sets(train__precision="bf16")]
    predicted = run(lockstep, "predict", *words, cwd=place, check=True).stdout
    assert len(predicted.strip().splitlines()) == 2


@pytest.mark.mpi
def test_ranks_with_other_graphs_under_one_name_are_refused(place, lockstep, mpirun, tmp_path):
    """The parameters are the same, and relu is tanh on rank 1: each rank has a working directory of its own."""
    script = tmp_path / "rank.sh"
    script.write_text('cd "$1/$OMPI_COMM_WORLD_RANK$PMI_RANK"; shift; exec "$@"\n')
    for rank in range(2):
        (tmp_path / str(rank)).mkdir()
        shutil.copy(place / "model.pt2", tmp_path / str(rank))
    write_config(tmp_path / "0", PIMA)
    start = ("bash", script, tmp_path, lockstep, "train", "config.yaml",
             *sets(model__name="exported", model__path="model.pt2", train__max_steps=2))
    result = mpirun(2, *start, quiet=True)
    assert result.returncode == 0, result.output
    change_graph(place / "model.pt2", tmp_path / "1/model.pt2")
    result = mpirun(2, *start, quiet=True)
    assert result.returncode == 2, result.output
    assert "rank 1 has the graph " in result.stderr and result.stderr.count("error:") == 1, result.output


def change_graph(original, path):
    with zipfile.ZipFile(original) as archive, zipfile.ZipFile(path, "w") as copy:
        for name in archive.namelist():
            copy.writestr(name, archive.read(name).replace(b"aten.relu.default", b"aten.tanh.default"))
