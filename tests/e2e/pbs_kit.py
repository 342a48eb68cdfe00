"""What the tests of PBS share: the stand-in, its jobs, and what the same training gives without it."""

import pytest
from cluster_kit import QUICK, SOURCE, digests, last_checkpoint, runs, start_lab
from conftest import run_process
from process_kit import wait_for

SCRIPTS = SOURCE / "job_scripts"
DDP = str(SCRIPTS / "ddp.pbs")
LASTING_SHELL = ("-S", str(SCRIPTS / "pbs_shell.sh"))  # without it a qsig ends the job's shell, and so the job


@pytest.fixture(scope="module")
def pbs(tmp_path_factory):
    lab = start_lab(tmp_path_factory.mktemp("pbs") / "lab", "pbs")
    (lab.folder / "kill_delay").write_text("8")  # less than mpirun takes after a SIGTERM
    yield lab
    lab.stop()


def fields(lab, job):
    """qstat -f of a job as a dict, its wrapped lines joined."""
    text = lab.run("qstat", "-x", "-f", job).stdout.replace("\n\t", "")
    return dict(line.strip().split(" = ", 1) for line in text.splitlines() if " = " in line)


def ended(lab, job, within=90):
    wait_for(lambda: fields(lab, job)["job_state"] == "F", within, f"job {job} to end")
    return int(fields(lab, job)["Exit_status"])


def log_of(work, job):
    number = job.split(".")[0].replace("[", ".").rstrip("]")
    return (work / f"lockstep.o{number}").read_text()


def next_job(lab, job):
    """The job that was submitted after this one, or None."""
    number = int(job.split(".")[0].split("[")[0]) + 1
    return f"{number}.lab" if lab.run("qstat", "-x", f"{number}.lab", check=False).returncode == 0 else None


@pytest.fixture
def qsub(pbs, work, site, lockstep):
    """qsub(ARG..., **variables) -> job id, from the folder of submission."""
    def submit(*arguments, script=DDP, cwd=None, **variables):
        variables = {"LOCKSTEP_PROGRAM": str(lockstep), "LOCKSTEP_HOME": str(SOURCE), **site, **variables}
        return pbs.run("qsub", *arguments, "-v", ",".join(variables), script, cwd=cwd or work,
                       env=variables).stdout.strip()
    return submit


@pytest.fixture
def quick_program(tmp_path):
    """In the program's place where a test is about its job: done at once, or with EARLY=yes first stopped early."""
    program = tmp_path / "program"
    program.write_text(f"""#!/bin/bash
case $1 in
  train) echo {tmp_path}/run >"$LOCKSTEP_RUN_FILE" ;;
  status) [ -z "$EARLY" ] || [ -n "$LOCKSTEP_RESTART" ] || exit 75 ;;
esac
""")
    program.chmod(0o755)
    return str(program)


@pytest.fixture(scope="module")
def reference(lockstep, mpiexec, tmp_path_factory):
    """reference(world, *sets): digests of the same training without PBS."""
    def train(world, *sets):
        folder = tmp_path_factory.mktemp("reference")
        (folder / "quick.yaml").write_text(QUICK)
        run_process([mpiexec, "-n", world, lockstep, "train", "quick.yaml", *sets], cwd=folder,
                    env={"LOCKSTEP_HOME": str(SOURCE)}, timeout=120, check=True)
        return digests(lockstep, last_checkpoint(runs(folder)[0]), run_process)
    return train

# What a job script has at hand, without PBS.
IN_A_JOB = f"""
export LOCKSTEP_HOME={SOURCE} PBS_JOBID=1.x
. "$LOCKSTEP_HOME/job_scripts/lockstep.sh"
PBS_RECORD=$RECORD
"""
