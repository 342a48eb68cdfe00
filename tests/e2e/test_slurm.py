"""The job scripts on a real two-node Slurm: sbatch as a user types it, pre-emption, dead nodes, many jobs."""

import json
import os
import pathlib
import shutil
import signal
import subprocess

import pytest
from cluster_kit import (SOURCE, digests, last_checkpoint, metrics, runs, start_lab, steps_logged, wait_for,
                         wait_until_done)
from cluster_kit import across, site, work  # noqa: F401  (fixtures)
from conftest import LOOPBACK, cache_value, listens_on, run_process

DDP = str(SOURCE / "job_scripts/ddp.slurm")
LONG = ("--set", "train.max_steps=250", "--set", "checkpoint.every_steps=5")
FOUR_LONG = ("--set", "train.max_steps=80", "--set", "checkpoint.every_steps=5")  # for four ranks on two cores


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    lab = start_lab(tmp_path_factory.mktemp("slurm") / "lab", "slurm")
    yield lab
    lab.stop()


@pytest.fixture
def environment(lockstep, site):  # noqa: F811
    # the lab's Slurm counts 32 cores a node, whatever this machine has
    return {"LOCKSTEP_PROGRAM": str(lockstep), "LOCKSTEP_HOME": str(SOURCE), "LOCKSTEP_THREADS_PER_CORE": "1", **site}


@pytest.fixture
def sbatch(lab, work, environment):  # noqa: F811
    """sbatch(ARG..., env={}) -> job id, from the folder of submission."""
    def submit(*arguments, env=None):
        return lab.submit(*arguments, cwd=work, env={**environment, **(env or {})})
    return submit


def log_of(work, job, name="lockstep"):  # noqa: F811
    return (work / f"{name}-{job}.out").read_text()


def finished(lab, work, job, within=90):  # noqa: F811
    """Waits for the job and insists that it succeeded."""
    state = lab.wait(job, within=within)
    assert (state["JobState"], state["ExitCode"]) == ("COMPLETED", "0:0"), log_of(work, job)
    return state


@pytest.fixture(scope="module")
def nodes_of_two(build_dir, tmp_path_factory):
    """An environment in which the mpi backend takes every two ranks of a host for a node."""
    library = tmp_path_factory.mktemp("nodes") / "pretend_nodes.so"
    source = pathlib.Path(__file__).parent / "peers/pretend_nodes.c"
    headers = cache_value(build_dir, "MPI_C_HEADER_DIR")
    subprocess.run(["cc", "-shared", "-fPIC", f"-I{headers}", "-o", library, source], check=True)
    return {"LD_PRELOAD": str(library), "TEST_RANKS_PER_NODE": "2"}


@pytest.fixture(scope="module")
def reference(lockstep, mpiexec, tmp_path_factory):
    """reference(world, backend, SET...): digests of the same training without Slurm."""
    known = {}

    def train(world, backend, *sets, env=None):
        key = (world, backend, sets, str(env))
        if key not in known:
            folder = tmp_path_factory.mktemp("reference")
            from cluster_kit import QUICK
            (folder / "quick.yaml").write_text(QUICK)
            run_process([mpiexec, "-n", world, lockstep, "train", "quick.yaml", "--set", f"launch.backend={backend}",
                         *sets], cwd=folder, env={"LOCKSTEP_HOME": str(SOURCE), **(env or {})}, timeout=120, check=True)
            known[key] = digests(lockstep, last_checkpoint(runs(folder)[0]), run_process)
        return known[key]
    return train


@pytest.mark.mpi
@pytest.mark.parametrize("backend", ["gloo", "mpi"])
@pytest.mark.parametrize("start", ["srun", "mpirun"])
@pytest.mark.parametrize("nodes", [1, 2])
def test_same_parameters_as_without_slurm(nodes, start, backend, lab, sbatch, across, work, lockstep,  # noqa: F811
                                          reference, nodes_of_two):
    more = across(nodes)
    job = sbatch(f"--nodes={nodes}", "--ntasks-per-node=2", DDP, "quick.yaml", "--set", f"launch.backend={backend}",
                 env={"LOCKSTEP_START": start, **more})
    if more:
        wait_until_done(work)
        lab.run("scancel", job)
    else:
        finished(lab, work, job)
    assert digests(lockstep, last_checkpoint(runs(work)[0]), run_process) == reference(
        2 * nodes, backend, env=nodes_of_two)  # mpi sums within nodes first


