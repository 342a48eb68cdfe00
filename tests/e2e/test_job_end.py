"""What a job's script makes of its end, with programs in the scheduler's place: who goes on, and what is said of it."""

import pytest
from conftest import JOB_LIBRARY

pytestmark = pytest.mark.about("job_scripts")

IN_SLURM = {"SLURM_JOB_ID": "7"}
IN_PBS = {"PBS_JOBID": "7.x"}

# what scontrol says of the job, the last task of an array, and whether it takes a requeue
SCONTROL = """#!/bin/bash
[ "$1" = show ] || { touch requeued; [ -z "${ENDS:-}" ] || kill -s TERM "$ENDS"; exit "$REFUSES"; }
[ -e requeued ] && RESTARTS=$((RESTARTS + LATER))
printf 'JobId=6 ArrayJobId=7 JobName=x\\n   JobState=COMPLETING Reason=None\\n   Restarts=9 PreemptTime=Unknown\\n\\n'
printf 'JobId=7 ArrayJobId=7 JobName=x\\n   JobState=%s Reason=None\\n   Requeue=1 Restarts=%s BatchFlag=1 PreemptTime=None\\n' "$STATE" "$RESTARTS"
"""


@pytest.fixture
def script(run, tmp_path):
    """script(words, NAME=value...) -> what these words, in a job's script, leave with."""
    (tmp_path / "scontrol").write_text(SCONTROL)
    (tmp_path / "scontrol").chmod(0o755)

    def start(words, **variables):
        return run("bash", "-c", f'PATH=$PWD:$PATH; {JOB_LIBRARY}{words}', cwd=tmp_path,
                   env={"STATE": "RUNNING", "RESTARTS": "0", "LATER": "0", "REFUSES": "1", **variables})
    return start


def test_a_job_that_slurm_starts_again_is_not_to_be_submitted(script, tmp_path):
    for job, said, requeued in (
            ({"STATE": "COMPLETING", "RESTARTS": "1"}, "Slurm starts this job again by itself", False),
            ({"STATE": "COMPLETING"}, "it stays stopped; submit again to go on", False),
            ({"RESTARTS": "3", "SLURM_RESTART_COUNT": "3", "REFUSES": "0"}, "restart 4 of at most 10", True),
            ({"LATER": "1"}, "restart 1 of at most 10", True),  # its requeue came before ours
            ({}, "or submit again to go on", True)):
        (tmp_path / "requeued").unlink(missing_ok=True)
        done = script("GOT=TERM; go_on", **IN_SLURM, **job)
        assert done.stdout.splitlines()[-1].endswith(said) and (tmp_path / "requeued").exists() == requeued, (job, done.output)
        assert ("submit again" in done.stdout) == ("submit again" in said), job


def test_the_sigterm_of_a_jobs_own_requeue_is_no_news(script):
    """Slurm may send it before its command is back."""
    done = script("hear_signals; export ENDS=$$; GOT=USR1; go_on", **IN_SLURM, REFUSES="0")
    assert done.returncode == 0 and "restart 1 of at most" in done.stdout and "SIGTERM" not in done.output, done.output


def test_a_sigterm_of_pbs_may_mean_a_rerun(script):
    for rerunable, said in (("True", "after a qrerun PBS starts it again by itself"), ("False", "submit again to go on")):
        record = f"PBS_RECORD='    Rerunable = {rerunable}\n    Resource_List.walltime = 01:00:00'\n"
        assert script(record + "GOT=TERM TERM_AT=100; go_on", **IN_PBS).stdout.endswith(said + "\n")


def test_the_time_of_a_sigterm_is_kept(script):
    told = script("hear_signals; seconds_of_pbs_job() { echo 41; }; kill -s TERM $$; seconds_of_pbs_job() { echo 49; }\n"
                  'kill -s TERM $$; echo "$TERM_AT"', **IN_PBS)
    assert told.stdout.splitlines()[-1] == "41", told.output


