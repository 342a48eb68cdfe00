"""How a job's ranks are started and waited for, with programs in the launcher's place: its words, and its end."""

import pytest
from conftest import JOB_LIBRARY, OPEN_MPI

pytestmark = pytest.mark.about("job_scripts")

LINE = "-" * 74
NO_CPUS = f"{LINE}\nWhile computing bindings, we found no available cpus on\nthe following node:\n\n  Node:  n1\n{LINE}\n"
EXIT_CODE = f"""{LINE}
Primary job  terminated normally, but 1 process returned
a non-zero exit code. Per user-direction, the job has been aborted.
{LINE}
"""
STATUS = f"""{LINE}
mpirun detected that one or more processes exited with non-zero status, thus causing
the job to be terminated. The first process to do so was:

  Process name: [[19231,1],0]
  Exit code:    2
{LINE}
"""
ABORT = f"""{LINE}
MPI_ABORT was invoked on rank 1 in communicator MPI_COMM_WORLD
with errorcode 1.

NOTE: invoking MPI_ABORT causes Open MPI to kill all MPI processes.
{LINE}
"""
MORE = """[n1:4711] 1 more process has sent help message help-mpi-api.txt / mpi-abort
[n1:4711] Set MCA parameter "orte_base_help_aggregate" to 0 to see all help / error messages
"""
SIGNAL = "mpirun: Forwarding signal 10 to job\n"
TABLE = LINE + "\n" + "a row\n" * 40

# choose_start's words, and the ranks: in PBS, on one node
RUN = f"""
export PBS_JOBID=7.x
{JOB_LIBRARY}
hear_signals
START=("$PWD/launcher") BETWEEN_LOOKS=0.05
"""


@pytest.fixture
def ranks(run, tmp_path):
    """ranks(launcher's text, words of the job's script, NAME=value...) -> what run_ranks in its place leaves with."""
    def start(launcher, words="", **variables):
        for name, text in (("launcher", launcher), ("rank", "exit 1")):
            if not (tmp_path / name).exists():
                (tmp_path / name).write_text(f"#!/bin/bash\n{text}\n")
                (tmp_path / name).chmod(0o755)
        return run("bash", "-c", f'{RUN}{words}\nrun_ranks; echo "left with $?"', cwd=tmp_path,
                   env={"LOCKSTEP_PROGRAM": str(tmp_path / "rank"), **variables})
    return start


def test_a_launchers_own_errors_are_shown_without_its_banner(ranks, tmp_path):
    for said, shown in ((NO_CPUS, NO_CPUS), (TABLE, TABLE), (LINE + "\n", LINE + "\n"),
                        *((banner, "") for banner in (EXIT_CODE, STATUS, ABORT, MORE, SIGNAL))):
        (tmp_path / "said").write_text(said)
        done = ranks("echo 'error: of a rank' >&2; cat said >&2; echo 'the last' >&2; exit 3")
        assert (done.stdout, done.stderr) == ("left with 3\n", f"error: of a rank\n{shown}the last\n")


def test_open_mpi_says_why_it_starts_nobody(run, mpi, mpi_on_path, tmp_path):
    if mpi is not OPEN_MPI:
        pytest.skip("what is looked at is Open MPI's")
    (tmp_path / "nodes").write_text("localhost\n" * 2)
    words = "NODES=1 RANKS=2 RANKS_PER_NODE=1 CPUS_PER_RANK=100000; choose_start; run_ranks true; exit $?"
    done = run("bash", "-c", RUN + words, cwd=tmp_path,
               env={"PATH": mpi_on_path, "LOCKSTEP_START": "mpirun", "PBS_NODEFILE": str(tmp_path / "nodes")})
    assert done.returncode and LINE in done.stderr, done.output


@pytest.mark.parametrize("status, start", [(0, "launcher"), (75, "launcher"), (0, "srun")])
def test_a_launcher_that_outlives_its_run_is_ended(status, start, ranks, tmp_path):
    (tmp_path / "rank").write_text(f"#!/bin/bash\n[ $1 = status ] && {{ [ -e left ] && exit {status}; exit 3; }}\necho 'the rank leaves'; touch left\n")
    (tmp_path / "rank").chmod(0o755)
    (tmp_path / "file").write_text(f"{tmp_path}\n")
    (tmp_path / "srun").symlink_to(tmp_path / "launcher")
    done = ranks("./rank train; exec sleep 3600", f"PATH=$PWD:$PATH START=({start})", LOCKSTEP_RUN_FILE=str(tmp_path / "file"))
    rank, said, left = done.stdout.splitlines()
    assert (rank, left, done.stderr) == ("the rank leaves", "left with 137", "")
    assert f"sending SIGKILL to {start}" in said


def test_a_process_that_is_no_launcher_of_the_script_is_not_ended(run, tmp_path):
    words = "(sleep 60 & echo $! >pid); LAUNCHER_PID=$(<pid); end_launcher why; kill $LAUNCHER_PID && echo alive"
    assert run("bash", "-c", RUN + words, cwd=tmp_path, check=True).stdout == "alive\n"


def test_a_launcher_whose_run_goes_on_is_left_alone(ranks, tmp_path):
    """Its ranks may all be on other nodes."""
    (tmp_path / "rank").write_text(f"#!/bin/bash\necho asked >>{tmp_path}/asked\nexit 3\n")
    (tmp_path / "rank").chmod(0o755)
    (tmp_path / "file").write_text(f"{tmp_path}\n")
    done = ranks("until [ \"$(wc -l 2>/dev/null <asked)\" = 5 ]; do sleep 0.05; done", LOCKSTEP_RUN_FILE=str(tmp_path / "file"))
    assert (done.stdout, done.stderr) == ("left with 0\n", "")
