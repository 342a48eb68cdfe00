"""Slurm jobs that end early: who stops them, who goes on, and what a later start finds."""

import os
import signal

import pytest
from cluster_kit import SOURCE, digests, last_checkpoint, metrics, runs, steps_logged
from cluster_kit import across, site, work  # noqa: F401  (fixtures)
from conftest import run_process
from process_kit import wait_for
from slurm_kit import DDP, LONG, FOUR_LONG, log_of, finished
from slurm_kit import environment, lab, reference, sbatch  # noqa: F401  (fixtures)

pytestmark = pytest.mark.about("job_scripts")


@pytest.mark.mpi
def test_usr1_requeues_and_resumes_exactly(lab, sbatch, work, lockstep, reference):  # noqa: F811
    # submitted from within an array's task, which it must leave alone
    job = sbatch(DDP, "quick.yaml", *LONG, env={"SLURM_ARRAY_JOB_ID": "77", "SLURM_ARRAY_TASK_ID": "5"})
    wait_for(lambda: steps_logged(work) >= 6, what="the first steps")
    lab.run("scancel", "-s", "USR1", job)
    finished(lab, work, job, within=120)
    assert lab.job(job)["Restarts"] == "1", log_of(work, job)
    assert "restart 1 of at most 10" in log_of(work, job)
    assert len(runs(work)) == 1
    assert digests(lockstep, last_checkpoint(runs(work)[0]), run_process) == reference(2, "gloo", *LONG)


def test_time_limit_requeues_before_it_strikes(lab, sbatch, work, lockstep, reference):  # noqa: F811
    # the walltime is one minute, Slurm's least; a lead of 52 s makes the stop come within seconds
    more = ("--set", "checkpoint.before_deadline=52s")
    job = sbatch("--time=1", DDP, "quick.yaml", *LONG[:1], "train.max_steps=600", *LONG[2:], *more)
    wait_for(lambda: int(lab.job(job)["Restarts"]) >= 1, within=60, what="the requeue")
    wait_for(lambda: steps_logged(work) > 0, what="the second start")
    finished(lab, work, job, within=150)
    assert digests(lockstep, last_checkpoint(runs(work)[0]), run_process) == reference(
        2, "gloo", "--set", "train.max_steps=600")


def test_requeue_by_the_operator_resumes(lab, sbatch, work, lockstep, reference):  # noqa: F811
    job = sbatch(DDP, "quick.yaml", *LONG)
    wait_for(lambda: steps_logged(work) >= 20, what="the first steps")
    lab.run("scontrol", "requeue", job)
    finished(lab, work, job, within=120)
    assert digests(lockstep, last_checkpoint(runs(work)[0]), run_process) == reference(2, "gloo", *LONG)


@pytest.mark.mpi
@pytest.mark.parametrize("start", ["srun", "mpirun"])
def test_a_cancelled_job_checkpoints_and_stays_cancelled(start, lab, sbatch, work, lockstep):  # noqa: F811
    job = sbatch(DDP, "quick.yaml", *LONG, env={"LOCKSTEP_START": start})
    wait_for(lambda: steps_logged(work) >= 6, what="the first steps")
    lab.run("scancel", job)
    state = lab.wait(job)
    assert (state["JobState"], state["Restarts"]) == ("CANCELLED", "0"), log_of(work, job)
    assert "it stays stopped" in log_of(work, job)
    assert run_process([lockstep, "status", runs(work)[0]]).returncode == 75
    assert metrics(runs(work)[0])[-1]["step"] < 250


@pytest.mark.mpi
@pytest.mark.parametrize("start", ["srun", "mpirun"])
def test_a_sigterm_for_the_script_alone_is_a_stop_that_goes_on(start, lab, sbatch, work, lockstep):  # noqa: F811
    """As `sbatch --signal=B:TERM@60` sends it: an srun that gets one kills its ranks."""
    words = ("--set", "train.max_steps=250", "--set", "checkpoint.every_steps=1000")
    job = sbatch(DDP, "quick.yaml", *words, env={"LOCKSTEP_START": start})
    wait_for(lambda: steps_logged(work) >= 6, what="the first steps")
    lab.run("scancel", "--batch", "-s", "TERM", job)
    finished(lab, work, job, within=120)
    assert lab.job(job)["Restarts"] == "1" and "restart 1 of at most 10" in log_of(work, job), log_of(work, job)
    steps = [m["step"] for m in metrics(runs(work)[0]) if m["event"] == "step"]
    assert len(runs(work)) == 1 and steps == sorted(set(steps)) and steps[-1] == 250


