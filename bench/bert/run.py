"""run.py [--steps N] [--batch N] [--tokens N] [--layers N] [--threads N]: a training step of BERT-base beside
transformers', a step of each in turn on the same libtorch; the losses must be equal. The ratio of the medians."""

import argparse
import os
import pathlib
import statistics
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
CPP = pathlib.Path(os.environ.get("LOCKSTEP_BUILD", ROOT / "build/release")) / "bin/bench_bert"
PYTHON = ROOT / ".deps/python/bin/python3"
WARM = 2  # steps that are not counted: memory is asked for


class Side:
    def __init__(self, words, threads):
        # a thread that waits leaves its core to the other side
        env = dict(os.environ, OMP_NUM_THREADS=str(threads), OMP_WAIT_POLICY="passive")
        self.process = subprocess.Popen(words, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.times = []

    def answer(self):
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit(f"{self.process.args[0]} ended")
        return line

    def step(self):
        self.process.stdin.write("step\n")
        self.process.stdin.flush()
        loss, took = self.answer().split()
        self.times.append(float(took))
        return loss


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    for name, value in (("steps", 20), ("batch", 8), ("tokens", 128), ("layers", 12), ("threads", 1)):
        parser.add_argument(f"--{name}", type=int, default=value)
    args = parser.parse_args()
    sizes = [str(size) for size in (args.batch, args.tokens, args.layers)]
    sides = [Side([CPP, *sizes], args.threads), Side([PYTHON, ROOT / "bench/bert/bert.py", *sizes], args.threads)]
    for side in sides:
        side.answer()
    for step in range(WARM + args.steps):
        ours, theirs = (side.step() for side in sides)
        if ours != theirs:
            raise SystemExit(f"step {step}: the loss is {ours}, and transformers' is {theirs}")
        print(f"step {step}: loss {ours}, {sides[0].times[-1]:.1f} and {sides[1].times[-1]:.1f} ms",
              file=sys.stderr, flush=True)
    ours, theirs = (statistics.median(side.times[WARM:]) for side in sides)
    paired = statistics.median(a / b for a, b in zip(sides[0].times[WARM:], sides[1].times[WARM:]))
    print(f"{args.layers} layers, batch {args.batch} of {args.tokens} tokens, {args.threads} threads, {args.steps} steps: "
          f"lockstep {ours:.1f} ms, transformers {theirs:.1f} ms; ratio of medians {ours / theirs:.4f}, "
          f"median of ratios {paired:.4f}; losses equal")
    for side in sides:
        side.process.stdin.close()
        side.process.wait(timeout=60)


if __name__ == "__main__":
    main()