def test_a_pbs_jobs_time_is_its_sessions(script):
    told = script("ps -o etimes= -p $$ | tr -d ' '; sleep 2; (seconds_of_pbs_job)", **IN_PBS)
    before, then = map(int, told.stdout.split())
    assert then >= before + 2, "of the session's leader, and of no child"


@pytest.mark.parametrize("left, limit, waits", [
    ("0:50", "1:00", "38"), ("0:12", "1:00", None), ("2:30", "3:00", "114"), ("1-00:00:00", "2-00:00:00", None), ("", "", None)])
def test_a_warning_that_comes_early_waits_for_its_time(left, limit, waits, script, tmp_path):
    (tmp_path / "squeue").write_text(f"#!/bin/sh\necho '6 1:00:00 1:00:00'\necho '7 {left} {limit}'\n")
    (tmp_path / "squeue").chmod(0o755)
    done = script('sleep() { echo "$1" >slept; until [ -e seen ]; do command sleep 0.1; done; }; '
                  'hear_signals; kill -s USR1 $$; echo "got $GOT"; : >seen; wait; echo "got $GOT"', **IN_SLURM)
    got = [line for line in done.stdout.splitlines() if line.startswith("got ")]
    assert got == ["got " if waits else "got USR1", "got USR1"] and ("with time left" in done.stdout) == bool(waits), done.output
    assert not waits or (tmp_path / "slept").read_text() == waits + "\n"


def test_a_warning_before_the_script_can_forward_it_is_kept(script, tmp_path):
    done = script('record_begin; kill -s USR1 $$; hear_signals; echo "got $GOT"', **IN_SLURM, LOCKSTEP_RECORD=str(tmp_path / "record"))
    assert done.returncode == 0 and "got USR1" in done.stdout.splitlines(), done.output


CGROUPS = {"v2": ("0::{0}/step_batch/user", "", {"memory.events": "low 0\noom 2\noom_kill 1\n", "memory.max": "2147483648\n",
                                                "memory.peak": "2147418112\n"}),
           "v1": ("9:name=systemd:/x\n4:memory:{0}", "memory", {"memory.oom_control": "under_oom 0\noom_kill 1\n",
                                                                "memory.limit_in_bytes": "2147483648\n",
                                                                "memory.max_usage_in_bytes": "2147418112\n"})}


@pytest.mark.parametrize("version, job, path, killed", [
    ("v2", IN_SLURM, "/system.slice/slurmstepd.scope/job_7", True), ("v1", IN_PBS, "/pbs_jobs.service/jobid/7.x", True),
    ("v2", IN_SLURM, "/system.slice/slurmstepd.scope/job_7", False)])
def test_a_rank_that_the_memory_limit_killed_is_said(killed, version, job, path, script, tmp_path):
    own, top, files = CGROUPS[version]
    (tmp_path / "own").write_text(own.format(path) + "\n")
    place = tmp_path / "groups" / top / path[1:]
    (place / "step_batch/user").mkdir(parents=True)
    for name, text in files.items():
        (place.parent / name).write_text(text)  # another job's, too
        (place / name).write_text(text if killed else text.replace("oom_kill 1", "oom_kill 0"))
    said = script('CGROUP_FOLDER=$PWD/groups OWN_CGROUPS=$PWD/own; hear_signals; START=(env); run_ranks true', **job).stdout
    assert ("memory limit has killed a process" in said) == killed and bool(said) == killed, said
    assert not killed or "(limit 2.00 GiB, peak 2.00 GiB); ask for more (Slurm: --mem, PBS: mem= in select)" in said


def test_a_step_that_ran_out_of_memory_is_said_where_its_cgroup_is_gone(script):
    """As with cgroup version 1; and as_world, which would run out of memory again, is not advised."""
    step = "echo 'slurmstepd: error: Detected 1 oom_kill event in StepId=7.0. Some of the step tasks have been OOM Killed.' >&2; exit 1"
    done = script(f'hear_signals; START=(env) RANKS=2 RUN=run; run_ranks sh -c "{step}"; say_what_would_help', **IN_SLURM)
    assert "memory limit has killed a process" in done.stdout and "as_world" not in done.stdout, done.output
    assert "oom_kill event" in done.stderr
