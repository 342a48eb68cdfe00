"""The course's job scripts: every spelling that a scheduler takes passes, what it would not read is said, solutions run."""

import pytest
from conftest import SOURCE, clean_environment, run_process

pytestmark = pytest.mark.about("workshop", "job_scripts", "tutorials")

PBS, SLURM = "start.2", "start.3"
FILES = {PBS: "start.2.pbs", SLURM: "start.3.slurm"}
COMMANDS = {PBS: 'cd "$PBS_O_WORKDIR"\nlockstep job train configs/pima.yaml', SLURM: "srun lockstep whoami"}


@pytest.fixture
def course(lockstep, tmp_path):
    """course(*words) -> lockstep in a learner's folder of its own."""
    def do(*words, **variables):
        return run_process([lockstep, *words], cwd=tmp_path, env=clean_environment(LOCKSTEP_HOME=str(SOURCE), **variables))
    assert do("workshop", "init", ".").returncode == 0
    return do


def write(folder, exercise, directives, commands=None):
    lines = ["#!/bin/bash", *directives, "", commands or COMMANDS[exercise], ""]
    (folder / "exercises" / FILES[exercise]).write_text("\n".join(lines))


GOOD = {PBS: ["#PBS -l select=2:ncpus=2:mpiprocs=2", "#PBS -l place=scatter", "#PBS -l walltime=00:10:00"],
        SLURM: ["#SBATCH --nodes=2", "#SBATCH --ntasks-per-node=2", "#SBATCH --time=00:10:00"]}


def test_another_way_to_say_it_is_as_good(course, tmp_path):
    for exercise, directives in (
            (PBS, ["#PBS -N mine -lselect=2:mpiprocs=2:ncpus=2 -l place=scatter:excl", "#PBS -l walltime=10:00"]),
            (PBS, ["#PBS -l select=1:ncpus=2:mpiprocs=2+1:ncpus=2:mpiprocs=2,place=scatter", "", "#PBS -l walltime=600"]),
            (SLURM, ["#SBATCH -N2 --ntasks-per-node=2 -n 4 -c1", "#SBATCH --time=0-00:10"]),
            (SLURM, ["#SBATCH --nodes=2-2  # two", "#SBATCH --ntasks-per-node 2", "#SBATCH -t 10"])):
        write(tmp_path, exercise, directives)
        done = course("check", exercise)
        assert done.returncode == 0 and "pass" in done.stdout, done.stdout


def test_what_the_scheduler_would_not_do_is_said(course, tmp_path):
    for exercise, directives, says in (
            (PBS, [GOOD[PBS][0], "echo hello", *GOOD[PBS][1:]], "line 4 is ignored"),
            (PBS, [*GOOD[PBS][:2], "# PBS -l walltime=00:10:00"], "line 4 is a comment"),
            (PBS, ["#PBS -l select=99999999999:ncpus=2"], "is not a number"),
            (PBS, ["#PBS -l select=2:ncpus=4:mpiprocs=2", *GOOD[PBS][1:]], "each chunk has 4 cores"),
            (SLURM, [], "--nodes is missing"),
            (SLURM, [*GOOD[SLURM][:2], "#SBATCH --time=00:10"], "10 seconds"),
            (SLURM, [*GOOD[SLURM], "#SBATCH --ntasks=2"], "2 tasks")):
        write(tmp_path, exercise, directives)
        done = course("check", exercise)
        assert done.returncode == 1 and says in done.stdout, done.stdout
    for commands, says in (("lockstep whoami", "runs lockstep once"), ("if", "bash cannot read")):
        write(tmp_path, SLURM, GOOD[SLURM], commands)
        done = course("check", SLURM)
        assert done.returncode == 1 and says in done.stdout, done.stdout


def test_an_environment_is_mended_in_another_way_and_in_a_sick_shell(course, tmp_path):
    (tmp_path / "exercises/start.4.sh").write_text("#!/bin/bash\nunset OMP_NUM_THREADS TORCH_DISTRIBUTED_DEBUG\nexec \"$@\"\n")
    done = course("check", "start.4", OMP_NUM_THREADS="64", TORCH_DISTRIBUTED_DEBUG="DETAIL", GLOO_SOCKET_IFNAME="nowhere9")
    assert done.returncode == 0 and "pass" in done.stdout, done.stdout


def test_a_script_that_keeps_the_doctor_out_is_told_so(course, tmp_path):
    for lines, says in (("exit 3", "does not run its program"),
                        ("[ \"${RANK:-0}\" = 0 ] || exit 0\nexec \"$@\"", "one of the 2 ranks did not reach")):
        (tmp_path / "exercises/start.4.sh").write_text(f"#!/bin/bash\n{lines}\n")
        done = course("check", "start.4", LOCKSTEP_JOIN_TIMEOUT="2")
        assert done.returncode == 1 and says in done.stdout, done.stdout