@pytest.mark.mpi
@pytest.mark.parametrize("hosts", [("n1", "n1", "n2"), ("n1", "n2", "n2", "n2")], ids=["2+1", "1+3"])
def test_nodes_need_not_be_filled_alike(hosts, lab, work, environment, across, lockstep, reference):  # noqa: F811
    (work / "hosts").write_text("\n".join(hosts) + "\n")
    words = ("--set", "launch.timeout=15s")
    lab.run("srun", f"-n{len(hosts)}", "-m", "arbitrary", lockstep, "train", "quick.yaml", *words, cwd=work,
            env={**environment, **across(2), "SLURM_HOSTFILE": str(work / "hosts"), "OMP_NUM_THREADS": "1"}, timeout=60)
    assert json.loads((runs(work)[0] / "status.json").read_text())["world"] == len(hosts)
    assert digests(lockstep, last_checkpoint(runs(work)[0]), run_process) == reference(
        len(hosts), "gloo", *words, env={"OMP_NUM_THREADS": "1"})


@pytest.mark.parametrize("start, asked, ranks, threads", [
    ("srun", [], 2, 1), ("srun", ["-n8"], 8, 1), ("srun", ["-n40"], 40, 1), ("srun", ["-N2", "--exclusive"], 64, 1),
    ("srun", ["-N2", "--exclusive", "-c8"], 8, 8), ("srun", ["-N2", "-n3", "--exclusive"], 3, 16),
    ("mpirun", ["-N2", "-n3"], 3, 1), ("mpirun", ["-N2", "-n5", "--exclusive"], 5, 10),
    ("mpirun", ["-N2", "--ntasks-per-node=2"], 4, 1)])
def test_directives_do_not_fight_the_command_line(start, asked, ranks, threads, lab, sbatch, work):  # noqa: F811
    """A program that only says who it is, so that many ranks cost nothing."""
    (work / "who").write_text('#!/bin/sh\necho "I am ${OMPI_COMM_WORLD_RANK:-$SLURM_PROCID}, $OMP_NUM_THREADS threads"\n')
    (work / "who").chmod(0o755)
    job = sbatch(*asked, DDP, env={"LOCKSTEP_PROGRAM": str(work / "who"), "LOCKSTEP_START": start})
    lab.wait(job, within=60)
    said = sorted(line for line in log_of(work, job).splitlines() if line.startswith("I am"))
    assert said == sorted(f"I am {rank}, {threads} threads" for rank in range(ranks)), log_of(work, job)


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
    wait_for(lambda: lab.run("srun", "-w", "n2", "true", check=False).returncode == 0, what="n2 to come back")
    if lab.job(job)["JobState"] == "FAILED":
        lab.run("scontrol", "requeue", job)
    finished(lab, work, job, within=150)
    assert digests(lockstep, last_checkpoint(runs(work)[0]), run_process) == reference(4, "gloo", *FOUR_LONG)


@pytest.mark.parametrize("start", ["srun", "mpirun"])
def test_ranks_of_one_node_listen_on_the_loopback_alone(start, lab, sbatch, work):  # noqa: F811
    job = sbatch(DDP, "quick.yaml", *LONG, env={"LOCKSTEP_START": start})
    wait_for(lambda: steps_logged(work) >= 2, what="the first steps")
    addresses = [listens_on(pid) for pid in lab.processes("lockstep")]
    lab.run("scancel", job)
    lab.wait(job)
    assert addresses == [{LOOPBACK}] * 2


@pytest.mark.mpi
@pytest.mark.parametrize("nodes", [1, 2])
def test_srun_without_pmi(nodes, lab, sbatch, work, lockstep, reference):  # noqa: F811
    job = sbatch(f"--nodes={nodes}", DDP, "quick.yaml", env={"LOCKSTEP_SRUN_MPI": "none"})
    finished(lab, work, job)
    assert digests(lockstep, last_checkpoint(runs(work)[0]), run_process) == reference(2 * nodes, "gloo")


def test_salloc_shell(lab, work, environment, lockstep):  # noqa: F811
    shell = lab.run("salloc", "-N2", "--ntasks-per-node=2", "srun", str(lockstep), "whoami", cwd=work, env=environment)
    rows = [line.split() for line in shell.stdout.splitlines()]
    ranks = [(row[0], row[-1]) for row in rows if row and row[0].isdigit() and row[-1] in ("n1", "n2")]
    assert ranks == [("0", "n1"), ("1", "n1"), ("2", "n2"), ("3", "n2")], shell.stdout


@pytest.mark.mpi
def test_phantom_script_without_srun_is_refused(lab, sbatch, work, lockstep):  # noqa: F811
    (work / "phantom.sh").write_text(f"#!/bin/bash\n#SBATCH --ntasks=4\n'{lockstep}' train quick.yaml\n")
    job = sbatch("--output=phantom-%j.out", "phantom.sh")
    state = lab.wait(job)
    assert (state["JobState"], state["ExitCode"]) == ("FAILED", "2:0")
    text = log_of(work, job, "phantom")
    assert "srun" in text and "mpirun" in text
    assert not (work / "runs").exists()


