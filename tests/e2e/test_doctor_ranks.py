"""Faults between ranks of one node, each made on purpose: the doctor names it, tells what to do, and ends in time."""

import json
import signal
import subprocess

import pytest
from conftest import run_process
from doctor_kit import LIMIT, Told, faults, told  # noqa: F401  (a fixture among them)
from process_kit import PATIENCE, ends_of, wait_for

pytestmark = pytest.mark.about("doctor")


def test_a_stopped_rank_is_named(mpirun, lockstep, faults, tmp_path):  # noqa: F811
    script = f'[ "$OMPI_COMM_WORLD_RANK$PMI_RANK" = 1 ] && export LD_PRELOAD="{faults}" FAULT_STOP=1; exec "$@"'
    result = mpirun(3, "bash", "-c", script, "rank", lockstep, "doctor", "--json", cwd=tmp_path, quiet=True,
                    env={"LOCKSTEP_JOIN_TIMEOUT": 3})
    assert result.returncode != 0
    report, _ = json.JSONDecoder().raw_decode(result.stdout)
    stopped = Told(1, report).one("interfaces", "failure", "rank 1 (host ", "did not answer within 3 s")
    assert "state T" in stopped["remedy"]


def test_ranks_without_mpi_try_what_needs_none(start, lockstep, tmp_path, free_port):
    base = dict(WORLD_SIZE=2, MASTER_ADDR="127.0.0.1", MASTER_PORT=free_port())
    ranks = [start(lockstep, "doctor", "--json", cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                   text=True, env={**base, "RANK": rank, "LOCAL_RANK": rank}) for rank in range(2)]
    first, second = ends_of(ranks, LIMIT)
    report = told(first)
    report.is_well("interfaces", "clocks", "folders")
    report.one("shared", "ok", "2 ranks, sums right")
    report.one("gloo", "ok", "2 ranks, sums right")
    report.one("mpi", "ok", "not tried: MPI did not start the ranks")
    assert second == (0, "", second[2])


def test_a_full_disk(lockstep, tmp_path):
    script = 'mount -t tmpfs -osize=64k tmpfs "$1" || exit 77; exec "$2" doctor --json --runs "$1"'
    done = run_process(["unshare", "--mount", "bash", "-c", script, "doctor", tmp_path, lockstep], cwd=tmp_path.parent)
    if done.returncode == 77 or "unshare" in done.stderr:
        pytest.skip(f"no mounts here: {done.stderr.strip()}")
    told(done).one("folders", "failure", f"the run folder {tmp_path}", "No space left on device")


def test_a_file_system_that_does_not_answer(run, lockstep, faults, tmp_path):  # noqa: F811
    result = run(lockstep, "doctor", "--json", "--runs", tmp_path, env={"LD_PRELOAD": faults, "FAULT_HANG": 1})
    told(result).one("folders", "failure", f"the run folder {tmp_path}", "the file system did not answer in time")


def test_the_folders_are_those_of_the_config(run, lockstep, tmp_path):
    (tmp_path / "mine.yaml").write_text("run: {dir: 'my ${PLACE}'}\ntask: {name: pima}\ndata: {root: none here}\n")
    report = told(run(lockstep, "doctor", "--json", "mine.yaml", cwd=tmp_path, env={"PLACE": "runs"}))
    report.one("folders", "failure", f"the data folder {tmp_path}/none here on ", "No such file or directory")
    report.one("folders", "ok", f"the run folder {tmp_path}/my runs")
    assert not (tmp_path / "my runs").exists()
    given = run(lockstep, "doctor", "--json", "mine.yaml", "--data", tmp_path, cwd=tmp_path, env={"PLACE": "runs"})
    told(given).is_well("folders")
    wrong = told(run(lockstep, "doctor", "--json", "none.yaml", cwd=tmp_path))
    wrong.one("folders", "failure", "none.yaml")
    wrong.is_well("interfaces")


# ---- a sudden end ------------------------------------------------------------------------------------------


def probes_in(folder):
    return [path for path in folder.iterdir() if path.name.startswith(".lockstep-doctor-")]


def test_a_signal_ends_it_with_what_was_found_by_then_and_without_its_probes(start, lockstep, faults, tmp_path):  # noqa: F811
    process = start(lockstep, "doctor", "--runs", tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                    env={"LD_PRELOAD": faults, "FAULT_HANG": "write"})
    wait_for(lambda: probes_in(tmp_path), what="its probe")
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == -signal.SIGTERM, (out, err)
    lines = out.splitlines()
    assert sum(line.startswith("ok       memory") for line in lines) <= 1 and "interfaces" in out
    assert "failure  folders     SIGTERM arrived during folders" in out
    assert "1 failure, " in lines[-1] and out.count(" failure, ") == 1, "the summary is the last word"
    assert not probes_in(tmp_path)
