"""Injected faults: each says what docs/how-to/error-messages.md says, ends as the real one, and leaves nobody behind."""

import re

import pytest

from conftest import SOURCE
from train_kit import PIMA, sets, status, write_config

pytestmark = pytest.mark.about("loop", "cli")

PAGE = SOURCE / "docs/how-to/error-messages.md"


# What varies from run to run, in the page's words as re.escape() leaves them.
VARIES = ((r"n1", r"\S+"), (r"pid\\ \d+", r"pid\\ \\d+"), (r"collective\\ \d+", r"collective\\ \\d+"), (r"after\\ \d+\\ s", r"after\\ \\d+\\ s"),
          (r"\d+\\\.\d+", r"-?\\d+\\.\\d+"), (r"\d+\\ bytes", r"\\d+\\ bytes"), (r"one\\ of\\ \d+", r"one\\ of\\ \\d+"),
          (r"\\ on\\ rank\\ \d", r"\\ on\\ rank\\ \\d"), (r"running_var", r"running_\\w+"))


def shown(fault):
    """The message that the page shows for a fault, as a pattern."""
    section = PAGE.read_text().split(f"\n### {fault}\n")[1].split("\n##")[0]
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


@pytest.mark.parametrize("fault, ranks, exit_status, environment", [
    ("skipped-collective", 2, 1, {}), ("unsynced-batchnorm", 2, 0, {}), ("local-loss", 3, 0, {}),
    *(pytest.param(*row, marks=pytest.mark.full) for row in (
        ("different-shape", 2, 1, {}), ("different-order", 2, 1, {"TORCH_DISTRIBUTED_DEBUG": "DETAIL"}), ("unused-parameter", 3, 1, {})))])
def test_the_page_shows_what_is_said(fault, ranks, exit_status, environment, provoke, tmp_path):
    result = provoke(fault, ranks, env=environment, timeout="5s" if exit_status else "60s")
    name = fault.replace("-", "_")
    assert result.returncode == exit_status, result.output
    assert f"train.provoke: {name} is injected" in result.stderr
    assert re.search(shown(fault), result.stderr), (shown(fault), result.stderr)
    assert not result.left_behind
    assert status(tmp_path / f"runs/pima-{name}")["state"] == ("failed" if exit_status else "done")
