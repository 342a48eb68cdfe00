"""What the tests of PBS share: the stand-in, and its jobs."""

import json

import cluster_kit
import pytest
from cluster_kit import SOURCE, play_at_once, start_lab
from process_kit import PATIENCE, executable, wait_for

SCRIPTS = SOURCE / "job_scripts"
DDP = str(SCRIPTS / "ddp.pbs")
LASTING_SHELL = ("-S", str(SCRIPTS / "pbs_shell.sh"))  # without it a qsig ends the job's shell, and so the job


@pytest.fixture(scope="module")
def pbs(tmp_path_factory):
    lab = start_lab(tmp_path_factory.mktemp("pbs") / "lab", "pbs")
    (lab.folder / "kill_delay").write_text("60")  # no test is to say how quickly a busy machine stops
    yield lab
    lab.stop()


def fields(lab, job):
    """qstat -f of a job as a dict, its wrapped lines joined."""
    text = lab.run("qstat", "-x", "-f", job).stdout.replace("\n\t", "")
    return dict(line.strip().split(" = ", 1) for line in text.splitlines() if " = " in line)


def ended(lab, job, within=PATIENCE):
    wait_for(lambda: fields(lab, job)["job_state"] == "F", within, f"job {job} to end")
    return int(fields(lab, job)["Exit_status"])


def log_file(work, job):
    number = job.split(".")[0].replace("[", ".").rstrip("]")
    return work / f"lockstep.o{number}"


def log_of(work, job):
    return log_file(work, job).read_text()


def number_of(job):
    return int(job.split(".")[0].split("[")[0])


def next_job(lab, job):
    """The job that was submitted after this one from its folder, or None."""
    known = [json.loads(path.read_text()) for path in (lab.folder / "jobs").glob("*.json")]
    (folder,) = {each["workdir"] for each in known if number_of(each["id"]) == number_of(job)}
    later = [each["id"] for each in known if each["workdir"] == folder and number_of(each["id"]) > number_of(job)]
    return min(later, key=number_of, default=None)


def submitted(pbs, folder, variables, *arguments, script=DDP):
    return pbs.run("qsub", *arguments, "-v", ",".join(variables), script, cwd=folder, env=variables).stdout.strip()


@pytest.fixture
def qsub(pbs, work, site, lockstep):
    """qsub(ARG..., **variables) -> job id, from the folder of submission."""
    def submit(*arguments, script=DDP, cwd=None, **variables):
        variables = {"LOCKSTEP_PROGRAM": str(lockstep), "LOCKSTEP_HOME": str(SOURCE), **site, **variables}
        return submitted(pbs, cwd or work, variables, *arguments, script=script)
    return submit


@pytest.fixture
def quick_program(tmp_path, lockstep):
    """In the program's place where a test is about its job: done at once."""
    program = tmp_path / "program"
    executable(program, f"""#!/bin/bash
case $1 in
  job) exec '{lockstep}' "$@" ;;
  train)
    mkdir {tmp_path}/run.$$
    echo '{{"state": "done"}}' >{tmp_path}/run.$$/status.json
    until [ "$1" = --run-file ]; do shift; done
    echo {tmp_path}/run.$$ >"$2" ;;
esac
""")
    return str(program)


class Desk(cluster_kit.Desk):
    def qsub(self, *arguments, script=DDP, **variables):
        return submitted(self.lab, self.work, {**self.environment, **variables}, *arguments, script=script)


@pytest.fixture(scope="module")
def stories(request, pbs, site):
    yield from play_at_once(Desk, pbs, {"LOCKSTEP_HOME": str(SOURCE), **site}, request)
