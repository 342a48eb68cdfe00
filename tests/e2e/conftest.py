"""Fixtures for tests of the built program: where it is, and runs that always end.

Every process is started in a session of its own, with a mark in its environment, and whatever is of that session
or has that mark is ended with it: mpirun's ranks have process groups or sessions of their own, so killing mpirun's
group alone would leave them behind.
"""

import contextlib
import dataclasses
import fcntl
import functools
import itertools
import os
import pathlib
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time

import pytest

import dealing_kit
from process_kit import LONG_PATIENCE, PATIENCE, executable

SOURCE = pathlib.Path(__file__).resolve().parents[2]

# What a launcher or scheduler leaves in the environment: a test says itself whom it pretends to be.
LAUNCHER_PREFIXES = (
    "SLURM_", "SBATCH_", "PBS_", "OMPI_", "PMI_", "PMIX_", "PALS_", "FLUX_", "JSM_", "LSB_", "PRTE_",
    "HYDRA_", "HYDI_", "MPI_", "MPIR_", "I_MPI_", "TORCHELASTIC_", "GLOO_", "NCCL_", "LOCKSTEP_", "OMP_", "PYTEST_",
)
LAUNCHER_NAMES = {
    "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "ROLE_RANK", "MASTER_ADDR",
    "MASTER_PORT", "NCPUS", "CUDA_VISIBLE_DEVICES",
}


def pytest_addoption(parser):
    parser.addoption("--build-dir", default=os.environ.get("LOCKSTEP_BUILD", str(SOURCE / "build/release")),
                     help="the build folder under test (default build/release, or $LOCKSTEP_BUILD)")
    parser.addoption("--about", action="append", default=[], metavar="PART",
                     help="only tests marked with this module or folder, or those of --file")
    parser.addoption("--file", action="append", default=[], metavar="FILE", help="and all tests of this file")
    parser.addoption("--budget", type=float, metavar="SECONDS",
                     help="only as many tests, cheapest first, as have taken this long on each worker")
    parser.addoption("--seed", type=int, default=int(time.time()), help="the first run of a campaign of faults (default: the time)")
    parser.addoption("--record", action="store_true", help="a campaign of faults adds a row to docs/track-record.jsonl")
    parser.addoption("--minutes", type=float, default=10, help="a campaign begins no more runs after this long (default 10)")


def pytest_configure(config):
    config.costs = dealing_kit.Costs(SOURCE / "build/test-costs.json")
    config.pluginmanager.register(config.costs)
    # all workers must see the same, whatever another run writes meanwhile
    config.known_costs = config.workerinput["costs"] if hasattr(config, "workerinput") else config.costs.known()


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node):
    node.workerinput["costs"] = node.config.known_costs


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config, items):
    costs, parts, files = config.known_costs, config.getoption("--about"), config.getoption("--file")
    chosen = [item for item in items if not (parts or files) or dealing_kit.is_about(item, parts, files)]
    if config.getoption("--budget"):
        workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", 1))
        chosen, _ = dealing_kit.within(chosen, config.getoption("--budget") * workers, costs)
    if not (pathlib.Path(config.getoption("--build-dir")) / "bin/lockstep-workshop").exists():
        for item in chosen:
            if dealing_kit.is_about(item, ["workshop"], []):
                item.add_marker(pytest.mark.skip(reason="this build has no course (LOCKSTEP_COURSE)"))
    kept = set(chosen)
    config.hook.pytest_deselected(items=[item for item in items if item not in kept])
    items[:] = dealing_kit.longest_first(chosen, costs) if hasattr(config, "workerinput") else chosen


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    from xdist.scheduler import LoadScopeScheduling

    class Dealing(LoadScopeScheduling):
        def _split_scope(self, nodeid):
            return dealing_kit.group_of(nodeid)
    return Dealing(config, log)


def pytest_sessionfinish(session):
    if not hasattr(session.config, "workerinput"):
        session.config.costs.write()