def test_preemption_lets_it_go_on(lab, sbatch, work, lockstep, reference):  # noqa: F811
    job = sbatch(DDP, "quick.yaml", *LONG)
    wait_for(lambda: steps_logged(work) >= 6, what="the first steps")
    urgent = lab.submit("--partition=urgent", "--nodes=2", "--exclusive", "--output=/dev/null", "--wrap=true", cwd=work)
    assert lab.wait(urgent)["JobState"] == "COMPLETED"
    finished(lab, work, job, within=120)
    assert lab.job(job)["Restarts"] == "1" and "restart 1 of at most 10" in log_of(work, job), log_of(work, job)
    assert digests(lockstep, last_checkpoint(runs(work)[0]), run_process) == reference(2, "gloo", *LONG)


@pytest.mark.mpi
def test_an_early_stop_is_bounded(lab, sbatch, work):  # noqa: F811
    job = sbatch(DDP, "quick.yaml", *LONG, env={"LOCKSTEP_MAX_RESTARTS": "0"})
    wait_for(lambda: steps_logged(work) >= 6, what="the first steps")
    lab.run("scancel", "-s", "USR1", job)
    state = lab.wait(job)
    assert (state["JobState"], state["ExitCode"], state["Restarts"]) == ("FAILED", "75:0", "0")


@pytest.mark.mpi
def test_a_job_that_fails_at_once_is_not_tried_again(lab, sbatch, work):  # noqa: F811
    job = sbatch(DDP, "no-such.yaml")
    state = lab.wait(job)
    assert (state["JobState"], state["Restarts"]) == ("FAILED", "0")
    assert "no-such.yaml" in log_of(work, job)


def test_dead_node_is_named_and_the_requeued_job_resumes(lab, sbatch, work, lockstep, reference):  # noqa: F811
    job = sbatch("--nodes=2", "--ntasks-per-node=2", DDP, "quick.yaml", *FOUR_LONG)
    wait_for(lambda: steps_logged(work) >= 10, what="the first steps")
    lab.kill_node("n2")
    try:
        wait_for(lambda: lab.job(job)["JobState"] != "RUNNING", within=30, what="the job to fail")
        assert "(host n2, " in log_of(work, job)
    finally:
        lab.boot_node("n2")
    # for a job's own srun on n1, too: it may have n2's old address in mind for a while
    both = ("sbatch", "--wait", "--nodes=2", "--output=/dev/null", "--wrap=srun true")
    wait_for(lambda: lab.run(*both, check=False).returncode == 0, within=90, what="n2 to come back")
    if lab.job(job)["JobState"] == "FAILED":
        lab.run("scontrol", "requeue", job)
    finished(lab, work, job, within=150)
    assert digests(lockstep, last_checkpoint(runs(work)[0]), run_process) == reference(4, "gloo", *FOUR_LONG)


def test_the_next_start_sweeps_what_killed_jobs_left(lab, sbatch, work):  # noqa: F811
    killed = sbatch(DDP, "quick.yaml", *LONG)
    wait_for(lambda: steps_logged(work) >= 2, what="the first steps")
    (script,) = lab.processes("slurm_script")
    os.kill(script, signal.SIGKILL)
    lab.wait(killed)
    assert (work / f".lockstep-run-lab.{killed}").exists(), "a killed job leaves its file, or this test sees nothing"
    waiting = lab.submit("--hold", "--output=/dev/null", "--wrap=true", cwd=work)
    kept = {f".lockstep-run-lab.{waiting}", ".lockstep-run-other.1", ".lockstep-chain-2", ".lockstep-chain-2.jobs"}
    for name in kept | {".lockstep-chain-1", ".lockstep-then-1"}:
        (work / name).touch()
    for name in (".lockstep-chain-1", ".lockstep-then-1"):
        (work / f"{name}.jobs").write_text(f"lab\n{killed}\n999999\n")
    (work / ".lockstep-chain-2.jobs").write_text(f"lab\n{killed}\n{waiting}\n")
    finished(lab, work, sbatch(DDP, "quick.yaml", "--set", "run.name=next"))
    lab.run("scancel", waiting)
    assert {path.name for path in work.glob(".lockstep-*")} == kept


