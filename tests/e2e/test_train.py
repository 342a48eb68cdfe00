"""`lockstep train` as a person meets it: log lines, the run's folder, dry runs, eval, predict, bad input."""

import json
import pickle
import re
import shutil

import pytest

from conftest import run_process
from train_kit import (MNIST, PIMA, assert_same_run, checkpoints, metrics, newest, sets, status, write_config)

pytestmark = pytest.mark.about("loop", "cli", "config", "tasks", "run_folder")


@pytest.fixture(scope="session")
def pima_run(once, lockstep, mpiexec):
    """A whole Pima run at world 2, which no test changes: (its folder, what it printed, its config)."""
    def make(folder):
        result = run_process([mpiexec, "-n", 2, lockstep, "train", write_config(folder, PIMA)], cwd=folder,
                             check=True, env={"LOCKSTEP_RUN_FILE": folder / "run-file"})
        (folder / "result").write_bytes(pickle.dumps(result))
    folder = once("pima_run", make)
    return folder / "runs/pima", pickle.loads((folder / "result").read_bytes()), folder / "config.yaml"


def test_log_lines(pima_run):
    _, result, _ = pima_run
    lines = result.stdout.splitlines()
    assert re.fullmatch(r"Epoch \[1/4\], Step \[3/\d+\], Loss: \d\.\d{4}", lines[0])
    assert [line.split(" | ")[0] for line in lines if "Average Loss" in line] == [f"Epoch {i}" for i in range(4)]
    assert all(re.fullmatch(r"Epoch \d \| Average Loss: \d+\.\d{4}", line) for line in lines if "Average" in line)
    assert any(re.fullmatch(r"Total DDP Training Time: \d+\.\d\ds", line) for line in lines)
    assert any(re.match(r"Time per rank: data .*forward .*backward .*waiting for communication .*optimizer", line)
               for line in lines)
    assert any(re.match(r"Slowest rank: [01] on \S+", line) for line in lines)
    assert "\r" not in result.output  # no terminal, no redrawing


def test_tensorboard_reads_the_event_file(pima_run):
    reader = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    run, _, _ = pima_run
    events = reader.EventAccumulator(str(run)).Reload()
    assert {"train/loss", "train/lr", "eval/loss", "eval/accuracy"} <= set(events.Tags()["scalars"])
    written = [(line["step"], line["loss"]) for line in metrics(run) if line["event"] == "step"]
    assert [(event.step, pytest.approx(event.value, rel=1e-6)) for event in events.Scalars("train/loss")] == written
    tag, hparams = "_hparams_/session_start_info", pytest.importorskip("tensorboard.plugins.hparams.plugin_data_pb2")
    told = hparams.HParamsPluginData.FromString(events.PluginTagToContent("hparams")[tag]).session_start_info.hparams
    assert (told["optim.name"].string_value, told["train.epochs"].number_value, tag in events.Tags()["tensors"]) == ("adam", 4, True)


def test_run_folder(pima_run, lockstep, run):
    folder, _, config = pima_run
    assert (config.parent / "run-file").read_text() == f"{folder}\n"  # for a job script; run.dir was relative
    assert {"config.yaml", "metrics.jsonl", "status.json", "checkpoints"} <= {path.name for path in folder.iterdir()}
    text = (folder / "config.yaml").read_text()
    assert re.findall(r"backend: *(\w+)", text) == ["shared"]
    told = run(lockstep, "status", folder)
    assert told.returncode == 0 and told.stdout.startswith("finished all epochs")
    assert len(checkpoints(folder)) == 3  # checkpoint.keep
    steps = status(folder)["step"]
    assert checkpoints(folder)[-1].name == f"step-{steps:08}.pt"
    state = newest(folder)
    assert state["iter_no"] == steps and set(state) >= {"iter_no", "epoch", "model", "optimizer"}


def test_the_folders_config_trains_the_same(pima_run, lockstep, mpirun, tmp_path):
    folder, _, _ = pima_run
    mpirun(2, lockstep, "train", folder / "config.yaml", *sets(run__dir=tmp_path / "runs"), cwd=tmp_path, check=True)
    assert_same_run(folder, tmp_path / "runs/pima")


def test_max_steps_leaves_a_checkpoint_and_evaluates(lockstep, run, tmp_path):
    config = write_config(tmp_path, PIMA)
    run(lockstep, "train", config, *sets(train__max_steps=5), cwd=tmp_path, check=True)
    folder = tmp_path / "runs/pima"
    assert [file.name for file in checkpoints(folder)] == ["step-00000005.pt"]
    assert metrics(folder)[-1]["event"] == "epoch" and "accuracy" in metrics(folder)[-1]
    run(lockstep, "train", config, *sets(train__max_steps=5, train__eval_every=0), cwd=tmp_path, check=True)
    assert "accuracy" not in metrics(tmp_path / "runs/pima-2")[-1]


