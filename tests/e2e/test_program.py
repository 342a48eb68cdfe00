"""The program as a person meets it, and the harness that runs it."""

import os

import pytest
from train_kit import PIMA, metrics, status, write_config

pytestmark = pytest.mark.about("cli", "base")


def test_closed_descriptors_leave_the_runs_files_whole(run, lockstep, tmp_path):
    config = write_config(tmp_path, PIMA)
    # without a group no socket takes the numbers before the run's files do
    script = f'exec "$0" train {config} --set train.epochs=1 --set train.mode=single --set run.dir={tmp_path}/runs <&- >&- 2>&-'
    run("bash", "-c", script, lockstep, check=True)
    left = tmp_path / "runs/pima"
    assert [row["event"] for row in metrics(left)][-1] == "epoch"  # every line is JSON
    assert status(left)["state"] == "done"
    (events,) = left.glob("events.out.tfevents.*")
    for path in (events, left / "config.yaml"):
        assert b"Epoch" not in path.read_bytes() and b"pima on" not in path.read_bytes()


def test_a_pipe_in_place_of_a_file_is_refused_and_not_waited_for(run, lockstep, tmp_path):
    for name in ("pipe", "pipe.so", "status.json"):
        os.mkfifo(tmp_path / name)
    (tmp_path / "data.csv").write_text("a,b\n1,0\n2,1\n3,0\n4,1\n")
    config = write_config(tmp_path, "task: {name: csv, file: data.csv, header: true}\ndata: {batch_size: 1}\n").name
    wrong = []
    for words in (["config", "pipe"], ["inspect", "/dev/zero"], ["status", "."], ["eval", config, "--checkpoint", "pipe"],
                  ["train", config, "--resume", "pipe"], ["train", config, "--set", "task.file=pipe"],
                  ["train", config, "--set", "task.name=idx", "--set", "task.images=[pipe, pipe]", "--set", "task.labels=[pipe, pipe]"],
                  ["train", config, "--set", "model.name=torchscript", "--set", "model.path=pipe"],
                  ["train", config, "--set", "task.name=pipe.so"]):
        result = run(lockstep, *words, cwd=tmp_path)
        if result.returncode != 2 or not all(said in result.stderr for said in (", not a regular file", "-->", "hint:")):
            wrong.append((words, result.output))
    assert not wrong


def test_lost_log_lines_are_said_and_the_run_is_whole(run, lockstep, tmp_path):
    config = write_config(tmp_path, PIMA)
    result = run("sh", "-c", f'exec "$0" train {config} --set run.dir={tmp_path}/runs > /dev/full', lockstep)
    assert result.returncode == 1
    assert result.stderr.count("standard output cannot be written: the run continues") == 1
    assert "No space left on device" in result.stderr and "hint:" in result.stderr
    assert status(tmp_path / "runs/pima")["state"] == "done"


def test_a_reader_that_leaves_early_is_no_failure(run, lockstep, tmp_path):
    config = write_config(tmp_path, PIMA)
    script = f'set -o pipefail; "$0" train {config} --set run.dir={tmp_path}/runs | head -n 1'
    assert "warning" not in run("bash", "-c", script, lockstep, check=True).stderr


def test_what_a_plug_in_leaves_for_the_exit_is_done(run, lockstep, build_dir, tmp_path):
    """The program leaves without libtorch's destructors, and with those of libraries that it loaded later."""
    config = write_config(tmp_path, f"run: {{name: a}}\ntask: {{name: {next(build_dir.glob('**/slow_task.so'))}}}\n")
    run(lockstep, "train", config, "--set", "train.max_steps=1", cwd=tmp_path, env={"AT_EXIT": tmp_path / "left"}, check=True)
    assert (tmp_path / "left").exists()
