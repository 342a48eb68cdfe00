"""examples/: each is built against an install and does what its first lines say."""

import re

import pytest

from examples_kit import build_examples
from examples_kit import examples, precompiled  # noqa: F401  (fixtures)
from train_kit import assert_same_tensors

pytestmark = [pytest.mark.about("examples"), pytest.mark.full]  # the compiler needs a minute of both cores


@pytest.fixture
def example(examples):  # noqa: F811
    """example(name): its program."""
    return lambda name: examples / name / "build" / name


def test_each_builds_with_nothing_in_front_of_it(installed, build_dir, tmp_path):
    build_examples(installed, build_dir, tmp_path)


def losses(output):
    return re.findall(r"Epoch (\d+) \| Average Loss: ([\d.]+)", output)


def test_ddp_trains_as_the_program_does(example, mpirun, lockstep, tmp_path):
    """Parity tests hold the program to Python's DDP; this holds the library's user to the program."""
    result = mpirun(2, example("ddp"), cwd=tmp_path, check=True)
    twin = mpirun(2, lockstep, "train", "configs/pima.yaml", "--set", "data.shuffle=true",
                  "--set", "task.class_weights=none", "--set", "train.epochs=5", cwd=tmp_path, check=True)
    assert len(losses(result.stdout)) == 5
    assert losses(result.stdout) == losses(twin.output)
    assert 0.6 < float(re.search(r"Accuracy: ([\d.]+)", result.stdout)[1]) < 0.9


def test_resume_ends_with_the_bits_of_a_run_that_nobody_stopped(example, mpirun, tmp_path):
    program = example("resume")
    whole = mpirun(2, program, tmp_path / "whole.pt", 4, cwd=tmp_path, check=True)
    first = mpirun(2, program, tmp_path / "parts.pt", 4, 2, cwd=tmp_path, check=True)
    rest = mpirun(2, program, tmp_path / "parts.pt", 4, cwd=tmp_path, check=True)
    assert "Going on with epoch 2" in rest.stdout
    assert losses(first.stdout) + losses(rest.stdout) == losses(whole.stdout)
    assert len(losses(whole.stdout)) == 4
    # Python reads the file, and nothing in it differs
    torch = pytest.importorskip("torch")
    a, b = (torch.load(tmp_path / name, weights_only=True) for name in ("whole.pt", "parts.pt"))
    assert_same_tensors(a, b)
    model = torch.nn.ModuleDict({"fc": torch.nn.Linear(8, 32), "head": torch.nn.Linear(32, 2)})
    model.load_state_dict(a["model"])
    torch.optim.Adam(model.parameters()).load_state_dict(a["optimizer"])
    assert a["session"]["epoch"] == 4 and a["session"]["consumed"] == 0
