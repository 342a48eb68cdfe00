"""The program as a person meets it, and the harness that runs it."""

import os
import time

import pytest
from process_kit import shared_library
from train_kit import MNIST, PIMA, metrics, status, write_config, write_small_mnist

pytestmark = pytest.mark.about("cli", "base")


def test_a_run_that_hangs_is_ended_with_its_children(run):
    begin = time.monotonic()
    with pytest.raises(pytest.fail.Exception, match="still running"):
        run("bash", "-c", "trap '' TERM; set -m; sleep 600 & wait", timeout=1, grace=0.5)
    assert time.monotonic() - begin < 300


def test_what_a_run_left_behind_is_named_and_ended(run):
    result = run("bash", "-c", "sleep 600 >/dev/null 2>&1 & exit 3", grace=0.2)
    assert result.returncode == 3
    assert len(result.left_behind) == 1


def test_ranks_run_and_return_their_output(mpirun):
    result = mpirun(3, "bash", "-c", "echo here", check=True)
    assert result.stdout.splitlines() == ["here"] * 3


def test_no_launcher_leaks_into_a_test(run, monkeypatch):
    monkeypatch.setenv("SLURM_PROCID", "7")
    monkeypatch.setenv("RANK", "7")
    assert run("bash", "-c", "echo ${SLURM_PROCID:-}${RANK:-}none", check=True).stdout == "none\n"


OLD_GLIBC = """
#include <malloc.h>
#include <unistd.h>
int mallopt(int name, int value) {  // as before 2.35
  if (name != M_MMAP_THRESHOLD) return 1;
  if (value > 32 << 20) return 0;
  return write(2, "taken", 5) == 5;
}
"""


def test_the_allocator_of_an_old_glibc_is_tuned(run, lockstep, tmp_path):
    library = shared_library(tmp_path, "old_glibc.so", OLD_GLIBC)
    assert "taken" in run(lockstep, "--version", env={"LD_PRELOAD": str(library)}, check=True).stderr


@pytest.mark.parametrize("closed", [">&- 2>&-", "<&-", "<&- >&- 2>&-"])
def test_closed_descriptors_leave_the_runs_files_whole(run, lockstep, tmp_path, closed):
    config = write_config(tmp_path, PIMA)
    # without a group no socket takes the numbers before the run's files do
    script = f'exec "$0" train {config} --set train.epochs=1 --set train.mode=single --set run.dir={tmp_path}/runs {closed}'
    run("bash", "-c", script, lockstep, check=True)
    left = tmp_path / "runs/pima"
    assert [row["event"] for row in metrics(left)][-1] == "epoch"  # every line is JSON
    assert status(left)["state"] == "done"
    (events,) = left.glob("events.out.tfevents.*")
    for path in (events, left / "lock"):
        assert b"Epoch" not in path.read_bytes() and b"pima on" not in path.read_bytes()


@pytest.mark.parametrize("arguments", [
    ["config", "PIPE"],
    ["inspect", "PIPE"],
    ["inspect", "/dev/zero"],
    ["eval", "CONFIG", "--checkpoint", "PIPE"],
    ["train", "CONFIG", "--resume", "PIPE"],
    ["train", "CONFIG", "--set", "task.file=PIPE"],
    ["train", "CONFIG", "--set", "task.name=idx", "--set", "task.images=[PIPE, PIPE]", "--set",
     "task.labels=[PIPE, PIPE]"],
    ["train", "CONFIG", "--set", "model.name=torchscript", "--set", "model.path=PIPE"],
    ["train", "CONFIG", "--set", "task.name=PIPE.so"],
    ["status", "FOLDER"],
], ids=lambda words: " ".join(words[:1] + words[-1:]))
def test_a_pipe_in_place_of_a_file_is_refused_and_not_waited_for(run, lockstep, tmp_path, arguments):
    for name in ("pipe", "pipe.so", "status.json"):
        os.mkfifo(tmp_path / name)
    (tmp_path / "data.csv").write_text("a,b\n1,0\n2,1\n3,0\n4,1\n")
    config = write_config(tmp_path, "task: {name: csv, file: data.csv, header: true}\ndata: {batch_size: 1}\n")
    places = {"PIPE": "pipe", "CONFIG": config.name, "FOLDER": "."}
    for name, place in places.items():
        arguments = [word.replace(name, place) for word in arguments]
    result = run(lockstep, *arguments, cwd=tmp_path)
    assert result.returncode == 2, result.output
    assert ", not a file" in result.stderr and "where:" in result.stderr and "to do:" in result.stderr


def test_an_image_that_is_a_pipe_is_refused(run, lockstep, tmp_path):
    root = write_small_mnist(tmp_path / "data", train=64, test=10)
    config = write_config(tmp_path, MNIST)
    more = ["--set", f"data.root={root}", "--set", f"run.dir={tmp_path}/runs"]
    run(lockstep, "train", config, *more, "--set", "data.batch_size=64", check=True)
    os.mkfifo(tmp_path / "seven.png")
    result = run(lockstep, "predict", config, *more, "--checkpoint", tmp_path / "runs/mnist", "--input",
                 tmp_path / "seven.png")
    assert result.returncode == 2, result.output
    assert "is a pipe, not a file" in result.stderr


@pytest.mark.parametrize("environment", [
    {"PBS_JOBID": "7.server", "PBS_NODEFILE": "PIPE"},
    {"LSB_JOBID": "7", "LSB_DJOB_RANKFILE": "PIPE", "JSM_NAMESPACE_RANK": "0", "JSM_NAMESPACE_SIZE": "1"},
])
def test_a_pipe_as_node_file_holds_nobody(run, lockstep, tmp_path, environment):
    os.mkfifo(tmp_path / "pipe")
    environment = {name: value.replace("PIPE", str(tmp_path / "pipe")) for name, value in environment.items()}
    run(lockstep, "whoami", env=environment, check=True)


def test_lost_log_lines_are_said_and_the_run_is_whole(run, lockstep, tmp_path):
    config = write_config(tmp_path, PIMA)
    result = run("sh", "-c", f'exec "$0" train {config} --set run.dir={tmp_path}/runs > /dev/full', lockstep)
    assert result.returncode == 1
    assert result.stderr.count("the standard output cannot be written: the run goes on") == 1
    assert "No space left on device" in result.stderr and "to do:" in result.stderr
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


def test_a_preloaded_tools_destructor_runs(run, lockstep, tmp_path):
    source = '#include <stdio.h>\n#include <stdlib.h>\n__attribute__((destructor)) void left(void) { fclose(fopen(getenv("LEFT"), "w")); }\n'
    tool = shared_library(tmp_path, "tool.so", source)
    run(lockstep, "--version", env={"LD_PRELOAD": tool, "LEFT": tmp_path / "left"}, check=True)
    assert (tmp_path / "left").exists()
