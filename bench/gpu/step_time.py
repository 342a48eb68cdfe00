"""Microseconds of a step of SimpleCNN on one GPU, 256 images, one rank: ours, and Python's DDP eager and compiled."""

import re
import subprocess

import contestants
import launch

BATCH = 256
STEPS, EVERY = 2000, 200
CONFIG = launch.ROOT / "configs/mnist_gpu.yaml"


def choices(program):
    """The precision and layout that our config has: the peers take them too."""
    told = subprocess.run([program, "config", CONFIG], env=launch.environment(), capture_output=True, text=True)
    if told.returncode != 0:
        raise launch.Failed(f"lockstep config {CONFIG.name}\n  exit {told.returncode}: {told.stderr.strip()[-1500:]}")
    return {key: re.search(rf"^  {key}: (\w+)", told.stdout, re.M)[1] for key in ("precision", "layout")}


def our_words(program, steps, every, device):
    more = [f"data.batch_size={BATCH}", f"train.max_steps={steps}", f"train.log_every={every}", "train.eval_every=0",
            f"train.epochs={steps}", "checkpoint.every_epochs=0", "run.name=run", f"launch.device={device}"]
    more += [] if device == "cuda" else ["train.graph=false"]  # a rehearsal captures nothing
    return [program, "train", CONFIG, *(word for setting in more for word in ("--set", setting))]


def peer_words(place, folder, steps, every, device, more=()):
    taken = choices(place.program)
    layout = ("--channels-last",) if taken["layout"] == "channels_last" else ()
    return [place.python, place.peers / "mnist_gpu.py", "--data", launch.ROOT / "data/mnist", "--out", folder, "--steps", steps,
            "--every", every, "--batch", BATCH, "--device", device, "--precision", taken["precision"], *layout, *more]


def microseconds(folder, pattern):
    file = next(iter(folder.glob(pattern)), None)
    speeds = [line["samples_per_second"] for line in contestants.lines(file)] if file else []
    if not speeds:
        raise launch.Failed("the training recorded no steps")
    return {"microseconds": [1e6 * BATCH / speed for speed in contestants.windows(speeds)]}


def ours(place, folder, limit, **how):
    ran = launch.run([(our_words(place.program, **how), launch.environment())], folder, limit)
    return microseconds(folder, "runs/run/metrics.jsonl"), ran


def peer(place, folder, limit, **how):
    ran = launch.run([(peer_words(place, folder, **how), env) for env in launch.rank_environments(1)], folder, limit)
    return microseconds(folder, "steps.0.jsonl"), ran


def jobs(device="cuda", steps=STEPS, every=EVERY):
    """As bench/compare knows them: NAME: (place, pace, folder, limit) -> (figures, how it ran)."""
    how = dict(device=device, steps=steps, every=every)
    return {"gpu": lambda place, pace, folder, limit: ours(place, folder, limit, **how),
            "gpu_eager": lambda place, pace, folder, limit: peer(place, folder, limit, **how),
            "gpu_compiled": lambda place, pace, folder, limit: peer(place, folder, limit, more=("--compile",), **how)}
