"""What is not a training's speed: an all-reduce's time, a whole one-step job, the files that a rank asks for."""

import re
import sys

import calls
import launch

sys.path.append(str(launch.ROOT / "bench/gpu"))
import step_time  # noqa: E402

GRADIENTS = 421_642 * 4  # bytes: SimpleCNN's, 1.61 MiB
SUMS = (4096, GRADIENTS, 64 << 20)
ONE_STEP = ("--set", "train.max_steps=1", "--set", "train.log_every=1", "--set", "train.eval_every=0")
TRACED = ('if [ "${OMPI_COMM_WORLD_RANK:-$PMI_RANK}" = 0 ]; then exec strace -D -f --seccomp-bpf -qq -e signal=none '
          '-e trace=%file,write -o trace "$@"; else exec "$@"; fi')


SUMMED_WRONGLY = r"\bcomputed a wrong sum of \d+ floats\b"  # src/tools/bench/all_reduce.cpp


class WrongSum(Exception):
    """An all-reduce's result is not the sum."""


def mpi(place, *words):
    return [([place.mpirun, "--bind-to", "none", "-n", 2, *words], launch.environment())]


def one_step(place):
    return [place.program, "train", launch.ROOT / "configs/mnist.yaml", *ONE_STEP]


def allreduce(place, pace, folder, limit):
    try:
        ran = launch.run(mpi(place, place.program, "bench", "allreduce", "--algorithm", "ring", "--sizes", GRADIENTS,
                             "--rounds", pace.sums), folder, limit)
    except launch.Failed as failed:
        if re.search(SUMMED_WRONGLY, str(failed)):
            raise WrongSum(str(failed)) from failed
        raise
    if "all sums were correct" not in ran.out:
        raise WrongSum(f"lockstep bench allreduce did not report that its sums are correct:\n{ran.out}")
    times = {}
    for way, microseconds in re.findall(r"^(gloo|shared|shared_in_place|MPI_Allreduce|mpi|mpi_shared) +([\d.]+)$", ran.out, re.MULTILINE):
        times.setdefault(way, microseconds)  # a table of what each is of the quickest follows
    return {way: [float(microseconds) / 1e6] for way, microseconds in times.items()}, ran


def sums(place, pace, folder, limit):
    """Python's all-reduces, over gloo and over lockstep in one program."""
    ran = launch.run([([place.python, place.peers / "sums.py", *SUMS, max(3, pace.sums // 3)], env | place.of_peer("sums", "lockstep"))
                      for env in launch.rank_environments(2)], folder, limit)
    return {name: [float(microseconds) / 1e6] for name, microseconds in map(str.split, ran.out.splitlines())}, ran


def start(place, pace, folder, limit):
    ran = launch.run(mpi(place, *one_step(place)), folder, limit)
    return {"seconds": [ran.seconds]}, ran


def start_torchrun(place, pace, folder, limit):
    program = [place.peers / "mnist_stock.py", "--data", place.data("digits"), "--out", folder, "--steps", 1, "--every", 1]
    ran = launch.run([([place.python, "-m", "torch.distributed.run", "--nproc-per-node", 2, "--master-addr", "127.0.0.1",
                        "--master-port", launch.free_port(), *program], launch.python_environment())], folder, limit)
    return {"seconds": [ran.seconds]}, ran


def files_to_first_step(trace):
    """Of the calls that a rank made until it told of its first step, those that name a file of a file system."""
    before = []
    for line in trace:
        if "write(1," in line and "Step [1/" in line:
            return sum(1 for name, arguments, *_ in calls.completed(before)
                       if (path := calls.named_file(arguments)) and not path.startswith(calls.SYSTEM))
        before.append(line)
    raise launch.Failed("the trace of rank 0 has no first step")


def files(place, pace, folder, limit):
    ran = launch.run(mpi(place, "sh", "-c", TRACED, "sh", *one_step(place)), folder, limit)
    return {"files": [files_to_first_step((folder / "trace").read_text(errors="replace").splitlines())]}, ran


JOBS = {"allreduce": allreduce, "sums": sums, "start": start, "start_torchrun": start_torchrun, "calls": files} | step_time.jobs()
