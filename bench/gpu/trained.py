"""Trains a few steps with lockstep or with Python's DDP, and compares what they did."""

import dataclasses
import json
import os
import pathlib

import contestants
import launch
from running import Wrong

PEER = launch.ROOT / "bench/comparison/peers/mnist_gpu.py"
COMPARE = launch.ROOT / "bench/gpu/compare.py"
STEPS = 20
CLOSE = {"fp32": 1e-4, "bf16": 2e-2, "fp16": 2e-2}  # of a loss; cuDNN may choose other sums than Python's does


@dataclasses.dataclass
class Trained:
    losses: dict
    saved: pathlib.Path


def ranks(world, here):
    """On one GPU NCCL before 2.30 takes two ranks only from two nodes: it is told of so many, and talks over sockets."""
    if world == 1:
        return launch.rank_environments(1)
    environments = launch.rank_environments(world, LOCAL_WORLD_SIZE=str(world), NCCL_MULTI_RANK_GPU_ENABLE="1")
    if here.device != "cuda" or len(here.gpus) >= world:
        return environments
    apart = [{"NCCL_HOSTID": f"node{rank}", "NCCL_SOCKET_IFNAME": "lo"} if here.nccl < (2, 30) else {} for rank in range(world)]
    return [own | {"CUDA_VISIBLE_DEVICES": os.environ.get("CUDA_VISIBLE_DEVICES", "0").partition(",")[0]} | more
            for own, more in zip(environments, apart)]


def losses_of(files):
    """The mean over the ranks."""
    every = [contestants.lines(file) for file in sorted(files)]
    if not every or not all(every):
        raise Wrong("the training recorded no losses")
    return {same[0]["step"]: sum(line["loss"] for line in same) / len(same) for same in zip(*every)}


def ours(part, name, *sets, config="mnist", steps=STEPS, world=1, words=(), saves=True):
    steps = part.here.steps(steps)
    config = launch.ROOT / f"configs/{config}.yaml" if isinstance(config, str) else config
    told = [f"train.max_steps={steps}", "train.log_every=1", "train.eval_every=0", "run.name=run", f"launch.device={part.here.kind}",
            *sets]
    program = [part.here.program, "train", config, *words]
    part.run([*program, *(word for setting in told for word in ("--set", setting))], name, ranks(world, part.here))
    run = part.folder / name / "runs/run"
    saved = run / f"checkpoints/step-{steps:08}.pt"
    if saves and not saved.exists():
        raise Wrong(f"the training wrote no checkpoint of step {steps}")
    return Trained(losses_of([run / "metrics.jsonl"]), saved)


def theirs(part, name, precision="fp32", channels_last=False, batch=256, steps=STEPS, world=1, deterministic=False):
    more = ["--channels-last"] * channels_last + ["--deterministic"] * deterministic
    part.python(PEER, "--data", launch.ROOT / "data/mnist", "--out", part.folder / name, "--steps", part.here.steps(steps), "--every",
                1, "--batch", batch, "--device", part.here.kind, "--precision", precision, *more, name=name, ranks=ranks(world, part.here))
    return Trained(losses_of((part.folder / name).glob("steps.*.jsonl")), part.folder / name / "end.pt")


def asked(part, *files):
    said = part.python(COMPARE, *files)
    return json.loads(next(line for line in said.splitlines() if line.startswith("told:")).removeprefix("told:"))


def loss_words(one, other, close):
    """How the losses of two runs compare; Wrong where they are not close."""
    steps = sorted(one.keys() & other.keys())
    if not steps:
        raise Wrong("the runs have no step in common")
    differ = [step for step in steps if one[step] != other[step]]
    worst = max(abs(one[step] - other[step]) / max(abs(other[step]), 1e-3) for step in steps)
    if not worst <= close:  # NaN is not
        raise Wrong(f"losses differ by {worst:.2g} of their value, first at step {differ[0]}; at most {close:g} is allowed")
    return f"the same bits at {len(steps)} steps" if not differ else f"first differ at step {differ[0]}, by {worst:.2g} of their value at most"


def compared(part, one, other, close):
    found = asked(part, one.saved, other.saved)
    if found["apart"] is None:
        raise Wrong(f"the checkpoints have different parameters: {', '.join(found['names'])}")
    words = {"losses": loss_words(one.losses, other.losses, close),
             "parameters": "the same bits" if found["equal"] else f"{found['apart']:.2g} apart at most"}
    ours_scale, their_scale = found["scales"]
    if ours_scale is not None and their_scale is not None:
        if ours_scale != their_scale:
            raise Wrong(f"the loss scale is {ours_scale:g}, and Python's {their_scale:g}")
        words["loss scale"] = f"{ours_scale:g}, as Python's"
    return words
