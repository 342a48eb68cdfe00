"""Injected faults: each says what docs/troubleshooting.md says, ends as the real one, and leaves nobody behind."""

import re

import pytest

from conftest import SOURCE
from train_kit import PIMA, sets, status, write_config

pytestmark = pytest.mark.about("loop", "cli")

PAGE = SOURCE / "docs/troubleshooting.md"


# What varies from run to run, in the page's words as re.escape() leaves them.
VARIES = ((r"n1", r"\S+"), (r"pid\\ \d+", r"pid\\ \\d+"), (r"collective\\ \d+", r"collective\\ \\d+"), (r"after\\ \d+\\ s", r"after\\ \\d+\\ s"),
          (r"\d+\\\.\d+", r"-?\\d+\\.\\d+"), (r"\d+\\ bytes", r"\\d+\\ bytes"), (r"one\\ of\\ \d+", r"one\\ of\\ \\d+"),
          (r"\\ on\\ rank\\ \d", r"\\ on\\ rank\\ \\d"), (r"running_var", r"running_\\w+"))


def shown(fault):
    """The message that the page shows for a fault, as a pattern."""
    section = PAGE.read_text().split(f"\n## {fault}\n")[1].split("\n## ")[0]
    message = next(block for block in re.findall(r"```\n(.*?)```", section, re.S) if block.startswith(("error:", "warning:")))
    pattern = re.escape(message.strip())
    for varies, instead in VARIES:
        pattern = re.sub(varies, lambda _, text=instead: text.replace("\\\\", "\\"), pattern)
    return pattern


@pytest.fixture
def provoke(mpirun, lockstep, tmp_path):
    def start(fault, ranks=2, words=(), timeout="60s", **how):
        config = write_config(tmp_path, PIMA)
        return mpirun(ranks, lockstep, "train", config, "--provoke", fault,
                      *sets(train__epochs=2, launch__timeout=timeout), *words, cwd=tmp_path, quiet=True, **how)
    return start


DETAIL = {"TORCH_DISTRIBUTED_DEBUG": "DETAIL"}
# ranks, exit status, words more, environment
CASES = {
    "skipped-collective": (2, 1, (), {}),
    "different-shape": (2, 1, (), {}),
    "different-order": (2, 1, (), DETAIL),
    "unused-parameter": (3, 1, (), {}),
    "unsynced-batchnorm": (2, 0, (), {}),
    "local-loss": (3, 0, (), {}),
}


@pytest.mark.parametrize("fault", CASES)
def test_the_page_shows_what_is_said(fault, provoke, tmp_path):
    ranks, exit_status, words, environment = CASES[fault]
    result = provoke(fault, ranks, words, env=environment, timeout="5s" if exit_status else "60s")
    name = fault.replace("-", "_")
    assert result.returncode == exit_status, result.output
    assert f"train.provoke: {name} is injected" in result.stderr
    assert re.search(shown(fault), result.stderr), (shown(fault), result.stderr)
    assert not result.left_behind
    assert status(tmp_path / f"runs/pima-{name}")["state"] == ("failed" if exit_status else "done")


@pytest.mark.parametrize("backend, fault, words", [
    ("mpi", "skipped-collective", r"rank 1 \(host \S+, pid \d+\) did not come, it is at collective \d+"),
    ("mpi", "different-shape", r"the ranks' calls differ: rank 0: all-reduce \(sum\) of 80 bytes of Float; rank 1"),
    ("shared", "different-order", r"the ranks' calls differ: rank 0: broadcast with root 0 of 80 bytes of Float; rank 1: all-reduce"),
    ("gloo", "different-shape", r"the ranks' calls differ: a message of 20 bytes came where one of 12 was expected"),
])
def test_each_backend_says_it(backend, fault, words, provoke):
    result = provoke(fault, 2, sets(launch__backend=backend))
    assert result.returncode == 1 and re.search(words, result.stderr), result.output
    assert not result.left_behind


@pytest.mark.parametrize("fault, ranks, words", [
    ("no-such-fault", 2, "train.provoke must be one of none, skipped_collective"),
    ("local-loss", 1, "local_loss takes 2 ranks or more that share the data, not 1"),
])
def test_what_cannot_be_made_is_an_error_of_all(fault, ranks, words, provoke):
    result = provoke(fault, ranks)
    assert result.returncode == 2 and result.stderr.count(words) == 1, result.output


def test_nccl_wants_a_gpu_and_says_what_the_container_lacks(provoke):
    result = provoke("nccl-in-container", 2, env={"CUDA_VISIBLE_DEVICES": ""})
    assert result.returncode == 2, result.output
    assert re.search(shown("nccl-in-container").split(r"\(")[0], result.stderr), result.stderr
    assert re.search(r"/dev/shm holds \d+ MB", result.stderr) and result.stderr.count("to do:") == 1


def test_a_provoked_run_neither_goes_on_nor_is_gone_on_with(provoke, lockstep, run, tmp_path):
    for _ in range(2):  # --resume auto begins again
        assert provoke("local-loss", words=("--resume", "auto")).returncode == 0
    assert sorted(folder.name for folder in (tmp_path / "runs").iterdir()) == ["pima-local_loss", "pima-local_loss-2"]
    refused = provoke("local-loss", words=("--resume", "runs/pima-local_loss"))
    assert refused.returncode == 2 and "into a new run alone" in refused.stderr
    ordinary = run(lockstep, "train", tmp_path / "config.yaml", "--resume", "runs/pima-local_loss", cwd=tmp_path)
    assert ordinary.returncode == 2 and "was injected there" in ordinary.stderr, ordinary.output


@pytest.mark.parametrize("eval_every", [0, 1])
def test_norms_that_drift_apart_are_told_of_whenever_is_evaluated(eval_every, lockstep, mpirun, tmp_path):
    """An evaluation shares rank 0's statistics, after which all are the same."""
    torch = pytest.importorskip("torch")
    layers = torch.nn.Linear(8, 4), torch.nn.BatchNorm1d(4), torch.nn.Linear(4, 2)
    torch.jit.script(torch.nn.Sequential(*layers)).save(str(tmp_path / "model.pt"))
    result = mpirun(2, lockstep, "train", write_config(tmp_path, PIMA), *sets(
        model__name="torchscript", model__path=tmp_path / "model.pt", train__eval_every=eval_every, train__epochs=2),
                    cwd=tmp_path, check=True)
    assert result.output.count("batch normalisation is not synchronised: 1.running_") == 1, result.output


@pytest.mark.parametrize("fault", ["unsynced-batchnorm", "local-loss"])
def test_a_provoked_runs_checkpoint_is_evaluated(fault, provoke, lockstep, run, tmp_path):
    provoke(fault)
    folder = tmp_path / "runs" / ("pima-" + fault.replace("-", "_"))
    shown = run(lockstep, "eval", folder / "config.yaml", "--checkpoint", folder, cwd=tmp_path, check=True).stdout
    assert "accuracy   0." in shown
