"""One report: what goes wrong is said once for the job, in words that no terminal obeys."""

import json
import os
import signal
import socket
import subprocess
import threading

import pytest
from conftest import OPEN_MPI, members
from process_kit import PATIENCE, shared_library, wait_for
from train_kit import DATA, PIMA, sets, write_config

pytestmark = pytest.mark.about("launch", "cli")

ESCAPE = "\x1b[31mred\x1b]0;title\x07\x9b"


@pytest.mark.mpi
@pytest.mark.parametrize("environment, words", [
    ({"RANK": "two", "WORLD_SIZE": 2}, "RANK=two is not a number"),
    ({"RANK": 0}, "RANK=0 is set but WORLD_SIZE is not"),
    ({"RANK": 0, "WORLD_SIZE": 2, "LOCAL_RANK": 5}, "lies outside"),
], ids=["no number", "half a pair", "outside"])
def test_an_environment_that_is_wrong_for_all_is_said_once(mpirun, lockstep, environment, words):
    result = mpirun(4, lockstep, "whoami", env=environment, quiet=True)
    assert result.returncode == 2
    assert result.stderr.count(words) == 1 and result.stderr.count("to do:") == 1


@pytest.mark.mpi
def test_ranks_that_wait_for_one_say_so_once(mpirun, mpi, lockstep):
    script = f'[ "${mpi.rank}" = 1 ] && exec sleep 3600; exec {lockstep} whoami'
    result = mpirun(4, "sh", "-c", script, env={"LOCKSTEP_JOIN_TIMEOUT": 2}, quiet=True)
    assert result.returncode != 0 and result.stderr.count("not every rank arrived") == 1


def test_one_ranks_own_wrong_environment_is_said(mpirun, lockstep):
    script = f'[ "$OMPI_COMM_WORLD_RANK" = 2 ] && export RANK=two WORLD_SIZE=2; exec {lockstep} whoami'
    result = mpirun(4, "sh", "-c", script, env={"LOCKSTEP_JOIN_TIMEOUT": 5}, quiet=True)
    assert result.returncode == 2 and result.stderr.count("RANK=two is not a number") == 1, result.output


@pytest.mark.mpi
def test_a_peers_death_is_said_once(start, mpiexec, mpi, lockstep, tmp_path):
    config = write_config(tmp_path, PIMA)
    log = tmp_path / "log"
    process = start(mpiexec, *mpi.quiet, "-n", "4", lockstep, "train", config, *sets(train__epochs=100000), cwd=tmp_path,
                    stdout=open(log, "w"), stderr=open(tmp_path / "err", "w"))
    wait_for(lambda: "Epoch 1 |" in log.read_text(), what="two epochs")
    ranks = [pid for pid in members(process) if f"{mpi.rank}=2\0".encode() in open(f"/proc/{pid}/environ", "rb").read()]
    os.kill(ranks[-1], signal.SIGKILL)
    assert process.wait(PATIENCE) != 0
    said = (tmp_path / "err").read_text()
    errors = [line for line in said.splitlines() if "error: " in line]
    if mpi is OPEN_MPI:  # hydra may end all ranks before one of them has seen anything
        assert len(errors) == 1, said
    assert len(errors) <= 1 and all(f"rank 2 (host {os.uname().nodename}, pid {ranks[-1]}) has died" in line
                                    for line in errors), said