def test_a_task_of_an_array_goes_on_alone(lab, sbatch, work):  # noqa: F811
    job = sbatch("--array=2-3", str(SOURCE / "job_scripts/sweep.slurm"), "quick.yaml", *LONG)
    wait_for(lambda: (work / "runs").is_dir() and len(runs(work)) == 2 and steps_logged(work) >= 6, what="both tasks")
    lab.run("scancel", "-s", "USR1", f"{job}_3")
    restarts = [lab.wait(f"{job}_{task}", within=120)["Restarts"] for task in (2, 3)]
    assert restarts == ["0", "1"]
    assert {r.name for r in runs(work)} == {"sweep-lr0.01", "sweep-lr0.003"}


def test_train_then_eval(lab, work, environment):  # noqa: F811
    done = lab.run(str(SOURCE / "job_scripts/train_then_eval.sh"), "--time=10", "--partition", "urgent", "-J", "mine",
                   "--comment=both", DDP, "quick.yaml", cwd=work, env=environment)
    then = done.stdout.split()[-1]
    asked = lab.job(then)
    assert [asked[key] for key in ("Partition", "TimeLimit", "Comment", "JobName")] == [
        "urgent", "00:10:00", "both", "lockstep"]
    finished(lab, work, then, within=120)
    assert "accuracy" in log_of(work, then).lower()
    assert not list(work.glob(".lockstep-*"))


def test_no_training_without_its_evaluation(lab, work, environment):  # noqa: F811
    (work / "bin").mkdir()
    (work / "bin/sbatch").write_text('#!/bin/sh\ncase "$*" in *eval.slurm*) exit 1 ;; esac\nexec /usr/bin/sbatch "$@"\n')
    (work / "bin/sbatch").chmod(0o755)
    path = f"{work}/bin:{os.environ['PATH']}"
    done = lab.run(str(SOURCE / "job_scripts/train_then_eval.sh"), "--job-name=alone", DDP, "quick.yaml", cwd=work,
                   env={**environment, "PATH": path}, check=False)
    assert done.returncode == 1 and "so neither is" in done.stderr
    assert lab.run("squeue", "-h", "--name=alone").stdout == ""
    assert not (work / "runs").exists()


def test_chain_goes_on_where_a_link_stopped(lab, work, environment, lockstep, reference):  # noqa: F811
    done = lab.run(str(SOURCE / "job_scripts/chain.sh"), "3", "--time=10", DDP, "quick.yaml", *LONG, cwd=work, env=environment)
    first, second, third = (line.split()[-1] for line in done.stdout.splitlines())
    wait_for(lambda: steps_logged(work) >= 6, what="the first link's steps")
    lab.run("scancel", "-s", "USR1", first)
    assert lab.wait(first)["ExitCode"] == "75:0"
    finished(lab, work, second, within=120)
    assert lab.wait(third)["JobState"] == "CANCELLED"
    assert not list(work.glob(".lockstep-*"))
    assert digests(lockstep, last_checkpoint(runs(work)[0]), run_process) == reference(2, "gloo", *LONG)


def test_a_cancelled_link_ends_its_chain(lab, work, environment):  # noqa: F811
    done = lab.run(str(SOURCE / "job_scripts/chain.sh"), "2", "--time=10", DDP, "quick.yaml", *LONG, cwd=work, env=environment)
    first, second = (line.split()[-1] for line in done.stdout.splitlines())
    wait_for(lambda: steps_logged(work) >= 6, what="the first link's steps")
    lab.run("scancel", first)
    assert lab.wait(first)["JobState"] == "CANCELLED"
    assert lab.wait(second)["ExitCode"] == "1:0"
    assert "the chain is over" in log_of(work, second)
    assert len(runs(work)) == 1 and metrics(runs(work)[0])[-1]["step"] < 250
