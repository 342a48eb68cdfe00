"""One binary under every MPI that is here: the machine's own and those of scripts/bootstrap."""

import json
import shutil

import pytest

from cluster_kit import digests, last_checkpoint, runs
from conftest import SOURCE, run_process

pytestmark = pytest.mark.about("mpi", "comm/mpi")

FOLDER = SOURCE / ".deps/mpi"
# name: mpirun, the environment, the launcher's name, how the library's version begins
MPIS = {
    "Open MPI 5": (FOLDER / "openmpi/bin/mpirun", {}, "openmpi", "Open MPI v5."),
    "MPICH 5": (FOLDER / "mpich/bin/mpiexec", {}, "pmi", "MPICH 5."),
    "MPICH 5, standard ABI": (FOLDER / "mpich/bin/mpiexec", {"LOCKSTEP_MPI": "abi"}, "pmi", "MPICH 5."),
    "Open MPI, the machine's": ("mpirun.openmpi", {}, "openmpi", "Open MPI v"),
    "MPICH, the machine's": ("mpirun.mpich", {}, "pmi", "MPICH "),
}


# the machine's Open MPI is that of nearly all other tests
@pytest.fixture(params=[name if name == "MPICH 5, standard ABI" else pytest.param(name, marks=pytest.mark.full) for name in MPIS])
def one_of(request):
    """(start(n, ARG..., env={}) -> Result, launcher, version) of one MPI; skips where it is not here."""
    program, settings, launcher, version = MPIS[request.param]
    found = shutil.which(program)
    if not found:
        pytest.skip(f"{program} is not here")

    def start(n, *args, env=None, **how):
        return run_process([found, "-n", n, *args], env={**settings, **(env or {})}, **how)
    return start, launcher, version


def trained(start, lockstep, folder):
    """What the model is after an epoch over the backend mpi."""
    start(2, lockstep, "train", "configs/pima.yaml", "--set", "launch.backend=mpi", "--set", "train.epochs=1", "--set",
          f"run.dir={folder}/runs", check=True)
    return digests(lockstep, last_checkpoint(runs(folder)[0]), run_process)


@pytest.fixture(scope="module")
def reference(mpiexec, lockstep, tmp_path_factory):
    return trained(lambda n, *args, **how: run_process([mpiexec, "-n", n, *args], **how), lockstep,
                   tmp_path_factory.mktemp("reference"))


def test_each_mpi_is_found_called_as_the_standard_says_and_trains_to_the_same_bits(one_of, lockstep, build_dir, tmp_path, reference):
    start, launcher, version = one_of
    report = json.loads(start(2, lockstep, "whoami", "--json", check=True).stdout)
    assert [(rank["rank"], rank["world"]) for rank in report["ranks"]] == [(0, 2), (1, 2)]
    assert report["launcher"] == launcher
    for rank in report["ranks"]:
        assert rank["mpi"].startswith(version)
        assert rank["because"]["mpi"].startswith(rank["mpi"] + " in /")
    result = start(2, build_dir / "bin/test_launch_ranks", "--gtest_filter=Calls.*", "--gtest_color=no")
    assert result.returncode == 0 and "[  PASSED  ] 6 tests" in result.stdout, result.output
    assert trained(start, lockstep, tmp_path) == reference


TORCHRUN = {"RANK": 0, "WORLD_SIZE": 1, "LOCAL_RANK": 0, "LOCAL_WORLD_SIZE": 1}
STEP = {"SLURM_PROCID": 0, "SLURM_STEP_NUM_TASKS": 1, "SLURM_STEP_TASKS_PER_NODE": "1", "SLURM_STEP_ID": 0,
        "SLURM_LOCALID": 0, "SLURM_NODEID": 0, "SLURM_STEP_NUM_NODES": 1, "SLURM_JOB_ID": 7}


def test_without_an_mpi_launcher_no_mpi_is_touched(run, lockstep):
    for environment in ({}, TORCHRUN, STEP):
        result = run(lockstep, "whoami", env={**environment, "LD_DEBUG": "files"})
        assert result.returncode == 0, (environment, result.output)
        assert "liblockstep.so" in result.stderr and "libmpi" not in result.stderr, environment


# every MPI of the machine is an empty file
HIDE = """
for library in /usr/lib/*/libmpi*.so* /usr/lib/*/openmpi/lib/libmpi*.so*; do
  [ ! -f "$library" ] || mount --bind /dev/null "$(readlink -f "$library")" 2>/dev/null
done
exec "$@" """


@pytest.fixture
def without_mpi(run):
    """run(ARG..., env={}) where no MPI is installed; skips where that may not be made."""
    if run("unshare", "--mount", "true").returncode != 0:
        pytest.skip("may not mount here")

    def start(*args, **how):
        return run("unshare", "--mount", "sh", "-c", HIDE, "sh", *args, **how)
    for name in ("libmpi.so.40", "libmpi.so.12", "libmpich.so.12"):
        assert start("python3", "-c", f"import ctypes; ctypes.CDLL('{name}')").returncode != 0
    return start


def test_where_no_mpi_is_installed_it_trains(without_mpi, lockstep, tmp_path):
    without_mpi(lockstep, "train", "configs/pima.yaml", "--set", "train.epochs=1", "--set", f"run.dir={tmp_path}/run", check=True)
    assert list(tmp_path.glob("run/*/metrics.jsonl"))


def test_a_step_with_a_pmi_and_no_mpi_goes_on_without_it(without_mpi, lockstep):
    step = {**STEP, "FLUX_JOB_SIZE": 1, "FLUX_TASK_RANK": 0, "PMI_FD": 9}
    result = without_mpi(lockstep, "whoami", "--json", env=step)
    assert result.returncode == 0, result.output
    (rank,) = json.loads(result.stdout)["ranks"]
    assert rank["mpi"] == "" and any(warning.startswith("without MPI: ") for warning in rank["warnings"])


def test_mpirun_where_its_library_does_not_load_says_so(without_mpi, lockstep):
    result = without_mpi(lockstep, "whoami", env={"OMPI_COMM_WORLD_RANK": 0, "OMPI_COMM_WORLD_SIZE": 1})
    assert result.returncode == 2, result.output
    assert "cannot load an MPI library: /" in result.stderr and "LD_LIBRARY_PATH" in result.stderr
    assert "MPI       none: cannot load an MPI library: /" in without_mpi(lockstep, "--version", check=True).stdout
