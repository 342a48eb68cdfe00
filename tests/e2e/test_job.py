"""`lockstep job train` in a PBS job of one node, with programs in the place of launcher and ranks: what it makes of each end."""

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import threading

import pytest
from cluster_kit import QUICK
from conftest import clean_environment
from process_kit import PATIENCE, executable, wait_for

pytestmark = pytest.mark.about("job", "job_scripts")

# Line N of `faults` is what the ranks of the Nth start report; after the last line they finish.
PROGRAM = """#!/bin/bash
n=$(($(cat tries 2>/dev/null) + 1)); echo $n >tries
last=$(wc -l <faults)
[ "${5}${7}" = --run-file--errors ] || exit 9
[ -z "$TEST_SAYS" ] || echo "$TEST_SAYS" >&2
[ -z "$TEST_WAITS" ] || { touch begun; until [ -e go ]; do sleep 0.05; done; }
[ -z "$TEST_SIGNAL" ] || kill -$TEST_SIGNAL $PPID
echo "start $n: ${*:2:3} ${*:11}"
[ "$n" = "$TEST_NO_RUN" ] && { sed -n "${n}{/./p}" faults >>"$8"; [ -s "$8" ] || kill -$TEST_KILL $$; exit 1; }
step=$(sed -n "${n}p" steps)
state=${TEST_STATE:-done}; [ "$n" -gt "$last" ] || state=${TEST_LOST:-failed}
echo "{\\"state\\": \\"$state\\", \\"step\\": $step, \\"job_id\\": \\"7.x\\"}" >run/status.json
echo "$PWD/run" >"$6"
sed -n "${n}{/./p}" faults >>"$8"
[ "$n" -gt "$last" ] || exit 1
"""

QSTAT = "#!/bin/sh\nprintf 'Job Id: 7.x\\n    Submit_arguments = -l select=1 job.pbs\\n'\n"
LOST = [{"code": "rank-lost", "ranks": [3], "what": "all-reduce failed"}]
NAN = {"code": "failed", "ranks": [], "what": "the loss is not a number"}


@pytest.fixture
def job(lockstep, run, tmp_path):
    """job(faults of each start, steps=..., as_world=..., NAME=value...) -> what the job ends with."""
    folder = tmp_path / "work"
    (folder / "run/checkpoints").mkdir(parents=True)
    (folder / "run/checkpoints/step-00000470.pt").touch()
    (folder / "bin").mkdir()
    for name, text in (("ranks", PROGRAM), ("qstat", QSTAT), ("mpirun", '#!/bin/bash\n[ "$1" = --version ] && { echo "Open MPI"; exit; }\n'
                                                      'until [ "$1" = "$LOCKSTEP_PROGRAM" ]; do shift; done\nexec "$@"\n')):
        executable(folder / "bin" / name, text)
    (folder / "nodes").write_text(f"{os.uname().nodename}\n" * 4)

    def environment(**variables):
        return clean_environment(**{"PATH": f"{folder}/bin:{os.environ['PATH']}", "PBS_JOBID": "7.x", "LOCKSTEP_START": "mpirun",
                                    "LOCKSTEP_PROGRAM": str(folder / "bin/ranks"), "PBS_NODEFILE": str(folder / "nodes"), **variables})

    def start(*faults, steps=(), as_world=4, **variables):
        (folder / "faults").write_text("".join("".join(json.dumps(line) for line in lines) + "\n" for lines in faults))
        (folder / "steps").write_text("".join(f"{step}\n" for step in steps or range(1, 9)))
        config = QUICK.replace("epochs: 1", f"as_world: {as_world}, epochs: 1")
        for place in (folder / "quick.yaml", folder / "run/config.yaml"):
            place.write_text(config)
        return run(lockstep, "job", "train", "quick.yaml", cwd=folder, env=environment(**variables))
    start.folder, start.environment = folder, environment
    return start


def relaunches(done):
    return [line for line in done.stdout.splitlines() if "(relaunch " in line or " relaunches (" in line]


def test_a_lost_rank_is_started_again_in_the_runs_folder(job):
    done = job(LOST)
    assert done.returncode == 0, done.output
    assert relaunches(done) == ["lockstep job: rank 3 was lost; continuing with the same 1 node after step 470 (relaunch 1 of at most 3)"]
    starts = [line for line in done.stdout.splitlines() if line.startswith("start ")]
    assert starts == ["start 1: quick.yaml --resume auto --silence 5", f"start 2: quick.yaml --resume {job.folder}/run --silence 5"]
    assert not list(job.folder.glob(".lockstep-*"))


@pytest.mark.parametrize("faults, no_run, kill, goes_on", [
    ([], "", "", True),  # a rank 0 that was killed reports nothing
    ([NAN], "", "", False), (LOST, "1", "", True), ([], "1", "KILL", True), ([], "1", "TERM", True), ([], "1", "USR2", False)])
