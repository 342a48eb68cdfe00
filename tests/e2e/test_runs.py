"""lockstep runs: the runs of a folder side by side, whatever else lies there."""

import json
import os

import pytest

from conftest import run_process
from process_kit import on_terminal
from train_kit import ANY_CPU, PIMA, write_config

pytestmark = pytest.mark.about("cli", "run_folder", "report")


@pytest.fixture(scope="module")
def place(lockstep, tmp_path_factory):
    """Three runs of two rates, the third of another seed and stopped early."""
    place = tmp_path_factory.mktemp("runs")
    config = write_config(place, PIMA)
    for rate, seed, more in (("0.001", 0, []), ("0.01", 0, []), ("0.01", 1, ["--set", "run.name=other"])):
        run_process([lockstep, "train", config, "--set", f"optim.lr={rate}", "--set", f"run.seed={seed}", "--set",
                     "train.epochs=2", *more], cwd=place, env=ANY_CPU, check=True)
    status = place / "runs/other/status.json"
    status.write_text(json.dumps({**json.loads(status.read_text()), "state": "stopped early", "reason": "SIGUSR1"}))
    return place


def listed(lockstep, run, place, *words):
    return json.loads(run(lockstep, "runs", "--json", *words, cwd=place, check=True).stdout)


def test_states_metrics_and_what_differs(place, lockstep, run):
    result = run(lockstep, "runs", cwd=place, check=True)
    head, *rows = result.stdout.splitlines()
    assert head.split() == ["run", "state", "epoch", "step", "eval_loss", "best", "accuracy", "best", "run.seed", "optim.lr",
                            "when"]
    assert [row.split()[0] for row in rows] == ["other", "pima", "pima-2"]
    assert "stopped early" in rows[0] and all(row.split()[1] == "done" for row in rows[1:])
    assert [row.split()[-3] for row in rows] == ["0.01", "0.001", "0.01"] and not result.stderr


def test_what_a_program_gets_is_what_the_runs_wrote(place, lockstep, run):
    found = listed(lockstep, run, place)
    assert found["differs"] == ["run.seed", "optim.lr"] and not found["passed_over"]
    for one in found["runs"]:
        folder = place / one["folder"]
        epochs = [line for line in map(json.loads, (folder / "metrics.jsonl").read_text().splitlines())
                  if line["event"] == "epoch"]
        assert one["metrics"]["eval_loss"] == {"last": epochs[-1]["eval_loss"], "best": min(e["eval_loss"] for e in epochs)}
        assert one["metrics"]["accuracy"]["best"] == max(e["accuracy"] for e in epochs)
        known = json.loads((folder / "status.json").read_text())
        assert one["state"] == known["state"]
        verdict = run(lockstep, "status", folder).stdout
        beginning = "finished all epochs" if (known["state"], known["reason"]) == ("done", "epochs") else known["state"]
        assert verdict.startswith(beginning) and f"step {one['step']}, {one['epoch']} of {one['epochs']} epochs" in verdict


@pytest.mark.parametrize("key, names", [("optim.lr", ["pima", "other", "pima-2"]), ("run.seed", ["pima", "pima-2", "other"]),
                                        ("when", ["other", "pima-2", "pima"])])
def test_sorted(key, names, place, lockstep, run):
    assert [one["name"] for one in listed(lockstep, run, place, "--sort", key)["runs"]] == names


def test_the_best_come_first(place, lockstep, run):
    by_loss = [one["metrics"]["eval_loss"]["best"] for one in listed(lockstep, run, place, "--sort", "eval_loss")["runs"]]
    by_accuracy = [one["metrics"]["accuracy"]["best"] for one in listed(lockstep, run, place, "--sort", "accuracy")["runs"]]
    assert by_loss == sorted(by_loss) and by_accuracy == sorted(by_accuracy, reverse=True)


@pytest.mark.parametrize("columns", [40, 80, 200])
def test_a_terminal_is_wide_enough(columns, place, lockstep, start):
    text = on_terminal(start, lockstep, "runs", columns=columns, cwd=place)
    lines = text.replace("\r", "").splitlines()
    assert len(lines) == (4 if columns == 200 else 5)
    assert all(len(line) <= columns for line in lines[:4]), text
    assert ("no room for: " in lines[-1]) == (columns < 200) and "other" in lines[1]


