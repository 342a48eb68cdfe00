"""run.py [ROUNDS]: what a step under DDP costs, alone and beside Python's, run in turn; ratios of medians."""

import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
CPP = pathlib.Path(os.environ.get("LOCKSTEP_BUILD", ROOT / "build/release")) / "bin/bench_step"
PYTHON = ROOT / ".deps/python/bin/python3"
ENV = dict(os.environ, OMP_NUM_THREADS="1", OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1",
           OMPI_MCA_rmaps_base_oversubscribe="1")


def cpp(model, steps, world):
    out = subprocess.run(["mpirun", "-n", str(world), CPP, model, str(steps)], env=ENV, check=True, timeout=300,
                         capture_output=True, text=True).stdout
    return json.loads(out)


def python(model, steps, world):
    with tempfile.TemporaryDirectory() as folder:
        ranks = [subprocess.Popen([PYTHON, ROOT / "bench/step/step.py", model, str(steps), f"{folder}/store"],
                                  env=dict(ENV, RANK=str(rank), WORLD_SIZE=str(world)), stdout=subprocess.PIPE,
                                  text=True) for rank in range(world)]
        outputs = [rank.communicate(timeout=300)[0] for rank in ranks]
    if any(rank.returncode for rank in ranks):
        raise SystemExit("Python's run failed")
    return json.loads(outputs[0])


def main():
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 3
    print(f"{'model':6}{'world':>6}{'plain ms':>10}{'ddp ms':>10}{'ddp/plain':>11}{'python ms':>11}{'python/ddp':>12}")
    for model, steps in (("cnn", 40), ("mlp", 400)):
        for world in (1, 2):
            ours, theirs = [], []
            for _ in range(rounds):
                ours.append(cpp(model, steps, world))
                theirs.append(python(model, steps, world))
            plain, ddp = (statistics.median(run[key] for run in ours) for key in ("plain_ms", "ddp_ms"))
            # in each run the two are timed in turn, so their ratio is taken there
            over = statistics.median(run["ddp_ms"] / run["plain_ms"] for run in ours)
            other = statistics.median(run["ddp_ms"] for run in theirs)
            print(f"{model:6}{world:6}{plain:10.3f}{ddp:10.3f}{over:11.4f}{other:11.3f}{other / ddp:12.2f}", flush=True)


if __name__ == "__main__":
    main()
