"""Runs that lockstep 0.1 left (tests/fixtures/before-0.2) are read, judged, and brought to the end that 0.1 itself came to."""

import json
import platform
import shutil

import pytest

from conftest import SOURCE, cache_value, run_process
from train_kit import ANY_CPU, checkpoints, digest_of_run, status

pytestmark = pytest.mark.about("checkpoint", "loop")

BEFORE = SOURCE / "tests/fixtures/before-0.2"
EXPECTED = json.loads((BEFORE / "expected.json").read_text())
RUNS = EXPECTED["runs"]
ALIKE = (EXPECTED["libtorch"], "2.7.1", "2.8.0", "2.9.1", "2.10.0", "2.12.1", "2.13.0", "2.15.0")  # libtorchs that round as the one that it was, in all that these runs compute


@pytest.fixture
def place(tmp_path):
    """A working directory as 0.1 left it."""
    for part in ("configs", "data", "runs"):
        shutil.copytree(BEFORE / part, tmp_path / part)
    return tmp_path


@pytest.fixture(scope="session")
def same_arithmetic(build_dir):
    """The digests were taken with one libtorch, on x86-64."""
    pytest.importorskip("torch")
    if platform.machine() != "x86_64" or cache_value(build_dir, "LOCKSTEP_LIBTORCH_VERSION") not in ALIKE:
        pytest.skip(f"the digests are of libtorch {' and '.join(ALIKE)} on x86-64")


PROBE = """
import numpy, torch
numbers = torch.rand(100000, generator=torch.Generator().manual_seed(1))
print(int((torch.sqrt(numbers).numpy() != numpy.sqrt(numbers.numpy())).sum()))
"""


@pytest.fixture(scope="session")
def wrong_roots(python):
    """How many of 100,000 square roots MKL rounds otherwise than IEEE 754 asks: by the processor's maker, whatever it is told."""
    return int(run_process([python, "-c", PROBE], env=ANY_CPU, check=True).stdout)


@pytest.mark.mpi
@pytest.mark.parametrize("name, resume, config", [
    ("sgd", "auto", "as it was asked for"), ("adam", "by path", "as it was asked for"),
    ("adamw", "auto", "as it was resolved"), ("done", "by path", "as it was resolved")])
def test_it_ends_as_it_would_have(name, resume, config, same_arithmetic, lockstep, mpirun, place, request):
    if name.startswith("adam") and (wrong := request.getfixturevalue("wrong_roots")):
        pytest.skip(f"MKL rounds {wrong} of 100,000 square roots otherwise on this processor, and Adam takes them")
    case, folder = RUNS[name], f"runs/{name}"
    asked = f"configs/{name}.yaml" if config == "as it was asked for" else f"{folder}/config.yaml"
    words = [lockstep, "train", asked, "--resume", "auto" if resume == "auto" else folder, *case["more"]]
    result = mpirun(case["world"], *words, cwd=place, env=ANY_CPU, check=True)
    assert f"resuming after step {case['began']}" in result.output and "has changed" not in result.output, result.output
    assert "warning" not in result.output, result.output
    assert [path.name for path in (place / "runs").iterdir() if path.name.startswith(name + "-")] == []
    assert digest_of_run(place / folder, without=["r2"]) == case["end"]  # 0.1 had none
    assert status(place / folder)["state"] == "done" and status(place / folder)["attempt"] == 2


@pytest.mark.parametrize("name", ["sgd", "adamw"])
def test_it_answers_as_it_did(name, same_arithmetic, lockstep, run, place):
    case = RUNS[name]
    newest_file = checkpoints(place / "runs" / name)[-1].relative_to(place)
    words = [f"configs/{name}.yaml", "--checkpoint", newest_file]
    assert run(lockstep, "eval", *words, cwd=place, env=ANY_CPU, check=True).stdout == case["eval"]
    if case["input"]:
        result = run(lockstep, "predict", *words, "--input", case["input"], cwd=place, env=ANY_CPU, check=True)
        assert result.stdout == case["predict"]
