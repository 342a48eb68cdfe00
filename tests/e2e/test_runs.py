"""lockstep runs: the runs of a folder side by side, whatever else lies there."""

import csv
import json
import os
import shutil
import sys

import pytest

from conftest import run_process
from docs_kit import blocks
from train_kit import ANY_CPU, PIMA, metrics, write_config

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
    assert head.split() == ["run", "state", "epoch", "step", "eval_loss", "best", "accuracy", "best", "run.seed", "optim.lr", "when"]
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


def test_the_csv_has_what_the_json_has(place, lockstep, run, tmp_path):
    shutil.copytree(place / "runs", tmp_path / "runs", symlinks=True)
    (tmp_path / "runs/other").rename(tmp_path / 'runs/a, "b"')
    (tmp_path / 'runs/a, "b"/metrics.jsonl').open("a").write('{"event": "eval", "step": 9, "x,\\"y": 1.5}\n')
    rows = csv.DictReader(run(lockstep, "runs", "--csv", cwd=tmp_path, check=True).stdout.splitlines())
    told = json.loads(run(lockstep, "runs", "--json", cwd=tmp_path, check=True).stdout, parse_float=str)
    for row, one in zip(rows, told["runs"], strict=True):
        metrics = {f"{prefix}{name}": values[key] for name, values in one["metrics"].items() for prefix, key in (("", "last"), ("best ", "best"))}
        wanted = {name: one[name] for name in ("name", "state", "epoch", "step", "seconds")} | metrics | one["differs"]
        assert row == {name: str(value) for name, value in wanted.items()}


def test_sorted(place, lockstep, run):
    """By a setting, by when, and by a metric with the best first."""
    for key, names in (("run.seed", ["pima", "pima-2", "other"]), ("when", ["other", "pima-2", "pima"])):
        assert [one["name"] for one in listed(lockstep, run, place, "--sort", key)["runs"]] == names, key
    by_accuracy = [one["metrics"]["accuracy"]["best"] for one in listed(lockstep, run, place, "--sort", "accuracy")["runs"]]
    assert by_accuracy == sorted(by_accuracy, reverse=True)


def test_what_is_no_run_is_said_and_passed_over(place, lockstep, run, tmp_path):
    runs = tmp_path / "runs"
    shutil.copytree(place / "runs/pima", runs / "pima")
    for name in ("foreign", "half", "torn", "pipe", "a \x1b[31m name\n", ".hidden"):
        (runs / name).mkdir()
    (runs / "foreign/notes.txt").write_text("mine")
    (runs / "half/config.yaml").write_text("run: {name: half}\n")
    (runs / "torn/status.json").write_text('{"state": "do')
    os.mkfifo(runs / "pipe/status.json")
    result = run(lockstep, "runs", cwd=tmp_path, check=True)
    found = listed(lockstep, run, tmp_path)
    assert len(result.stdout.splitlines()) == 2
    assert [one["folder"].removeprefix("runs/") for one in found["passed_over"]] == [
        "a \x1b[31m name\n", "foreign", "half", "pipe", "torn"]
    assert all(one["reason"] for one in found["passed_over"])
    for words in ("foreign: not a run folder", "half: ", "torn: status.json is damaged", "pipe: "):
        assert words in result.stderr
    assert "\x1b" not in result.stderr and ".hidden" not in result.stderr


@pytest.mark.full
def test_the_recipe_of_the_docs_imports_runs_into_mlflow_and_weights_and_biases(place, run, monkeypatch, tmp_path):
    """No lock file has these packages: pip install --target DIR mlflow-skinny wandb; PYTHONPATH=DIR scripts/test FILE::TEST"""
    mlflow = pytest.importorskip("mlflow", reason="needs pip install mlflow-skinny")
    pytest.importorskip("wandb", reason="needs pip install wandb")
    (block,) = (block for block in blocks("python") if "mlflow" in block.text)
    (tmp_path / "runs").symlink_to(place / "runs")
    for name, value in {"MLFLOW_TRACKING_URI": f"file:{tmp_path}/mlruns", "MLFLOW_ALLOW_FILE_STORE": "true", "WANDB_MODE": "offline"}.items():
        monkeypatch.setenv(name, value)
    run(sys.executable, "-c", block.text, cwd=tmp_path, check=True)
    imported = {each.info.run_name: each.data for each in mlflow.MlflowClient().search_runs(["0"])}
    offline = [file.read_bytes() for file in tmp_path.glob("wandb/offline-run-*/run-*.wandb")]
    assert len(offline) == len(imported) == 3
    for name, data in imported.items():
        last = metrics(place / "runs" / name)[-1]
        assert data.metrics["accuracy"] == last["accuracy"] and data.params["optim.name"] == "adam"
        assert any(str(last["eval_loss"]).encode() in text for text in offline)
