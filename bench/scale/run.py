"""run.py [--worlds 2,8,32,64] [--rounds 3] [--only NAME] [--json FILE]: what starting up costs as the world grows.

Many ranks on one machine. Each job runs ROUNDS times for its times (medians are printed) and once more while its memory
is sampled and ranks 0 and 1 are under strace, where that is installed. Every run is checked.

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
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

import calls

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAM = pathlib.Path(os.environ.get("LOCKSTEP_BUILD", ROOT / "build/release")) / "bin/lockstep"
ENV = dict(os.environ, OMP_NUM_THREADS="1", OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1",
           OMPI_MCA_rmaps_base_oversubscribe="1", LOCKSTEP_HOME=str(ROOT))
LIMIT = 300
ONE_STEP = ["--set", "train.epochs=1", "--set", "train.max_steps=1", "--set", "train.eval_every=0",
            "--set", "data.workers=0", "--set", "data.batch_size=8"]
TRACER = ('case $OMPI_COMM_WORLD_RANK in 0|1) exec strace -D -f --seccomp-bpf -qq -e signal=none -e "$TRACED" '
          '-o "$TRACE_TO/$OMPI_COMM_WORLD_RANK" "$@";; *) exec "$@";; esac')


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


def check_whoami(out, world):
    report = json.loads(out)
    ranks = report["ranks"]
    assert report["complete"] and [rank["rank"] for rank in ranks] == list(range(world)), out
    assert all(rank["local_rank"] == rank["rank"] and rank["local_world"] == world for rank in ranks), out


def check_run(folder):
    runs = list((folder / "runs").iterdir())
    assert len(runs) == 1, runs
    status = json.loads((runs[0] / "status.json").read_text())
    assert status["state"] == "done" and len(list((runs[0] / "checkpoints").glob("step-*.pt"))) == 1, status


def check(kind, world, folder, out):
    if kind.name == "whoami":
        check_whoami(out, world)
    elif kind.leaves_run:
        check_run(folder)
    else:
        assert not (folder / "runs").exists()


def ranks_of(mpirun):
    """The pids of the ranks: mpirun's children on its own host. Beyond 32 of them its threads start them."""
    found = []
    for children in pathlib.Path(f"/proc/{mpirun}/task").glob("*/children"):
        try:
            found += map(int, children.read_text().split())
        except OSError:
            pass  # that thread, or all of it, has just left
    return found


def kilobytes(pid, file, field):
    try:
        for line in pathlib.Path(f"/proc/{pid}/{file}").read_text().splitlines():
            if line.startswith(field + ":"):
                return int(line.split()[1])
    except OSError:
        pass  # it has just left
    return 0


class Memory:
    """Peaks over the samples: of each rank's resident set, and of all ranks' proportional sets together."""

    def __init__(self):
        self.resident, self.shares = {}, 0

    def sample(self, mpirun):
        pids = ranks_of(mpirun)
        for pid in pids:
            self.resident[pid] = max(self.resident.get(pid, 0), kilobytes(pid, "status", "VmHWM"))
        self.shares = max(self.shares, sum(kilobytes(pid, "smaps_rollup", "Pss") for pid in pids))

    def figures(self):
        return {"rss_mb": max(self.resident.values(), default=0) / 1024, "pss_mb": self.shares / 1024}


def processor_seconds():
    """Of all children that have been waited for, and of theirs: mpirun waits for its ranks."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def run(kind, backend, world, wrap=(), env=ENV, memory=None):
    """One checked run -> (seconds on the clock, seconds of processor, lines printed)."""
    backend_words = [] if backend == "-" else ["--set", f"launch.backend={backend}"]
    with (tempfile.TemporaryDirectory() as folder, open(f"{folder}/out", "w+") as out,
          open(f"{folder}/err", "w+") as err):
        begin, used = time.monotonic(), processor_seconds()
        process = subprocess.Popen(["mpirun", "-n", str(world), *wrap, PROGRAM, *kind.arguments, *backend_words],
                                   env=env, cwd=folder, stdout=out, stderr=err, stdin=subprocess.DEVNULL)
        try:
            while memory and process.poll() is None and time.monotonic() < begin + LIMIT:
                memory.sample(process.pid)
                time.sleep(0.2)
            status = process.wait(LIMIT)
        finally:
            if process.poll() is None:
                process.terminate()
        seconds, used = time.monotonic() - begin, processor_seconds() - used
        out.seek(0), err.seek(0)
        printed, said = out.read(), err.read()
        if status:
            raise SystemExit(f"{kind.name} {backend} at {world}: exit {status}\n{printed}{said}")
        check(kind, world, pathlib.Path(folder), printed)
        return seconds, used, len((printed + said).splitlines())


def traced(kind, backend, world, memory):
    with tempfile.TemporaryDirectory() as folder:
        env = dict(ENV, TRACE_TO=folder, TRACED=calls.TRACED)
        run(kind, backend, world, ["sh", "-c", TRACER, "sh"], env, memory)
        return {rank: calls.count((pathlib.Path(folder) / str(rank)).read_text(errors="replace").splitlines())
                for rank in (0, 1)}


def measure(kind, backend, world, rounds):
    memory = Memory()
    times = [run(kind, backend, world) for _ in range(rounds)]
    seen = traced(kind, backend, world, memory) if shutil.which("strace") else run(kind, backend, world, memory=memory)
    row = {"job": kind.name, "backend": backend, "world": world,
           "seconds": statistics.median(seconds for seconds, _, _ in times),
           "cpu_seconds": statistics.median(used for _, used, _ in times),
           "lines": times[0][2], **memory.figures()}
    return row | ({"calls": seen} if shutil.which("strace") else {})


def show(row):
    ranks = row.get("calls")
    text = (f"{row['job']:<10}{row['backend']:<6}{row['world']:>5}{row['seconds']:>9.2f}"
            f"{row['cpu_seconds'] / row['world']:>11.3f}{row['rss_mb']:>9.0f}{row['pss_mb']:>9.0f}"
            f"{row['pss_mb'] / row['world']:>9.1f}{row['lines']:>7}")
    for column in calls.COLUMNS if ranks else ():
        text += f"{ranks[0][column]:>7}/{ranks[1][column]:<6}"
    print(text, flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--worlds", default="2,8,32,64")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", choices=[kind.name for kind in KINDS], action="append")
    parser.add_argument("--json", type=pathlib.Path, help="append one line a row to this file")
    options = parser.parse_args()
    head = (f"{'job':<10}{'':<6}{'world':>5}{'wall s':>9}{'cpu s/rank':>11}{'RSS MB':>9}{'sum PSS':>9}"
            f"{'PSS/rank':>9}{'lines':>7}")
    if shutil.which("strace"):
        head += "".join(f"{column:>14}" for column in calls.COLUMNS) + "   (rank 0/rank 1)"
    else:
        print("strace is not installed: no columns for files, connections and log bytes", file=sys.stderr)
    print(head)
    for kind in KINDS:
        for backend in kind.backends:
            for world in map(int, options.worlds.split(",")):
                if options.only and kind.name not in options.only:
                    continue
                row = measure(kind, backend, world, options.rounds)
                show(row)
                if options.json:
                    with options.json.open("a") as file:
                        file.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    main()
