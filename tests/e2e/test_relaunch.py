"""What a job's script makes of lost ranks, with programs in the scheduler's place: which faults it goes on after, and where."""

import json
import os
import pathlib
import re
import subprocess
import time

import pytest
from cluster_kit import SOURCE
from conftest import JOB_LIBRARY
from process_kit import PATIENCE, wait_for

pytestmark = pytest.mark.about("job_scripts")

ATTEMPT = SOURCE / "job_scripts/attempt.sh"

PROGRAM = """#!/bin/bash
case $1 in
  config) printf 'train:\\n  as_world: %s  # a comment\\n' "$TEST_WORLD" ;;
  train)
    n=$(($(cat tries 2>/dev/null) + 1)); echo $n >tries
    [ "$n" = "$TEST_NO_RUN" ] || echo "$PWD/run" >"$LOCKSTEP_RUN_FILE"
    echo "$LOCKSTEP_ATTEMPT: ${*:2}, silence ${LOCKSTEP_SILENCE:-of the program}"
    step=$(sed -n "${n}p" steps)
    echo "{\\"event\\":\\"step\\",\\"step\\":$step,\\"epoch\\":0}" >>run/metrics.jsonl
    sed -n "${n}{/./p}" faults >>"$LOCKSTEP_ERRORS"  # last: whoever has said it may be ended
    [ "$n" -gt "$(wc -l <faults)" ] || exit 1 ;;
  status) [ "$(cat tries)" -gt "$(wc -l <faults)" ] || exit 1 ;;
esac
"""

LOST = [{"code": "rank-lost", "ranks": [3], "what": "all-reduce failed"}]
NAN = {"code": "failed", "ranks": [], "what": "the loss is not a number"}


def new_id():
    return f"{os.getpid()}{time.monotonic_ns()}.x"


@pytest.fixture
def job(run, tmp_path):
    """job(faults of each attempt, steps=..., NAME=value...) -> what lockstep_train, in a job on one node, leaves with. Its
    attempts end by their name, wherever they are on this machine: each job has an id that no other test has."""
    folder = tmp_path / "work"
    (folder / "run/checkpoints").mkdir(parents=True)
    (folder / "run/checkpoints/step-00000470.pt").touch()
    (folder / "bin").mkdir()
    for name, text in (("lockstep", PROGRAM), ("mpirun", '#!/bin/bash\n[ "$1" = --version ] && { echo "Open MPI"; exit; }\n'
                                                         'exec "$LOCKSTEP_PROGRAM" "${@: -4}"\n')):
        (folder / "bin" / name).write_text(text)
        (folder / "bin" / name).chmod(0o755)
    (folder / "nodes").write_text(f"{os.uname().nodename}\n" * 4)

    def start(*faults, steps=(), **variables):
        lines = [[json.dumps(line, separators=(",", ":")) for line in lines] for lines in faults]
        assert all(len(each) <= 1 for each in lines), "a line an attempt"
        (folder / "faults").write_text("".join((each[0] if each else "") + "\n" for each in lines))
        (folder / "steps").write_text("".join(f"{step}\n" for step in steps or range(1, 9)))
        environment = {"PATH": f"{folder}/bin:{os.environ['PATH']}", "PBS_JOBID": start.id, "TEST_WORLD": "4",
                       "LOCKSTEP_PROGRAM": str(folder / "bin/lockstep"), "LOCKSTEP_START": "mpirun",
                       "PBS_NODEFILE": str(folder / "nodes"), **variables}
        return run("bash", "-c", f"{JOB_LIBRARY}\nopenmpi_has() {{ true; }}\nlockstep_train quick.yaml", cwd=folder,
                   env=environment)
    start.folder, start.id = folder, new_id()
    return start


def relaunches(done):
    return [line for line in done.stdout.splitlines() if "(relaunch " in line or "relaunches are" in line]