def test_what_is_no_run_is_said_and_passed_over(place, lockstep, run):
    runs = place / "runs"
    (runs / "foreign").mkdir()
    (runs / "foreign/notes.txt").write_text("mine")
    (runs / "half").mkdir()
    (runs / "half/config.yaml").write_text("run: {name: half}\n")
    (runs / "torn").mkdir()
    (runs / "torn/status.json").write_text('{"state": "do')
    (runs / "pipe").mkdir()
    os.mkfifo(runs / "pipe/status.json")
    (runs / "a \x1b[31m name\n").mkdir()
    (runs / ".hidden").mkdir()
    try:
        result = run(lockstep, "runs", cwd=place, check=True)
        found = listed(lockstep, run, place)
    finally:
        (runs / "pipe/status.json").unlink()
        for path in ("foreign/notes.txt", "half/config.yaml", "torn/status.json"):
            (runs / path).unlink()
        for name in ("foreign", "half", "torn", "pipe", "a \x1b[31m name\n", ".hidden"):
            (runs / name).rmdir()
    assert len(result.stdout.splitlines()) == 4
    assert [one["folder"].removeprefix("runs/") for one in found["passed_over"]] == [
        "a \x1b[31m name\n", "foreign", "half", "pipe", "torn"]
    assert all(one["reason"] for one in found["passed_over"])
    for words in ("foreign: this is no run's folder", "half: ", "torn: status.json is not what a run writes", "pipe: "):
        assert words in result.stderr
    assert "\x1b" not in result.stderr and ".hidden" not in result.stderr


def test_unreadable_settings_and_metrics_cost_only_themselves(place, lockstep, run, tmp_path):
    (tmp_path / "runs/mine").mkdir(parents=True)
    (tmp_path / "runs/mine/status.json").write_bytes((place / "runs/pima/status.json").read_bytes())
    (tmp_path / "runs/mine/config.yaml").write_text("run: [")
    (tmp_path / "runs/mine/metrics.jsonl").write_text('{"event":"epoch","step":1,"epoch":0,"eval_loss":null}\n{"ev')
    result = run(lockstep, "runs", cwd=tmp_path, check=True)
    assert result.stdout.splitlines()[1].split()[:2] == ["mine", "done"]
    assert "config.yaml" in result.stderr and "1 line could not be read" in result.stderr


def test_a_run_that_died_is_failed(place, lockstep, run, tmp_path):
    (tmp_path / "runs/dead").mkdir(parents=True)
    status = json.loads((place / "runs/pima/status.json").read_text())
    (tmp_path / "runs/dead/status.json").write_text(json.dumps({**status, "state": "running"}))
    (one,) = listed(lockstep, run, tmp_path)["runs"]
    assert one["state"] == "failed" and "ended without a word" in one["reason"]


def test_an_empty_folder_says_so(lockstep, run, tmp_path):
    result = run(lockstep, "runs", tmp_path, check=True)
    assert result.stdout == f"no runs in {tmp_path}\n"
    assert listed(lockstep, run, tmp_path, tmp_path)["runs"] == []


@pytest.mark.parametrize("words, what", [(["nowhere"], "no such folder"), (["--sort", "eval_los"], "did you mean eval_loss"),
                                         (["--sort", "zebra"], "the runs have no 'zebra'")])
def test_wrong_words(words, what, place, lockstep, run):
    result = run(lockstep, "runs", *words, cwd=place)
    assert result.returncode == 2 and what in result.stderr


def test_one_runs_own_folder_is_a_list_of_one(place, lockstep, run):
    assert [one["name"] for one in listed(lockstep, run, place, "runs/pima-2")["runs"]] == ["pima-2"]


def test_under_a_launcher_there_is_one_table(place, lockstep, mpirun):
    assert mpirun(2, lockstep, "runs", cwd=place, check=True).stdout.count("eval_loss") == 1