def test_only_lost_ranks_are_started_again(faults, no_run, kill, goes_on, job):
    done = job(faults, TEST_NO_RUN=no_run, TEST_KILL=kill)
    assert (done.returncode == 0) == goes_on == bool(relaunches(done)), done.output


@pytest.mark.parametrize("name, goes_on", [("USR1", True), ("TERM", False)])  # PBS does not say that it restarts the job
def test_a_signal_to_a_job_that_lost_ranks_stops_it_early(name, goes_on, job):
    executable(job.folder / "bin/qsub", "#!/bin/sh\necho 8.x\n")
    done = job(LOST, TEST_SIGNAL=name, LOCKSTEP_SCRIPT="quick.yaml")
    assert done.returncode == 75 and not relaunches(done) and ("job 8.x continues the run" in done.stdout) == goes_on, done.output
    assert f"stopped early: SIG{name}; rank 3 was lost" in done.stdout, done.output


def test_restarts_of_lost_ranks_are_bounded(job):
    done = job(*[LOST] * 5)
    assert done.returncode == 1 and len(relaunches(done)) == 4, done.output
    assert "after 3 relaunches (LOCKSTEP_MAX_RELAUNCHES)" in relaunches(done)[-1]


@pytest.mark.parametrize("steps, state, named", [((120, 120, 120), "failed", 120), ((118, 122, 120), "running", 470)],
                         ids=["of a rank", "of rank 0, which then writes no status"])
def test_a_step_that_kills_twice_ends_the_run(steps, state, named, job):
    done = job(LOST, LOST, LOST, steps=steps, TEST_LOST=state)
    assert done.returncode == 1 and len(relaunches(done)) == 1, done.output
    assert f"rank 3 was lost twice after step {named}" in done.stdout


def serve(host, looks=100):
    """A node that answers that many connections, and is silent then."""
    return socket.create_server((host, 15003), backlog=looks - 1)


@pytest.mark.parametrize("net, looks, then, faults, qstat, left", [  # tests run side by side
    (15, (100, 1), "", [LOST], QSTAT, ["2 nodes"]), (16, (1,), "", [LOST], QSTAT, ["1 node"]), (17, (1,), "", [[NAN]], QSTAT, ["1 node"]),
    (18, (1,), "", [LOST], "", ["the same 2 nodes"]), (19, (0,), "", [LOST], QSTAT, ["the same 2 nodes"]),
    (20, (0,), "silent", [LOST], QSTAT, ["1 node"]), (21, (100,), "back after 3 s", [LOST], QSTAT, ["the same 2 nodes"]),
    (22, (2, 1), "", [LOST, LOST], QSTAT, ["2 nodes", "1 node"]), (23, (100, 100), "closed", [LOST], QSTAT, ["2 nodes"])],
    ids=["of three", "of two", "an error of its neighbor", "this node may be cut off", "whose port is closed", "whose closed port is silent",
         "whose daemon restarts", "one after the other", "whose daemon does not come back"])
def test_a_node_that_does_not_answer_as_at_the_start_is_lost(net, looks, then, faults, qstat, left, job):
    hosts = [f"127.0.{net}.{number + 3}" for number in range(len(looks))]
    (job.folder / "nodes").write_text("\n".join([os.uname().nodename, *hosts]))
    with contextlib.ExitStack() as stack:
        servers = [stack.enter_context(serve(host, number)) for host, number in zip(hosts, looks) if number]

        def change_the_last():
            wait_for((job.folder / "begun").exists, what="the ranks")
            executable(job.folder / "bin/qstat", qstat or "#!/bin/sh\nexit 1\n")
            if then == "silent":
                stack.enter_context(serve(hosts[-1], 1))
                stack.enter_context(socket.create_connection((hosts[-1], 15003)))
            elif then:
                servers[-1].close()
            if then.startswith("back"):
                threading.Timer(3, lambda: stack.enter_context(serve(hosts[-1]))).start()
            (job.folder / "go").touch()
        threading.Thread(target=change_the_last).start()
        done = job(*faults, TEST_WAITS="1", LOCKSTEP_NODE_TIMEOUT="1")
    assert [re.search("continuing with (.*) after", line)[1] for line in relaunches(done)] == left, done.output


@pytest.mark.parametrize("saved_before, goes_on", [("460", True), ("470", False)])
def test_a_restart_without_a_new_checkpoint_is_the_last(saved_before, goes_on, job):
    executable(job.folder / "bin/qsub", "#!/bin/sh\necho 8.x\n")
    done = job(TEST_STATE="stopped early", LOCKSTEP_RESTART="1", LOCKSTEP_SAVED_STEP=saved_before, LOCKSTEP_SCRIPT="quick.yaml")
    assert done.returncode == 75 and ("job 8.x continues the run" in done.stdout) == goes_on, done.output