def test_without_a_sample_to_evaluate_on_nothing_is_said_of_it(lockstep, run, tmp_path):
    config = write_config(tmp_path, PIMA)
    none_left = sets(task__eval_fraction=0)
    result = run(lockstep, "train", config, *none_left, cwd=tmp_path, check=True)
    assert "Evaluation" not in result.output and not (tmp_path / "runs/pima/checkpoints/best.pt").exists()
    assert not any("eval_loss" in line or "accuracy" in line for line in metrics(tmp_path / "runs/pima"))
    for words in (["train", *sets(train__early_stop=2)], ["eval", "--checkpoint", "runs/pima"]):
        refused = run(lockstep, words[0], config, *none_left, *words[1:], cwd=tmp_path)
        assert refused.returncode == 2 and "no sample is left for evaluation" in refused.stderr, refused.output


def test_dry_run_writes_nothing(lockstep, mpirun, tmp_path):
    config = write_config(tmp_path, MNIST)
    result = mpirun(2, lockstep, "train", config, "--dry-run", cwd=tmp_path, check=True)
    assert "model       simple_cnn: 421642 parameters" in result.stdout
    assert "optimizer   sgd, schedule none" in result.stdout
    assert re.search(r"steps +235 per epoch", result.stdout)
    assert re.search(r"time +[\d.]+ ms per step", result.stdout)
    told = json.loads(mpirun(2, lockstep, "train", config, "--dry-run", "--json", cwd=tmp_path, check=True).stdout)
    assert (told["parameters"], told["steps_per_epoch"], told["ranks"], told["optimizer"]) == (421642, 235, 2, "sgd")
    assert told["rank_mb"] == pytest.approx(3 * told["model_mb"]) and told["step_seconds"] > 0
    assert not (tmp_path / "runs").exists()


def test_eval_takes_a_run_folder(pima_run, lockstep, mpirun, run, tmp_path):
    """As the job scripts do: the run's own config and its best checkpoint, or its newest whole one."""
    folder = shutil.copytree(pima_run[0], tmp_path / "copy")
    best = folder / "checkpoints/best.pt"
    told = run(lockstep, "eval", folder, check=True)
    assert told.stdout.startswith(f"{best} on 154 samples\n")
    lowest = min(line["eval_loss"] for line in metrics(folder) if "eval_loss" in line)
    answer = json.loads(run(lockstep, "eval", folder, "--json", check=True).stdout)
    assert (answer["schema"], answer["checkpoint"], answer["samples"]) == (1, str(best), 154)
    assert answer["metrics"]["loss"] == pytest.approx(lowest, rel=1e-6)
    best.write_bytes(best.read_bytes()[:-1000])
    assert "best.pt is skipped" in run(lockstep, "eval", folder, check=True).stderr
    best.unlink()
    last, before = checkpoints(folder)[-1], checkpoints(folder)[-2]
    words = ["eval", folder / "config.yaml", "--checkpoint"]
    last.write_bytes(last.read_bytes()[:-1000])
    result = mpirun(2, lockstep, *words, folder, check=True)
    assert result.stdout.startswith(f"{before} on 154 samples\n") and last.name in result.stderr, result.output
    (tmp_path / "empty").mkdir()
    result = run(lockstep, *words, tmp_path / "empty")
    assert result.returncode == 2 and "no complete checkpoint" in result.stderr, result.output


@pytest.mark.mpi
def test_a_bad_loss_stops_the_job(lockstep, mpirun, tmp_path):
    config = write_config(tmp_path, PIMA)
    words = sets(optim__name="sgd", optim__lr=1e30, train__epochs=3, checkpoint__every_steps=1)
    result = mpirun(2, lockstep, "train", config, *words, cwd=tmp_path, quiet=True)
    assert result.returncode == 1, result.output
    assert re.search(r"the loss is -?(nan|inf) at step \d+", result.stderr), result.stderr
    assert re.search(r"epoch 0, rank [01], samples \d+(, \d+){4}, \.\.\. \(16 in the batch\)$", result.stderr, re.M)
    folder = tmp_path / "runs/pima"
    assert status(folder)["state"] == "failed" and "the loss is" in status(folder)["reason"]
    torch = pytest.importorskip("torch")
    for file in checkpoints(folder):
        assert all(torch.isfinite(tensor).all() for tensor in torch.load(file, weights_only=True)["model"].values())
