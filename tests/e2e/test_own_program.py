"""The course's own program: built as a learner builds it, run alone, by the PBS script and by the Slurm one."""

import re
import shutil

import pytest
from cluster_kit import SOURCE
from cluster_kit import site, work  # noqa: F401  (fixtures)
from conftest import run_process
from pbs_kit import ended
from pbs_kit import log_of as pbs_log
from pbs_kit import pbs, qsub  # noqa: F401  (fixtures)
from process_kit import executable
from slurm_kit import environment, lab, sbatch  # noqa: F401  (fixtures)
from slurm_kit import finished
from slurm_kit import log_of as slurm_log

pytestmark = pytest.mark.about("lesson", "workshop", "tutorials")

NAME = "distributed_data_parallel"


@pytest.fixture(scope="module")
def course(prepared, tmp_path_factory):
    """A learner's folder: the exercise solved, it and its twin built, and copies of the job scripts."""
    folder = tmp_path_factory.mktemp("my course") / "course"
    env = {"LOCKSTEP_HOME": str(SOURCE)}
    run_process([prepared, "workshop", "init", folder], env=env, check=True)
    solution = run_process([prepared, "check", NAME, "--solution"], cwd=folder, env=env, check=True).stdout
    (folder / f"exercises/{NAME}.cpp").write_text(solution.rstrip() + "\n")
    for source in (f"exercises/{NAME}.cpp", "programs/single_process.cpp"):
        run_process([prepared, "workshop", "build", source], cwd=folder, env=env, check=True)
    (folder / "job_scripts").mkdir()
    for kind in ("pbs", "slurm"):
        shutil.copy(SOURCE / f"job_scripts/{NAME}.{kind}", folder / "job_scripts")
    return folder


def alone(course, program):
    return run_process([course / "build" / program], cwd=course, check=True,
                       env={"LOCKSTEP_HOME": str(SOURCE), "OMP_NUM_THREADS": "1"}).stdout.splitlines()


@pytest.fixture(scope="module")
def twin(course):
    """What the program for one process says."""
    return alone(course, "single_process")


def losses(lines):
    return [float(line.rsplit(" ", 1)[1]) for line in lines if re.fullmatch(r"Epoch \d \| Average Loss: \d\.\d{4}", line)]


def biases(lines):
    """rank -> the last layer's bias."""
    found = [re.fullmatch(r"rank (\d): head\.bias = (\S+) (\S+)", line) for line in lines]
    return {int(m[1]): [float(m[2]), float(m[3])] for m in found if m}


def assert_trained_as(twin, log):
    """Two ranks with half a batch each: the twin's losses and model but for rounding, one model on both."""
    lines = log.splitlines()
    assert "your program: " in log
    assert losses(lines) == pytest.approx(losses(twin), abs=2e-4)
    assert set(biases(lines)) == {0, 1}, log
    assert biases(lines)[0] == biases(lines)[1] == pytest.approx(biases(twin)[0], abs=1e-5)


@pytest.mark.full
def test_alone_it_equals_its_twin_to_the_bit(course, twin):
    assert alone(course, NAME) == twin
    assert len(losses(twin)) == 5 and losses(twin)[4] < losses(twin)[0]


@pytest.mark.full
def test_the_slurm_script_runs_it(course, twin, lab, environment):  # noqa: F811
    job = lab.submit(f"job_scripts/{NAME}.slurm", cwd=course, env=environment)
    finished(lab, course, job)
    assert_trained_as(twin, slurm_log(course, job))


def test_arguments_go_to_a_named_program_and_else_to_lockstep(work, lab, environment):  # noqa: F811
    executable(work / "mine", '#!/bin/sh\necho "told: $#, $2"\n')
    script = str(SOURCE / f"job_scripts/{NAME}.slurm")
    job = lab.submit(script, "one", "and two", cwd=work, env={**environment, "OWN_PROGRAM": "mine"})
    finished(lab, work, job)
    assert slurm_log(work, job).splitlines()[-2:] == ["told: 2, and two"] * 2
    job = lab.submit(script, str(work / "quick.yaml"), "--set", "train.max_steps=2", cwd=work, env=environment)
    finished(lab, work, job)
    assert "2 steps" in slurm_log(work, job)


def test_a_program_that_is_not_there_is_refused(work, pbs, qsub):  # noqa: F811
    job = qsub(script=str(SOURCE / f"job_scripts/{NAME}.pbs"), OWN_PROGRAM="build/mine")
    assert ended(pbs, job) == 2
    log = pbs_log(work, job)
    assert "no such program" in log and "OWN_PROGRAM=build/mine" in log, log


def test_a_job_fails_with_its_program(work, pbs, qsub):  # noqa: F811
    executable(work / "mine", "#!/bin/sh\nexit 5\n")
    job = qsub(script=str(SOURCE / f"job_scripts/{NAME}.pbs"), OWN_PROGRAM="mine")
    assert ended(pbs, job) not in (0, 75), pbs_log(work, job)