def pytest_terminal_summary(terminalreporter):
    failed = {report.nodeid for kind in ("failed", "error") for report in terminalreporter.stats.get(kind, [])}
    for name in sorted(failed):
        terminalreporter.write_line(f"run it alone: scripts/test {shlex.quote(name)}")


# A suite that a script started in the background has Ctrl-C ignored, one under nohup SIGHUP, and so would all that it starts.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) == signal.SIG_IGN:
    signal.signal(signal.SIGHUP, lambda *_: None)


PORTS_OF_A_WORKER = 700


@functools.cache
def worker_ports():
    """This worker's own, from a place of this run's, below those that the kernel gives to whoever asks for any."""
    first = 20000 + PORTS_OF_A_WORKER * (int(os.environ.get("PYTEST_XDIST_WORKER", "gw0")[2:]) % 17)
    begin = os.getpid() % PORTS_OF_A_WORKER
    return itertools.cycle(first + (begin + i) % PORTS_OF_A_WORKER for i in range(PORTS_OF_A_WORKER))


def free_port():
    """A port that nobody listens at, and that no other test of this run gets."""
    for port in worker_ports():
        with contextlib.suppress(OSError), socket.socket() as probe:
            probe.bind(("", port))
            return port


def clean_environment(**more):
    """This environment without any launcher's or scheduler's words, one thread a rank, plus `more`."""
    environment = {name: value for name, value in os.environ.items()
                   if name not in LAUNCHER_NAMES and not name.startswith(LAUNCHER_PREFIXES)}
    # the course's checks take turns on a machine, by default one for two cores: tests are dealt to workers already
    environment.update(OMP_NUM_THREADS="1", PYTHONDONTWRITEBYTECODE="1", LOCKSTEP_CHECKS="32",
                       OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1",
                       OMPI_MCA_rmaps_base_oversubscribe="1")
    environment.update({name: str(value) for name, value in more.items() if value is not None})
    for name, value in more.items():
        if value is None:
            environment.pop(name, None)
    return environment


def members(process):
    """The pids of every living process of a job that start_process() began, whatever sessions it made (hydra does)."""
    found = []
    for folder in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            # pid (name) state ppid pgrp session ...; the name may hold spaces and brackets
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
            ours = int(fields[3]) == process.pid or process.job in (folder / "environ").read_bytes().split(b"\0")
        except OSError:
            continue
        if ours and fields[0] != "Z":
            found.append(int(folder.name))
    return found


def left_behind(process, grace=10.0):
    """The pids that stay after their job's first process has left: one that was killed may still be going."""
    end = time.monotonic() + grace
    while (left := members(process)) and time.monotonic() < end:
        time.sleep(0.05)
    return left


def sockets_of(pid):
    found = set()
    for descriptor in pathlib.Path(f"/proc/{pid}/fd").iterdir():
        try:
            found.add(os.readlink(descriptor))
        except OSError:
            continue
    return found


def listens_on(pid):
    """The addresses, as the kernel prints them, on which a process waits for TCP connections on sockets of its own: what
    it was born with (slurmstepd hands one down) is its parent's."""
    parent = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1]
    own = sockets_of(pid) - sockets_of(parent)
    found = set()
    for table in ("tcp", "tcp6"):
        for line in pathlib.Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and f"socket:[{fields[9]}]" in own:  # 0A is LISTEN
                found.add(fields[1].split(":")[0])
    return found


LOOPBACK = "0100007F"


def end_session(process, grace=5.0):
    """Ends a process started by start() and whatever it left behind: a polite word, then SIGKILL."""
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(grace)
        except subprocess.TimeoutExpired:
            pass
    for pid in members(process):
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
    process.wait()


@dataclasses.dataclass
class Result:
    """How a run ended."""
    returncode: int
    stdout: str
    stderr: str
    seconds: float
    left_behind: list  # pids of its job that outlived it (ended by now)

    @property
    def output(self):
        return self.stdout + self.stderr


