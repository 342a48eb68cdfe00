"""run.py [--worlds 2,8,32,64] [--rounds 3] [--only NAME]: what start-up costs as the world grows.

Many ranks on one machine. Each job runs ROUNDS times for its times (medians are printed) and once more while its memory
is sampled and ranks 0 and 1 are under strace, if that is installed. Every run is checked.

whoami     MPI, the facts of the job, one table
bootstrap  train --dry-run: MPI, config, group, data, model, DDP and three steps that leave no trace
pima       one step of configs/pima.yaml, with a run folder and a checkpoint
mlp, cnn   one step of MNIST
"""

import argparse
import dataclasses
import json
import os
import pathlib
import shutil
import statistics
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bench/comparison"))
import calls  # noqa: E402
import launch  # noqa: E402

PROGRAM = pathlib.Path(os.environ.get("LOCKSTEP_BUILD", ROOT / "build/release")).resolve() / "bin/lockstep"
LIMIT = 300
ONE_STEP = ["--set", "train.epochs=1", "--set", "train.max_steps=1", "--set", "train.eval_every=0",
            "--set", "data.workers=0", "--set", "data.batch_size=8"]
TRACER = ('case $OMPI_COMM_WORLD_RANK in 0|1) exec strace -D -f --seccomp-bpf -qq -e signal=none -e "$TRACED" '
          '-o "trace.$OMPI_COMM_WORLD_RANK" "$@";; *) exec "$@";; esac')
STRACE = bool(shutil.which("strace"))


@dataclasses.dataclass
class Kind:
    """A job: its arguments, and whether it leaves a run folder."""
    name: str
    arguments: list
    backends: tuple = ("gloo", "mpi")
    leaves_run: bool = True


def train(config, *more):
    return ["train", ROOT / f"configs/{config}.yaml", *ONE_STEP, *more]


KINDS = [Kind("whoami", ["whoami", "--json"], ("-",), False),
         Kind("bootstrap", train("pima", "--dry-run"), leaves_run=False),
         Kind("pima", train("pima")),
         Kind("mlp", train("mnist", "--set", "model.name=mlp")),
         Kind("cnn", train("mnist"))]


def check(kind, world, folder, out):
    runs = list(folder.glob("runs/*"))
    assert len(runs) == kind.leaves_run, runs
    if kind.name == "whoami":
        report = json.loads(out)
        places = [(rank["rank"], rank["local_rank"], rank["local_world"]) for rank in report["ranks"]]
        assert report["complete"] and places == [(rank, rank, world) for rank in range(world)], out
    for run in runs:
        status = json.loads((run / "status.json").read_text())
        assert status["state"] == "done" and len(list((run / "checkpoints").glob("step-*.pt"))) == 1, status


def name_of(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""  # it has just left


class Memory:
    """Peaks over the samples, in MB: of each rank's resident set, and of all ranks' proportional sets together."""

    def __init__(self):
        self.resident, self.shares = 0, 0

    def sample(self, processes):
        started = [pid for process in processes for pid in launch.descendants(process.pid)]
        ranks = [pid for pid in started if name_of(pid) == "lockstep"]
        self.resident = max([self.resident, *(launch.kilobytes(pid, "status", "VmHWM") for pid in ranks)])
        self.shares = max(self.shares, launch.proportional_mb(ranks))


def run(kind, backend, world, folder, wrap=(), watch=lambda processes: None):
    """One checked run -> (seconds on the clock, seconds of processor, lines printed)."""
    backend_words = [] if backend == "-" else ["--set", f"launch.backend={backend}"]
    used = launch.used_by_children()
    ran = launch.run([(["mpirun", "-n", world, *wrap, PROGRAM, *kind.arguments, *backend_words],
                       launch.environment(LOCKSTEP_HOME=str(ROOT), TRACED=calls.TRACED))], folder, LIMIT, watch)
    check(kind, world, folder, ran.out)
    return ran.seconds, launch.used_by_children() - used, len((ran.out + ran.err).splitlines())


def measure(kind, backend, world, rounds):
    """A row of the table."""
    memory, times = Memory(), []
    for _ in range(rounds):
        with tempfile.TemporaryDirectory() as folder:
            times.append(run(kind, backend, world, pathlib.Path(folder)))
    with tempfile.TemporaryDirectory() as folder:
        run(kind, backend, world, pathlib.Path(folder), ["sh", "-c", TRACER, "sh"] if STRACE else [], memory.sample)
        traces = sorted(pathlib.Path(folder).glob("trace.*"))
        first, second = (calls.count(trace.read_text(errors="replace").splitlines()) for trace in traces) if traces else ({}, {})
    seconds, used = (statistics.median(column) for column in list(zip(*times))[:2])
    return (f"{kind.name:<10}{backend:<6}{world:>5}{seconds:>9.2f}{used / world:>11.3f}{memory.resident / 1024:>9.0f}{memory.shares:>9.0f}"
            f"{memory.shares / world:>9.1f}{times[0][2]:>7}" + "".join(f"{first[column]:>7}/{second[column]:<6}" for column in first))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--worlds", default="2,8,32,64")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", choices=[kind.name for kind in KINDS], action="append")
    options = parser.parse_args()
    head = (f"{'job':<10}{'':<6}{'world':>5}{'wall s':>9}{'cpu s/rank':>11}{'RSS MB':>9}{'sum PSS':>9}"
            f"{'PSS/rank':>9}{'lines':>7}")
    if STRACE:
        head += "".join(f"{column:>14}" for column in calls.COLUMNS) + "   (rank 0/rank 1)"
    else:
        print("strace is not installed: no columns for files, connections and log bytes", file=sys.stderr)
    print(head)
    for kind in KINDS:
        for backend in kind.backends:
            for world in map(int, options.worlds.split(",")):
                if not options.only or kind.name in options.only:
                    print(measure(kind, backend, world, options.rounds), flush=True)


if __name__ == "__main__":
    main()
