"""The job scripts on a real two-node Slurm: sbatch as a user types it, and what comes of each job."""

import shutil

import pytest
from cluster_kit import SOURCE, runs
from cluster_kit import site, work  # noqa: F401  (fixtures)
from process_kit import executable
from slurm_kit import DDP, log_of, finished
from slurm_kit import environment, lab, sbatch  # noqa: F401  (fixtures)

pytestmark = pytest.mark.about("job_scripts")


@pytest.mark.parametrize("start, asked, ranks, threads", [
    ("srun", ["-N2", "--exclusive", "-c8"], 8, 8), ("mpirun", ["-N2", "-n5", "--exclusive"], 5, 10)])
def test_directives_do_not_fight_the_command_line(start, asked, ranks, threads, lab, sbatch, work, lockstep):  # noqa: F811
    """A program that only says who it is, so that many ranks cost nothing."""
    executable(work / "who", f'#!/bin/sh\n[ "$1" != job ] || exec "{lockstep}" "$@"\necho "I am ${{OMPI_COMM_WORLD_RANK:-$SLURM_PROCID}}, $OMP_NUM_THREADS threads"\n')
    job = sbatch(*asked, DDP, env={"LOCKSTEP_PROGRAM": str(work / "who"), "LOCKSTEP_START": start})
    lab.wait(job)
    said = sorted(line for line in log_of(work, job).splitlines() if line.startswith("I am"))
    assert said == sorted(f"I am {rank}, {threads} threads" for rank in range(ranks)), log_of(work, job)


def test_hostile_names_and_settings_survive(lab, sbatch, work):  # noqa: F811
    job = sbatch("--job-name=-n it's $(touch owned);touch owned", "--output=hostile-%j.out", DDP, "quick.yaml", "--set", "train.max_steps=2",
                 "--set", "optim.betas=[0.8, 0.9]", "--set", "run.name=it's \"mine\", yes")
    assert lab.wait(job)["JobState"] == "COMPLETED", log_of(work, job, "hostile")
    assert not (work / "owned").exists() and not (SOURCE / "owned").exists()
    assert runs(work)[0].name == "it's \"mine\", yes"


def test_a_copy_of_the_script_without_its_home_says_what_to_set(lab, work):  # noqa: F811
    """It runs no link that somebody has put into the folder of submission."""
    shutil.copy(DDP, work / "mine.slurm")
    for folder in ("job_scripts/sites", "build/release/bin"):
        (work / folder).mkdir(parents=True)
    (work / "build/release/bin/lockstep").symlink_to("/bin/true")
    job = lab.submit("mine.slurm", "quick.yaml", cwd=work)
    assert lab.wait(job)["ExitCode"] == "2:0"
    said = log_of(work, job)
    assert str(work) in said and "LOCKSTEP_HOME=FOLDER" in said


def test_a_first_days_mistake_is_said_once(lab, sbatch, work):  # noqa: F811
    job = sbatch(DDP, "quick.yaml", "--set", "data.root=nowhere")
    state = lab.wait(job)
    assert (state["ExitCode"], state["Restarts"]) == ("2:0", "0")
    # srun and slurmstepd have errors of their own about a step that ends, and whether they come in time is theirs
    ours = [said for said in log_of(work, job).splitlines() if said.startswith("error: ")]
    assert len(ours) == 1 and ours[0].startswith("error: the data folder"), log_of(work, job)
    assert not list(work.glob(".lockstep-*"))


def test_a_bench_measures_on_what_the_job_was_given(lab, sbatch, work):  # noqa: F811
    job = sbatch(str(SOURCE / "job_scripts/bench.slurm"), "allreduce", "--algorithm", "ring", "--sizes", "4,1K", "--rounds", "1",
                 "--out", "ring.html")
    finished(lab, work, job)
    assert "all sums were correct" in log_of(work, job), log_of(work, job)
    assert "</html>" in (work / "ring.html").read_text()