def test_array_makes_a_run_of_each_task(lab, sbatch, work):  # noqa: F811
    job = sbatch(str(SOURCE / "job_scripts/sweep.slurm"), "quick.yaml")
    for task in range(4):
        lab.wait(f"{job}_{task}", within=120)
    assert {r.name for r in runs(work)} == {f"sweep-lr{rate}" for rate in ("0.1", "0.03", "0.01", "0.003")}


def test_an_array_beyond_the_list_is_an_error(lab, sbatch, work):  # noqa: F811
    job = sbatch("--array=4", str(SOURCE / "job_scripts/sweep.slurm"), "quick.yaml")
    assert lab.wait(f"{job}_4")["ExitCode"] == "2:0"
    assert "there are 4 rates, so --array=0-3" in log_of(work, job)
    assert not (work / "runs").exists()


@pytest.mark.parametrize("script, nodes", [("ddp_single_node", 1), ("ddp_multi_node", 2)])
def test_the_scripts_of_one_and_of_two_nodes(script, nodes, lab, sbatch, work, lockstep, reference):  # noqa: F811
    job = sbatch(str(SOURCE / f"job_scripts/{script}.slurm"), "quick.yaml")
    finished(lab, work, job)
    assert f"{2 * nodes} ranks on {nodes} node(s), 1 core(s) a rank" in log_of(work, job)
    assert digests(lockstep, last_checkpoint(runs(work)[0]), run_process) == reference(2 * nodes, "gloo")


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


def test_twenty_jobs_at_once_meet_no_other(lab, sbatch, work):  # noqa: F811
    jobs = [sbatch(DDP, "quick.yaml", "--set", "train.max_steps=3", "--set", f"run.name=job{i}") for i in range(20)]
    for job in jobs:
        finished(lab, work, job, within=200)
    assert len(runs(work)) == 20


@pytest.mark.parametrize("name", ["a b", "$(touch owned)", "x;touch owned", "it's", "-n"])
def test_hostile_job_names(name, lab, sbatch, work):  # noqa: F811
    job = sbatch(f"--job-name={name}", "--output=hostile-%j.out", DDP, "quick.yaml", "--set", "train.max_steps=2")
    finished_state = lab.wait(job)
    assert finished_state["JobState"] == "COMPLETED", log_of(work, job, "hostile")
    assert not (work / "owned").exists() and not (SOURCE / "owned").exists()


def test_settings_with_commas_and_quotes_survive(lab, sbatch, work):  # noqa: F811
    job = sbatch(DDP, "quick.yaml", "--set", "train.max_steps=2", "--set", "optim.betas=[0.8, 0.9]", "--set",
                 "run.name=it's \"mine\", yes")
    finished(lab, work, job)
    assert runs(work)[0].name == "it's \"mine\", yes"


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


def test_found_from_a_folder_far_from_the_source(lab, work, lockstep, tmp_path):  # noqa: F811
    """No LOCKSTEP_HOME, submitted by its path from elsewhere: the script finds its neighbours by that path."""
    job = lab.submit(DDP, "quick.yaml", cwd=work, env={"LOCKSTEP_PROGRAM": str(lockstep)})
    finished(lab, work, job)
    assert metrics(runs(work)[0])


def test_a_copy_of_the_script_without_its_home_says_what_to_set(lab, work):  # noqa: F811
    (work / "job_scripts").mkdir()
    shutil.copy(DDP, work / "mine.slurm")
    shutil.copy(DDP, work / "job_scripts")
    for script in ("mine.slurm", "job_scripts/ddp.slurm"):
        job = lab.submit(script, "quick.yaml", cwd=work)
        assert lab.wait(job)["ExitCode"] == "2:0"
        (line,) = log_of(work, job).splitlines()
        assert str(work) in line and "LOCKSTEP_HOME=FOLDER" in line


@pytest.mark.parametrize("arguments, line", [
    (["typo.yaml"], "error: unknown key optim.lrr"), (["quick.yaml", "--set", "data.root=nowhere"], "error: the data folder"),
    (["quik.yaml"], "error: the config cannot be read")])
def test_a_first_days_mistake_is_said_once(arguments, line, lab, sbatch, work):  # noqa: F811
    (work / "typo.yaml").write_text((work / "quick.yaml").read_text().replace("lr: 0.01", "lrr: 0.01"))
    job = sbatch(DDP, *arguments)
    assert lab.wait(job)["ExitCode"] == "2:0"
    assert [said.startswith(line) for said in log_of(work, job).splitlines() if "error: " in said and "srun" not in said] == [
        True], log_of(work, job)
    assert not list(work.glob(".lockstep-*"))


def test_an_evaluation_of_no_run_is_bad_input(lab, sbatch, work):  # noqa: F811
    job = sbatch(str(SOURCE / "job_scripts/eval.slurm"), "runs/nothing")
    assert lab.wait(job)["ExitCode"] == "2:0"
    assert "runs/nothing: no run's folder" in log_of(work, job)
