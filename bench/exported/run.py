"""run.py [ROUNDS]: a step of a model that Python exported beside the same by hand and as TorchScript; ratios of medians."""

import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("LOCKSTEP_BUILD", ROOT / "build/release"))
PYTHON = ROOT / ".deps/python/bin/python3"
ENV = dict(os.environ, OMP_NUM_THREADS="1")


def main():
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([PYTHON, ROOT / "bench/exported/models.py", folder], env=ENV, check=True)
        print(f"{'model':6}{'by hand us':>12}{'exported us':>13}{'torchscript us':>16}{'exported/hand':>15}{'exported/script':>17}")
        for model, steps in (("mlp", 3000), ("cnn", 100), ("bert", 60)):
            runs = [json.loads(subprocess.run([BUILD / "bin/bench_exported", folder, model, str(steps)], env=ENV, check=True,
                                              stdout=subprocess.PIPE, text=True).stdout) for _ in range(rounds)]
            hand, exported, script = (statistics.median(run[who] for run in runs)
                                      for who in ("by_hand", "exported", "torchscript"))
            # in each run they take turns, so their ratios are taken there
            over_hand, over_script = (statistics.median(run["exported"] / run[who] for run in runs)
                                      for who in ("by_hand", "torchscript"))
            print(f"{model:6}{hand:12.1f}{exported:13.1f}{script:16.1f}{over_hand:15.3f}{over_script:17.3f}", flush=True)


if __name__ == "__main__":
    main()
