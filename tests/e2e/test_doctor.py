"""`lockstep doctor`: each fault that it names is made here, and it ends whatever is broken."""

import shutil
import subprocess

import pytest
from doctor_kit import told
from process_kit import ends_of, shared_library

pytestmark = pytest.mark.about("doctor")

QUICK = {"LOCKSTEP_JOIN_TIMEOUT": 2}


@pytest.fixture
def doctor(run, lockstep):
    """doctor(ARG..., before=[], env={}) -> the report of one process."""
    return lambda *args, before=(), **how: told(run(*before, lockstep, "doctor", "--json", *args, **how))


@pytest.fixture
def ranks(mpirun, lockstep):
    """ranks(N, script) -> the Result of `doctor --json` on N ranks, which a shell with that script starts."""
    def begin(n, script="", *args, **how):
        return mpirun(n, "sh", "-c", f'{script}\nexec "$@"', "sh", lockstep, "doctor", "--json", *args, **how)
    return begin


def inside(script, *spaces):
    """What runs the rest with mounts (or a host name) of its own; skips where that may not be."""
    words = ["unshare", *(spaces or ["--mount"]), "sh", "-c", f'{script} || exit 77; exec "$@"', "sh"]
    if not shutil.which("unshare") or subprocess.run([*words, "true"], capture_output=True).returncode:
        pytest.skip("no namespaces of its own here")
    return words


# --- one process ---

def test_a_line_a_check_and_exit_0_where_nothing_failed(run, lockstep):
    result = run(lockstep, "doctor", check=True)
    lines = [line for line in result.stdout.splitlines() if not line.startswith(" ")]
    assert lines[0].startswith("1 rank on 1 node") and "ok, " in lines[-1]
    assert all(line.split()[0] in ("ok", "warning", "failure") for line in lines[1:-1])
    assert result.stderr == ""


def test_low_limits_blocked_signals_and_odd_variables_are_named(doctor):
    doctor(before=["sh", "-c", 'ulimit -n 100; exec "$@"', "sh"]).one("limits", "failure", "a process may open 100 files")
    report = doctor(before=["env", "--block-signal=TERM"], env={"NCCL_P2P_DISABLE": 1, "TMPDIR": "/nowhere", "NCCL_IB_DISABLE": 0})
    found = report.one("variables", "warning", "NCCL_P2P_DISABLE=1", "TMPDIR=/nowhere")
    assert "NCCL_IB_DISABLE" not in found["says"]
    report.one("signals", "failure", "SIGTERM is blocked")


def test_a_full_dev_shm_and_a_host_name_that_does_not_resolve_are_named(doctor):
    full = inside("mount -t tmpfs -o size=32m tmpfs /dev/shm && head -c 32M /dev/zero >/dev/shm/full")
    doctor(before=full).one("shm", "failure", "No space left")
    doctor(before=inside("hostname nowhere.invalid", "--uts")).one("host", "warning", "nowhere.invalid does not resolve")


def test_a_driver_that_hangs_is_named_in_time_and_what_was_found_is_told(doctor, tmp_path):
    shared_library(tmp_path, "libcuda.so.1", "#include <unistd.h>\nint cuInit(unsigned f) { for (;;) pause(); }\n"
                   "int cuDeviceGetCount(int *n) { return *n = 0; }\n")
    doctor(env={**QUICK, "LD_LIBRARY_PATH": tmp_path}).one("collection", "failure", "GPUs did not end within 2 s")


# --- several ranks ---

@pytest.mark.mpi
def test_ranks_that_are_well_are_told_once(ranks):
    found = told(ranks(2, check=True))
    assert found.report["complete"] and found.report["world"] == 2 and len(found.report["ranks"]) == 2
    found.one("ranks", "ok", "2 ranks on 1 machine")


@pytest.mark.mpi
def test_a_rank_that_never_starts_is_named_in_time(ranks, mpi):
    result = ranks(2, f'[ "${mpi.rank}" = 1 ] && exec sleep 3600', env=QUICK, quiet=True)
    found = told(result)
    found.one("rendezvous", "failure", "MPI_Init did not end within 2 s")
    assert found.of("memory"), "the node is checked"
    assert result.left_behind == []


def test_ranks_by_hand_that_cannot_meet_each_tell(start, lockstep, free_port):
    env = dict(RANK=0, WORLD_SIZE=2, LOCAL_RANK=0, MASTER_ADDR="127.0.0.1", MASTER_PORT=free_port(), **QUICK)
    (status, out, err), = ends_of([start(lockstep, "doctor", env=env, stdout=subprocess.PIPE, text=True)])
    lines = out.splitlines()
    assert status == 1 and all(line.startswith("[rank 0] ") for line in lines[:-1])
    assert "failure  rendezvous  rank 1 did not join" in out
