"""run.py [ROUNDS]: what DDP costs a lone process, and what checkpoints cost a run; pairs run in turn, ratios of medians.

Both runs of a pair must end with the same parameters, or nothing is reported.
"""

import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAM = pathlib.Path(os.environ.get("LOCKSTEP_BUILD", ROOT / "build/release")) / "bin/lockstep"
ENV = dict(os.environ, OMP_NUM_THREADS="1", OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1",
           OMPI_MCA_rmaps_base_oversubscribe="1")
MNIST = dict(steps=120, sets=["data.batch_size=128", "data.workers=1"])
PIMA = dict(steps=6000, sets=["train.epochs=400"])

PAIRS = [  # what, config, world, A's settings, B's
    ("ddp / single, cnn", "mnist", 1, ["train.mode=ddp"], ["train.mode=single"]),
    ("ddp / single, mlp", "pima", 1, ["train.mode=ddp"], ["train.mode=single"]),
    ("checkpoint every 10 steps / none, cnn", "mnist", 1, ["checkpoint.every_steps=10"], []),
    ("checkpoint every 10 steps / none, cnn", "mnist", 2, ["checkpoint.every_steps=10"], []),
]


def train(config, world, steps, sets):
    """(seconds of training, digests of the parameters)"""
    with tempfile.TemporaryDirectory() as folder:
        settings = [f"train.max_steps={steps}", "train.log_every=0", "train.eval_every=0", *sets]
        subprocess.run(["mpirun", "--bind-to", "none", "-n", str(world), PROGRAM, "train", ROOT / f"configs/{config}.yaml",
                        *(word for setting in settings for word in ("--set", setting))],
                       cwd=folder, env=ENV, check=True, timeout=600, capture_output=True)
        run, = pathlib.Path(folder, "runs").iterdir()
        newest = max((run / "checkpoints").glob("step-*.pt"))
        listed = subprocess.run([PROGRAM, "inspect", newest, "--json"], env=ENV, check=True, capture_output=True).stdout
        digests = {e["name"]: e["digest"] for e in json.loads(listed)["entries"] if e["name"].startswith("model.")}
        return json.loads((run / "status.json").read_text())["seconds"], digests


def main():
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    print(f"{'A against B':40}{'world':>6}{'A s':>9}{'B s':>9}{'A / B':>9}")
    for what, config, world, a, b in PAIRS:
        case = MNIST if config == "mnist" else PIMA
        times = []
        for number in range(rounds):
            runs = {}
            for name, more in (("a", a), ("b", b))[:: 1 if number % 2 else -1]:  # neither is always the first
                runs[name] = train(config, world, case["steps"], case["sets"] + more)
            one, other = runs["a"], runs["b"]
            if not one[1] or one[1] != other[1]:
                raise SystemExit(f"{what}: the two runs ended with other parameters")
            times.append((one[0], other[0]))
        first, second = (statistics.median(column) for column in zip(*times))
        ratio = statistics.median(x / y for x, y in times)
        print(f"{what:40}{world:6}{first:9.3f}{second:9.3f}{ratio:9.4f}", flush=True)


if __name__ == "__main__":
    main()