# a sandbox that refuses names to local sockets
NO_NAMES = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <sys/socket.h>
int bind(int file, const struct sockaddr *address, socklen_t size) {
  errno = EACCES;
  if (address->sa_family == AF_UNIX) return -1;
  return ((int (*)(int, const struct sockaddr *, socklen_t))dlsym(RTLD_NEXT, "bind"))(file, address, size);
}
"""


def test_errors_are_said_where_the_ranks_cannot_agree_who_speaks(start, lockstep, tmp_path):
    shim = shared_library(tmp_path, "no_names.so", NO_NAMES)
    step = {"LD_PRELOAD": shim, "SLURM_JOB_ID": 5, "SLURM_STEP_ID": 0, "SLURM_STEP_NUM_TASKS": 2}
    ranks = [start(lockstep, "train", "none.yaml", env={**step, "SLURM_PROCID": rank}, stderr=subprocess.PIPE, text=True)
             for rank in range(2)]
    for rank in ranks:
        _, said = rank.communicate(timeout=PATIENCE)
        assert rank.returncode == 2 and "the config cannot be read" in said


@pytest.mark.parametrize("rank", [0, 1])
def test_a_failed_join_shows_no_stack_of_libtorchs(run, lockstep, tmp_path, free_port, rank):
    config = write_config(tmp_path, PIMA)
    env = {"RANK": rank, "WORLD_SIZE": 2, "LOCAL_RANK": rank, "LOCAL_WORLD_SIZE": 2, "MASTER_ADDR": "127.0.0.1",
           "MASTER_PORT": free_port()}
    result = run(lockstep, "train", config, *sets(launch__join_timeout="2s"), env=env, cwd=tmp_path)
    assert result.returncode == 1
    for word in ("frame #", "Exception raised from", "c10d", "socket.cpp"):
        assert word not in result.stderr, result.stderr
    assert result.stderr.count("error: ") == 1 and "to do:" in result.stderr


@pytest.fixture
def hangs_up():
    """The port of a service that takes every call and ends it at once."""
    with socket.create_server(("127.0.0.1", 0)) as service:
        def serve():
            while True:
                try:
                    service.accept()[0].close()
                except OSError:
                    return
        threading.Thread(target=serve, daemon=True).start()
        yield service.getsockname()[1]


@pytest.mark.parametrize("trace", [False, True])
def test_libtorchs_own_log_of_a_failed_join_is_there_for_who_asks(run, lockstep, tmp_path, hangs_up, trace):
    config = write_config(tmp_path, PIMA)
    env = {"RANK": 1, "WORLD_SIZE": 2, "LOCAL_RANK": 1, "LOCAL_WORLD_SIZE": 2, "MASTER_ADDR": "127.0.0.1",
           "MASTER_PORT": hangs_up, "TORCHELASTIC_USE_AGENT_STORE": "True", **({"LOCKSTEP_TRACE": 1} if trace else {})}
    result = run(lockstep, "train", config, *sets(launch__join_timeout="3s"), env=env, cwd=tmp_path)
    assert result.returncode == 1 and result.stderr.count("error: something else than the job's store answers") == 1
    assert ("TCPStore.cpp" in result.stderr) == trace, result.stderr


TOO_MANY = os.cpu_count() + 1  # threads: more than any rank's share, and few to wake


@pytest.mark.mpi
def test_warnings_of_the_start_are_said_once_for_the_job(mpirun, mpi, lockstep, tmp_path):
    config = write_config(tmp_path, PIMA)
    script = f'[ "${mpi.rank}" = 2 ] && export OMP_NUM_THREADS={TOO_MANY}; exec "$0" "$@"'
    for command in (["train", config, *sets(train__epochs=1)], ["eval", config, "--checkpoint", "runs/pima"]):
        result = mpirun(3, "sh", "-c", script, lockstep, *command, cwd=tmp_path, check=True)
        assert result.stderr.count(f"warning: rank 2: OMP_NUM_THREADS={TOO_MANY} is more than this rank's share") == 1


@pytest.mark.mpi
def test_a_warning_of_the_start_is_said_by_predict(run, mpirun, lockstep, tmp_path):
    config = write_config(tmp_path, PIMA)
    run(lockstep, "train", config, *sets(train__max_steps=2), cwd=tmp_path, check=True)
    words = [lockstep, "predict", config, "--checkpoint", "runs/pima", "--input", DATA / "pima/pima-indians-diabetes.csv"]
    env = {"OMP_NUM_THREADS": TOO_MANY}
    for result in (run(*words, cwd=tmp_path, env=env), mpirun(2, *words, cwd=tmp_path, env=env)):
        assert result.stderr.count(f"warning: OMP_NUM_THREADS={TOO_MANY} is more than this rank's share") == 1, result.output


def test_an_unreadable_node_file_is_warned_of_by_train(run, lockstep, tmp_path):
    config = write_config(tmp_path, PIMA)
    env = {"PBS_JOBID": "7.server", "PBS_NODEFILE": tmp_path / "none"}
    result = run(lockstep, "train", config, *sets(train__epochs=1), cwd=tmp_path, env=env, check=True)
    assert result.stderr.count("cannot be read or is empty: taken for a job of one process") == 1


@pytest.mark.parametrize("arguments, env", [
    (["train", "CONFIG"], {"RANK": 0, "WORLD_SIZE": 1, "MASTER_ADDR": ESCAPE, "MASTER_PORT": ESCAPE}),
    (["train", "CONFIG"], {"RANK": 1, "WORLD_SIZE": 2, "MASTER_ADDR": ESCAPE, "MASTER_PORT": ESCAPE}),
    (["whoami"], {"PBS_JOBID": ESCAPE, "HOSTNAME": ESCAPE, "OMP_NUM_THREADS": "4,\x1b[31m"}),
    (["whoami"], {"RANK": ESCAPE, "WORLD_SIZE": ESCAPE}),
    (["whoami", "--device", ESCAPE], {}),
    (["train", ESCAPE], {}),
    ([ESCAPE], {}),
    (["train", "CONFIG", "--" + ESCAPE], {}),
    (["eval", "CONFIG", "--checkpoint", ESCAPE], {}),
    (["eval", "CONFIG", "--checkpoint", "BAD"], {}),
    (["inspect", "BAD"], {}),
    (["train", "CONFIG", "--set", f"data.root={ESCAPE}"], {}),
    (["train", "CONFIG", "--resume", ESCAPE], {}),
    (["status", "."], {}),
    (["status", ESCAPE], {}),
    (["config", "CONFIG", "--set", f"data.stage={ESCAPE}"], {}),
], ids=lambda words: None)
def test_no_escape_code_reaches_the_terminal(run, lockstep, tmp_path, arguments, env):
    config = write_config(tmp_path, PIMA)
    bad = tmp_path / f"bad{ESCAPE}.pt"
    bad.write_bytes(b"PK\x03\x04" + ESCAPE.encode())
    (tmp_path / "status.json").write_text(json.dumps({"state": "failed", "reason": ESCAPE, "host": ESCAPE}))
    words = [{"CONFIG": config, "BAD": bad}.get(word, word) for word in arguments]
    result = run(lockstep, *words, env=env, cwd=tmp_path)
    for code in ("\x1b", "\x07", "\x9b"):
        assert code not in result.output, repr(result.output)
    assert result.output


LONG_NAME = "n" * 300


@pytest.mark.parametrize("arguments", [
    ["train", LONG_NAME], ["status", LONG_NAME], ["inspect", LONG_NAME], ["config", LONG_NAME],
    ["train", "CONFIG", "--resume", LONG_NAME],
    ["train", "CONFIG", "--set", f"run.name={LONG_NAME}"],
    ["train", "CONFIG", "--set", f"run.dir={LONG_NAME}"],
    ["train", "CONFIG", "--set", f"data.root={LONG_NAME}"],
    ["train", "CONFIG", "--set", f"data.stage={LONG_NAME}"],
    ["train", "CONFIG", "--set", f"task.name=csv", "--set", f"task.file={LONG_NAME}"],
    ["train", "CONFIG", "--set", "model.name=torchscript", "--set", f"model.path={LONG_NAME}"],
    ["train", "CONFIG", "--set", f"task.name=./{LONG_NAME}.so"],
    ["eval", "CONFIG", "--checkpoint", LONG_NAME],
    ["data", "verify", "pima", "--root", LONG_NAME],
], ids=lambda words: " ".join(words[:1] + [word.partition("=")[0][:20] for word in words[-2:]]))
def test_a_name_that_is_too_long_is_wrong_input(run, lockstep, tmp_path, arguments):
    words = [write_config(tmp_path, PIMA) if word == "CONFIG" else word for word in arguments]
    result = run(lockstep, *words, cwd=tmp_path)
    assert result.returncode == 2, result.output
    assert "to do:" in result.stderr and "filesystem error" not in result.stderr


def test_a_working_directory_that_is_gone(run, lockstep, tmp_path):
    config = write_config(tmp_path, PIMA)
    (tmp_path / "gone").mkdir()
    result = run("bash", "-c", f'cd gone && rmdir ../gone && exec "$0" train {config}', lockstep, cwd=tmp_path)
    assert result.returncode == 2 and "MKL" not in result.output
    assert "the working directory cannot be used: No such file" in result.stderr and "to do:" in result.stderr


def test_an_empty_status_is_no_success(run, lockstep, tmp_path):
    (tmp_path / "status.json").touch()
    result = run(lockstep, "status", tmp_path)
    assert result.returncode == 2
    assert "Success" not in result.stderr and "status.json is not what a run writes" in result.stderr