def test_a_job_that_is_cancelled_while_the_server_is_down_stays_stopped(job):
    executable(job.folder / "bin/qsub", "#!/bin/sh\n[ ! -e asked ] || exec echo 8.x\n"
                                        "touch asked; kill -TERM $PPID; echo 'qsub: cannot connect to server' >&2; exit 1\n")
    done = job(TEST_STATE="stopped early", LOCKSTEP_SCRIPT="quick.yaml")
    assert (job.folder / "asked").exists() and done.returncode == 75, done.output
    assert "canceled, with a checkpoint" in done.stdout and "8.x" not in done.stdout, done.output


def test_without_as_world_it_fails_and_says_what_would_help(job):
    done = job(LOST, as_world=0)
    assert done.returncode == 1 and not relaunches(done), done.output
    assert "rank 3 was lost: with train.as_world the job would have restarted the ranks" in done.stdout
    assert "--silence" not in done.stdout


AGAIN = "lockstep job: to continue, submit again: cd . && qsub -l select=1 job.pbs"


@pytest.mark.parametrize("state, faults, says, first, last", [
    ("done", [], "", "done", "checkpoint "),
    ("stopped on request", [], "", "stopped on request", AGAIN),
    ("stopped early", [], "", "stopped early", AGAIN),
    ("done", [NAN], "", "failed", AGAIN),
    ("done", [LOST[0]], "slurmstepd: error: Detected 1 oom_kill event in StepId=7.0.", "failed: out of memory: slurmstepd: ", AGAIN)])
def test_its_last_lines_say_what_happened_and_what_continues(state, faults, says, first, last, job):
    done = job(*([faults] if faults else []), TEST_STATE=state, TEST_SAYS=says, LOCKSTEP_MAX_RESTARTS="0")
    lines = done.stdout.splitlines()
    (report,) = [number for number, line in enumerate(lines) if line.startswith(first)]
    assert lines[report + 1].startswith("step 1, ") and lines[report + 2] == f"checkpoint {job.folder}/run/checkpoints/step-00000470.pt"
    assert lines[-1].startswith(last) and not relaunches(done) and (done.returncode == 75) == (state == "stopped early"), done.output
    assert len([line for line in lines if "out of memory: " in line or "request more: " in line]) == (3 if says else 0), done.output


def test_what_becomes_of_a_job_is_recorded(job, tmp_path):
    record = tmp_path / "record"
    done = job(LOST, LOCKSTEP_RECORD=str(record), LOCKSTEP_SILENCE="30")
    assert done.returncode == 0 and "--silence" not in done.stdout, "the user's time limit for silent nodes counts"
    assert [line.split()[0] for line in record.read_text().splitlines()] == ["begin", "file", "end"]
    assert record.read_text().splitlines()[-1] == f"end 7.x 0 {job.folder}/run"


def test_a_link_of_a_chain_goes_on_only_with_what_stopped_early(job, tmp_path):
    chain = tmp_path / "chain"
    found = {}
    for state in ("done", "failed", "stopped on request", "stopped early"):
        (job.folder / "run/status.json").write_text(json.dumps({"state": state}))
        chain.write_text(f"{job.folder}/run\n")
        (job.folder / "tries").unlink(missing_ok=True)
        done = job(LOCKSTEP_RUN_FILE=str(chain), LOCKSTEP_LINK="2")
        found[state] = (done.returncode, "start 1" in done.stdout)
    assert found == {"done": (0, False), "failed": (1, False), "stopped on request": (1, False), "stopped early": (0, True)}
    (job.folder / "run/status.json").write_text(json.dumps({"state": "stopped early"}))
    last = job(TEST_STATE="stopped early", LOCKSTEP_RUN_FILE=str(chain), LOCKSTEP_LINK="2", LOCKSTEP_IS_LAST_LINK="1")
    assert last.returncode == 75 and "submit the same config" in last.stdout, last.output
    if os.geteuid() == 0:
        os.chown(chain, 1, 1)
        done = job(LOCKSTEP_RUN_FILE=str(chain), LOCKSTEP_LINK="2")
        assert done.returncode == 2 and "belongs to another user" in done.stderr


def test_a_launcher_that_outlives_its_run_is_ended(job, lockstep):
    """After a SIGTERM mpirun stays for 10 s whatever its ranks do, and the scheduler may kill the job by then."""
    (job.folder / "bin/mpirun").write_text('#!/bin/bash\n[ "$1" = --version ] && { echo "Open MPI"; exit; }\ntrap "" TERM\n'
                                           'until [ "$1" = "$LOCKSTEP_PROGRAM" ]; do shift; done\n"$@"; touch stays; sleep 3600\n')
    for name, text in (("faults", ""), ("steps", "1\n"), ("quick.yaml", QUICK)):
        (job.folder / name).write_text(text)
    process = subprocess.Popen([lockstep, "job", "train", "quick.yaml"], cwd=job.folder, env=job.environment(),
                               stdout=subprocess.PIPE, text=True)
    wait_for(lambda: (job.folder / "stays").exists(), what="the launcher to stay")
    process.send_signal(signal.SIGTERM)
    out, _ = process.communicate(timeout=PATIENCE)
    assert "got SIGTERM" in out and "sending SIGKILL" in out and process.returncode == 0, out