def test_a_lost_rank_is_started_again_in_the_runs_folder(job):
    done = job(LOST)
    assert done.returncode == 0, done.output
    assert relaunches(done) == ["lockstep job: rank 3 was lost; going on with the same 1 node after step 470 (relaunch 1 of at most 3)"]
    first, then = (line for line in done.stdout.splitlines() if line.startswith(f"{job.id}.0."))
    assert re.fullmatch(rf"{job.id}\.0\.0\.\d+: quick.yaml --resume auto, silence 5", first)
    assert re.fullmatch(rf"{job.id}\.0\.1\.\d+: quick.yaml --resume {job.folder}/run, silence 5", then)
    assert not list(job.folder.glob(".lockstep-*"))


@pytest.mark.parametrize("faults, goes_on", [
    ([], True),  # a rank 0 that was killed says nothing
    ([{**LOST[0], "code": "not-joined"}], True), ([{**LOST[0], "code": "no-memory"}], True), ([NAN], False)])
def test_only_what_may_pass_is_tried_again(faults, goes_on, job):
    done = job(faults)
    assert (done.returncode == 0) == goes_on == bool(relaunches(done)), done.output


@pytest.mark.parametrize("faults, status", [(LOST, 0), ([], 1), ([{**NAN, "code": "bad-input"}], 1)])
def test_ranks_that_are_lost_before_there_is_a_run_are_started_again(faults, status, job):
    done = job(faults, TEST_NO_RUN="1")
    assert done.returncode == status, done.output
    assert [line.split("; ")[1] for line in relaunches(done)] == [
        "going on with the same 1 node from the first step (relaunch 1 of at most 3)"] * (status == 0)


def test_relaunches_are_bounded(job):
    done = job(*[LOST] * 5)
    assert done.returncode == 1 and len(relaunches(done)) == 4, done.output
    assert relaunches(done)[-1] == ("lockstep job: rank 3 was lost, and 3 relaunches are enough (LOCKSTEP_MAX_RELAUNCHES=3); "
                                    "submit again to go on")


def test_their_number_is_the_users(job):
    done = job(*[LOST] * 5, LOCKSTEP_MAX_RELAUNCHES="0")
    assert done.returncode == 1 and not [line for line in relaunches(done) if "going on" in line], done.output


def test_a_step_that_kills_twice_ends_the_run(job):
    done = job(LOST, LOST, LOST, steps=(120, 120, 120))
    assert done.returncode == 1, done.output
    assert "rank 3 was lost twice after step 120, and no node: the same would come again" in done.stdout
    assert len(relaunches(done)) == 1


def test_an_attempt_that_came_to_no_run_does_not_count_for_its_step(job):
    done = job(LOST, [], steps=(120, 120), TEST_NO_RUN="2")
    assert done.returncode == 0 and len(relaunches(done)) == 2, done.output


def test_without_as_world_it_fails_and_says_what_would_help(job):
    done = job(LOST, TEST_WORLD="0")
    assert done.returncode == 1 and not relaunches(done), done.output
    assert "rank 3 was lost: with train.as_world the ranks would have been started again" in done.stdout
    assert "silence of the program" in done.stdout
    assert "train.as_world" not in job([NAN], [NAN], TEST_WORLD="0").stdout


def test_what_the_user_has_set_stays(job):
    errors = job.folder / "mine.jsonl"
    errors.write_text(json.dumps(NAN, separators=(",", ":")) + "\n")  # of another run
    done = job(LOST, LOCKSTEP_ERRORS=str(errors), LOCKSTEP_SILENCE="30")
    assert done.returncode == 0 and "silence 30" in done.stdout, done.output
    assert len(errors.read_text().splitlines()) == 2


@pytest.mark.parametrize("name", ["LOCKSTEP_NODE_TIMEOUT"])
def test_a_setting_that_is_no_number_is_refused(name, job):
    done = job(LOST, **{name: "three"})
    assert done.returncode == 2 and f"{name}=three: a number is wanted" in done.stderr


