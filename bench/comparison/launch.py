"""Starts programs, waits for them within a limit, and says what they took and what else the machine did meanwhile."""

import dataclasses
import os
import pathlib
import resource
import signal
import socket
import subprocess
import tempfile
import time

import machine

ROOT = pathlib.Path(__file__).resolve().parents[2]
# What a surrounding job, or a user's tuning, would change under a contestant; each brings its own.
FOREIGN = (
    "SLURM_", "SBATCH_", "PBS_", "LSB_", "FLUX_", "JSM_", "PALS_", "PMI_", "PMIX_", "PRTE_", "OMPI_", "HYDRA_", "HYDI_", "MPI_",
    "MPIR_", "I_MPI_", "TORCHELASTIC_", "GLOO_", "NCCL_", "LOCKSTEP_", "OMP_", "KMP_", "MKL_", "MALLOC_", "GLIBC_TUNABLES",
    "LD_PRELOAD", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "ROLE_RANK", "MASTER_", "NCPUS")


class Failed(Exception):
    """A contestant ended with an error: there is nothing to compare."""


class PortTaken(Failed):
    """Another program took a port that had been free."""


class TooSlow(Exception):
    """A contestant had not ended when the time was up."""


@dataclasses.dataclass
class Ran:
    seconds: float
    out: str
    err: str
    others: float  # of all cores' time, what went to processes that are not ours
    steal: float   # of all cores' time, what the hypervisor gave to other machines


def environment(**more):
    kept = {name: value for name, value in os.environ.items() if not name.startswith(FOREIGN)}
    return kept | {"OMP_NUM_THREADS": "1", "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
                   "OMPI_MCA_rmaps_base_oversubscribe": "1", "PYTHONDONTWRITEBYTECODE": "1"} | more


def python_environment(**more):
    """For a peer, which may lie elsewhere and use ours' modules."""
    own = [str(ROOT / folder) for folder in ("bench/comparison/peers", "tests/e2e/peers")]
    return environment(PYTHONPATH=":".join([*own, *filter(None, [os.environ.get("PYTHONPATH")])]), **more)


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def rank_environments(world, **more):
    """What torchrun would tell each rank."""
    port = str(free_port())
    return [python_environment(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(world), MASTER_ADDR="127.0.0.1",
                               MASTER_PORT=port, **more) for rank in range(world)]


def descendants(pid):
    found = []
    for children in pathlib.Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            for child in map(int, children.read_text().split()):
                found += [child, *descendants(child)]
        except OSError:
            pass  # it has just left
    return found


def kilobytes(pid, file, field):
    """A number of /proc/PID/FILE, or 0."""
    try:
        text = pathlib.Path(f"/proc/{pid}/{file}").read_text()
    except OSError:
        return 0  # it has just left
    return next((int(line.split()[1]) for line in text.splitlines() if line.startswith(f"{field}:")), 0)


def proportional_mb(pids):
    return sum(kilobytes(pid, "smaps_rollup", "Pss") for pid in pids) / 1024


def used_by_children():
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def end(processes):
    """Those that still run, and what they started: mpirun's ranks have process groups of their own."""
    left = [process for process in processes if process.poll() is None]
    pids = [pid for process in left for pid in (process.pid, *descendants(process.pid))]
    for process in left:
        process.terminate()
    until = time.monotonic() + 3
    while any([process.poll() is None for process in left]) and time.monotonic() < until:
        time.sleep(0.02)
    for pid in pids:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
    for process in left:
        process.wait()


def wait(processes, limit, watch):
    until = time.monotonic() + limit
    while None in [process.poll() for process in processes]:
        if any(process.returncode for process in processes):
            return  # a rank without its peer would wait for ever
        if time.monotonic() > until:
            raise TooSlow(f"still running after {limit:.0f} s")
        watch(processes)
        time.sleep(0.02)


def run(commands, folder, limit, watch=lambda processes: None):
    """Runs (arguments, environment) side by side in `folder`; `watch` is called again and again meanwhile."""
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        before, used, begin = machine.ticks(), used_by_children(), time.monotonic()
        processes = []
        try:
            for arguments, env in commands:
                processes.append(subprocess.Popen([str(word) for word in arguments], env=env, cwd=folder, stdin=subprocess.DEVNULL,
                                                  stdout=out, stderr=err, start_new_session=True))
            wait(processes, limit, watch)
        finally:
            end(processes)
        seconds = time.monotonic() - begin
        others, steal = machine.shares(before, machine.ticks(), used_by_children() - used)
        out.seek(0), err.seek(0)
        ran = Ran(seconds, out.read(), err.read(), others, steal)
    wrong = [process.returncode for process in processes if process.returncode]
    if wrong:
        kind = PortTaken if "EADDRINUSE" in ran.err else Failed
        raise kind(f"{' '.join(map(str, commands[0][0]))}\n  exit {wrong[0]}: {(ran.err or ran.out).strip()[-1500:]}")
    return ran
