"""A call of each command that does its work, in seconds: what `scripts/test --quick` runs after any change."""

import re

import pytest

from conftest import SOURCE, run_process
from train_kit import PIMA, write_config

pytestmark = pytest.mark.about("every command")

# command: (arguments, status, what it prints); the first one makes the run that others ask about
CALLS = {
    "train": ("config.yaml --set train.max_steps=3", 0, "Total DDP Training Time"),
    "eval": ("config.yaml --checkpoint runs/pima", 0, "on 154 samples"),
    "predict": (f"config.yaml --checkpoint runs/pima --input {SOURCE}/data/pima/pima-indians-diabetes.csv", 0, "class"),
    "export": ("config.yaml --checkpoint runs/pima --output folder", 2, "works only with model.name: bert"),
    "status": ("runs/pima", 0, "done: max_steps"),
    "stop": ("runs/pima", 2, "the run has ended: done"),
    "checkpoint": ("runs/pima", 2, "the run has ended: done"),
    "runs": ("runs", 0, r"pima +done"),
    "report": ("runs/pima", 0, "runs/pima/report.html"),
    "inspect": ("runs/pima --json", 0, "model.fc1.weight"),
    "config": ("config.yaml", 0, "name: pima"),
    "check": ("", 2, "lockstep workshop init"),
    "workshop": ("init course", 0, "lockstep check"),
    "whoami": ("", 0, "1 rank on 1 node"),
    "render": ("slurm config.yaml", 0, "#SBATCH"),
    "submit": ("config.yaml --scheduler slurm --dry-run", 0, "#SBATCH"),
    "site": ("list", 0, "slurm"),
    "job": ("--help", 0, "lockstep job train"),
    "doctor": ("config.yaml --json", None, '"verdict"'),
    "model": ("template", 0, "torch.export.save"),
    "bench": ("step config.yaml", 0, "backward"),
    "data": ("list", 0, "handwritten digits"),
}


@pytest.fixture(scope="module")
def folder(lockstep, tmp_path_factory):
    """A folder with a config and its finished run."""
    folder = tmp_path_factory.mktemp("commands")
    write_config(folder, PIMA)
    words = CALLS["train"][0].split()
    assert CALLS["train"][2] in run_process([lockstep, "train", *words], cwd=folder, check=True).output
    return folder


def test_no_command_is_left_out(lockstep):
    listed = run_process([lockstep, "--help"], check=True).stdout.split("commands:\n")[1].split("\noptions:")[0]
    assert set(re.findall(r"^  (\w+) ", listed, re.M)) == set(CALLS) == {"train"}.union(*GROUPS)


# the slow ones alone, the others several in one test
GROUPS = (("eval", "predict", "export", "status", "stop", "checkpoint", "runs", "report", "inspect"),
          ("config", "check", "workshop", "whoami", "render", "submit", "site", "job", "model", "data"), ("doctor",), ("bench",))


@pytest.mark.parametrize("commands", GROUPS, ids=lambda commands: f"{commands[0]} to {commands[-1]}" if len(commands) > 1 else commands[0])
def test_each_does_its_work(commands, folder, lockstep):
    wrong = []
    for command in commands:
        words, status, printed = CALLS[command]
        if command in ("check", "workshop") and not (lockstep.parent / "lockstep-workshop").exists():
            status, printed = 2, "the course is not installed"
        call = ["help", "job"] if command == "job" else [command, *words.split()]
        result = run_process([lockstep, *call], cwd=folder, env={"LOCKSTEP_HOME": str(SOURCE)})
        if status not in (result.returncode, None) or not re.search(printed, result.output):
            wrong.append((command, result.returncode, result.output))
    assert not wrong