job_numbers = itertools.count()


def start_process(args, env=None, cwd=None, **popen):
    """Popen in a session of its own, with a clean environment plus `env` (None takes a variable out)."""
    mark = f"{os.getpid()}.{next(job_numbers)}"  # by which its processes are known
    process = subprocess.Popen([str(arg) for arg in args], env=clean_environment(TEST_JOB=mark, **(env or {})), cwd=cwd,
                               start_new_session=True, **popen)
    process.job = f"TEST_JOB={mark}".encode()
    return process


def run_process(args, env=None, cwd=None, timeout=PATIENCE, check=False, input=None, grace=10.0):
    """Runs to the end and returns a Result. Past `timeout` seconds everything is ended and the test fails. `grace`: for leftovers."""
    begin = time.monotonic()
    process = start_process(args, env, cwd, stdin=subprocess.PIPE if input is not None else subprocess.DEVNULL,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace")
    try:
        out, err = process.communicate(input, timeout=timeout)
    except subprocess.TimeoutExpired:
        end_session(process, min(grace, 5.0))
        out, err = process.communicate()
        pytest.fail(f"still running after {timeout} s: {' '.join(map(str, args))}\n{out[-4000:]}{err[-4000:]}")
    else:
        left = left_behind(process, grace)
    finally:
        end_session(process)
    result = Result(process.returncode, out, err, time.monotonic() - begin, left)
    if check and result.returncode != 0:
        pytest.fail(f"exit {result.returncode}: {' '.join(map(str, args))}\n{out[-4000:]}{err[-4000:]}")
    return result


def cache_value(build_dir, name):
    """A value of the build's CMakeCache.txt, or ''."""
    for line in (build_dir / "CMakeCache.txt").read_text().splitlines():
        key, _, value = line.partition("=")
        if key.partition(":")[0] == name:
            return value
    return ""


@pytest.fixture(scope="session")
def source_dir():
    return SOURCE


@pytest.fixture(scope="session")
def build_dir(request):
    folder = pathlib.Path(request.config.getoption("--build-dir")).resolve()
    if not (folder / "CMakeCache.txt").exists():
        pytest.fail(f"{folder} is no build folder: run scripts/test, or pass --build-dir")
    return folder


@pytest.fixture(scope="session")
def lockstep(build_dir):
    """The path of the program."""
    program = build_dir / "bin/lockstep"
    if not program.exists():
        pytest.fail(f"{program} is not built: run scripts/test, or cmake --build {build_dir}")
    return program


@pytest.fixture
def peer(build_dir):
    """tests/comm/peer/peer.cpp."""
    return build_dir / "bin/comm_peer"


@pytest.fixture(scope="session")
def once(tmp_path_factory, request):
    """once(name, make) -> a folder of that name, which make(folder) fills for all workers of this run; the others wait."""
    shared = tmp_path_factory.getbasetemp()
    if hasattr(request.config, "workerinput"):
        shared = shared.parent

    def get(name, make):
        with open(shared / f"{name}.lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not (shared / f"{name}.made").exists():
                shutil.rmtree(shared / name, ignore_errors=True)  # what another worker's failure has left
                (shared / name).mkdir()
                make(shared / name)
                (shared / f"{name}.made").touch()
        return shared / name
    return get


@pytest.fixture(scope="session")
def prepared(lockstep, once):
    """The program, with the header of the course's exercises precompiled."""
    once("prepared", lambda _: run_process([lockstep, "workshop", "prepare"], check=True, timeout=LONG_PATIENCE))
    return lockstep


@pytest.fixture(scope="session")
def installed(build_dir, lockstep, once):
    """The prefix of a fresh install, which no test changes."""
    return once("install", lambda folder: run_process(["cmake", "--install", build_dir, "--prefix", folder / "prefix"],
                                                      check=True)) / "prefix"


@pytest.fixture(scope="session")
def python(build_dir):
    """The Python that can import the torch that was linked, for peers; skips where there is none."""
    if "TEST_PYTHON" in os.environ:  # --full: another Python, which has torch alone
        return pathlib.Path(os.environ["TEST_PYTHON"])
    interpreter = SOURCE / ".deps/python/bin/python3"
    if not interpreter.exists():
        interpreter = pathlib.Path(sys.executable)
    probe = subprocess.run([interpreter, "-c", "import importlib.metadata as m; "
                            "[m.version(name) for name in ('torchvision', 'numpy')]; print(m.version('torch'))"],
                           capture_output=True, text=True)
    if probe.returncode != 0:
        pytest.skip(f"{interpreter} has no torch, torchvision or numpy to compare with (scripts/test installs them)")
    linked = cache_value(build_dir, "LOCKSTEP_LIBTORCH_VERSION")
    if linked != probe.stdout.strip().partition("+")[0]:
        pytest.skip(f"{interpreter} has torch {probe.stdout.strip()}, this build libtorch {linked}: their bits may differ")
    return interpreter


@pytest.fixture(scope="session")
def mpiexec(build_dir):
    """The mpirun under which the tests run: TEST_MPIEXEC, or the one that the build found."""
    return os.environ.get("TEST_MPIEXEC") or cache_value(build_dir, "MPIEXEC_EXECUTABLE") or "mpirun"


@dataclasses.dataclass(frozen=True)
class Mpi:
    """What differs between the MPIs that the tests run under."""
    launcher: str  # as whoami names it
    rank: str      # the variable that holds a rank's number
    quiet: tuple   # the flags that keep mpirun's own words away


# Open MPI kills the others 1.9 s after a rank has died, and with this after 7.6: on a busy machine they take longer to say which.
PATIENT = {"OMPI_MCA_odls_base_sigkill_timeout": "4"}

OPEN_MPI = Mpi("openmpi", "OMPI_COMM_WORLD_RANK", ("-q",))
MPICH = Mpi("pmi", "PMI_RANK", ())


@pytest.fixture(scope="session")
def mpi(mpiexec):
    """The MPI under which the tests run: OPEN_MPI or MPICH."""
    version = subprocess.run([mpiexec, "--version"], capture_output=True, text=True, env=clean_environment()).stdout
    return MPICH if "HYDRA" in version else OPEN_MPI


@pytest.fixture(scope="session")
def mpi_on_path(mpi, mpiexec, tmp_path_factory):
    """A PATH on which mpirun and mpiexec are those of that MPI, for job scripts."""
    if mpi is OPEN_MPI:
        return os.environ["PATH"]
    folder = tmp_path_factory.mktemp("mpi")
    for name in ("mpirun", "mpiexec"):
        # no link: hydra looks for its proxy beside itself
        executable(folder / name, f'#!/bin/sh\nexec {shutil.which(mpiexec)} "$@"\n')
    return f"{folder}:{os.environ['PATH']}"


@pytest.fixture
def run():
    """run(ARG..., env={}, cwd=None, check=False) of one process -> Result."""
    return lambda *args, **how: run_process(args, **how)


@pytest.fixture
def mpirun(mpiexec, mpi):
    """mpirun(n, ARG..., env={}, cwd=None, check=False, quiet=False) -> Result."""
    def start_ranks(n, *args, timeout=PATIENCE, quiet=False, **how):
        return run_process([mpiexec, *(mpi.quiet if quiet else ()), "-n", n, *args], timeout=timeout, **how)
    return start_ranks


@pytest.fixture
def start():
    """start(ARG..., env={}, cwd=None, **popen) -> Popen, ended with its whole session when the test is over."""
    started = []

    def begin(*args, **how):
        started.append(start_process(args, **how))
        return started[-1]
    yield begin
    for process in started:
        end_session(process)


@pytest.fixture(name="free_port")
def free_port_fixture():
    """free_port() -> a port that was free a moment ago."""
    return free_port