SHRINK = f"""
{JOB_LIBRARY}
scontrol() {{
  case $1 in
    show) printf 'n1\\nn2\\nn3\\n' ;;
    update) echo "$*" >>"$CPU_FOLDER/asked"; [ "$(grep -c update "$CPU_FOLDER/asked")" -gt 1 ] || {{ echo "DB index is being set, try again in a bit"; return 1; }} ;;
  esac
}}
sleep() {{ :; }}
squeue() {{ printf '7.0\\n7.batch\\n'; }}
scancel() {{ echo "cancelled $*" >>asked; }}
timeout() {{ [ "$1" = -k ] && shift 2; shift; "$@"; }}
CPU_FOLDER=$PWD RELAUNCHES=1 LEFT=(n1 n3) LOST=(n2)
keep_slurm_nodes
read_allocation
START=() && start_with_srun
echo "$NODES $RANKS $SLURM_TASKS_PER_NODE $SLURM_JOB_CPUS_PER_NODE ${{SLURM_NTASKS:-}}"
echo "${{START[*]}}"
"""


@pytest.mark.parametrize("laid, asked, told, words", [
    ("3,2,1", "6", "2 4 3,1 4,4 4", "--overlap --nodes=2 --nodelist=n1,n3 --ntasks=4"),
    ("4(x3)", None, "2 8 4,4 4,4 ", "--ntasks=8 --ntasks-per-node=4 --overlap --nodes=2 --nodelist=n1,n3")])
def test_slurms_nodes_that_are_left_keep_their_ranks(laid, asked, told, words, run, tmp_path):
    done = run("bash", "-c", SHRINK, cwd=tmp_path, check=True,
               env={"SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "n[1-3]", "SLURM_JOB_NUM_NODES": "3", "SLURM_NTASKS": asked,
                    "SLURM_JOB_CPUS_PER_NODE": "4(x3)", "SLURM_TASKS_PER_NODE": laid, "SLURM_CPUS_ON_NODE": "4"})
    lines = done.stdout.splitlines()
    assert lines[-2] == told and lines[-1].endswith(words), done.output
    asked = (tmp_path / "asked").read_text().splitlines() if (tmp_path / "asked").exists() else []
    assert "cancelled 7.0" in asked
    assert sum(line.startswith("update ") for line in asked) == 2 and "warning: Slurm would not take" not in done.stdout


@pytest.mark.parametrize("lines, left, kept", [("n1.site n1.site n10.site n10.site", "n10.site", "n10.site n10.site")])
def test_pbs_nodes_that_are_left_keep_their_lines(lines, left, kept, run, tmp_path):
    (tmp_path / "file").write_text(lines.replace(" ", "\n") + "\n")
    done = run("bash", "-c", f'{JOB_LIBRARY}\nLEFT=({left}) LOST=(gone); keep_pbs_nodes; cat "$PBS_NODEFILE"', cwd=tmp_path,
               env={"PBS_JOBID": "7.x", "PBS_NODEFILE": str(tmp_path / "file")}, check=True)
    assert done.stdout.split() == kept.split()


def test_a_refused_connection_is_an_answer(run, tmp_path):
    script = JOB_LIBRARY + 'check_relaunch; kernel_answers localhost && echo alive; kernel_answers no.such.name.invalid && echo unknown'
    assert run("bash", "-c", script, cwd=tmp_path, env={"PBS_JOBID": "7.x"}).stdout.split() == ["alive", "unknown"]


def test_what_is_left_of_an_attempt_is_ended_and_nothing_else(run):
    def sleeper(attempt):
        process = subprocess.Popen(["sleep", "3600"], env={**os.environ, "LOCKSTEP_ATTEMPT": attempt})
        wait_for(lambda: pathlib.Path(f"/proc/{process.pid}/comm").read_text() == "sleep\n", what="it to start")
        return process
    job = new_id()
    mine, other = sleeper(f"{job}.0.1"), sleeper(f"{job}.0.11")
    try:
        assert run(ATTEMPT, "list", f"{job}.0.1", "sleep", check=True).stdout.split() == [str(mine.pid)]
        assert run(ATTEMPT, "list", f"{job}.0.1", "other").stdout == ""
        assert str(mine.pid) in run(ATTEMPT, "end", f"{job}.0.1", "", check=True).stdout
        assert mine.wait(PATIENCE) == -9 and other.poll() is None
    finally:
        for process in (mine, other):
            process.kill()
            process.wait()
