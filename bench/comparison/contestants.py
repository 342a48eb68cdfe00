"""Who trains: lockstep with a config and settings, or a Python program. Each gives samples/s, losses and memory."""

import dataclasses
import json
import os
import statistics
import subprocess
import sys

import launch

# Computes for as long as the one that started it is there, also where that was killed.
SPINNING = "import os, sys\nwhile os.getppid() == int(sys.argv[1]):\n  for _ in range(100_000): pass"
TUNED_MALLOC = {"MALLOC_MMAP_THRESHOLD_": str(1 << 30), "MALLOC_TRIM_THRESHOLD_": str((1 << 31) - 1),
                "MALLOC_TOP_PAD_": str(64 << 20)}


@dataclasses.dataclass
class Contestant:
    title: str
    task: str                  # of TASKS
    config: str = ""           # of lockstep; or
    peer: str = ""             # the name of a Python program
    words: tuple = ()          # the peer's own switches
    sets: tuple = ()           # lockstep's settings
    env: dict = dataclasses.field(default_factory=dict)
    world: int = 2
    in_one: bool = False       # a Python program that is one process, whatever the world
    exact: bool = False        # without kernels of our own, whatever the config says
    load: bool = False         # a process on each core that only computes, beside it
    copies: int = 1            # jobs of it side by side, which know nothing of each other
    faster: int = 1            # that many times the steps: a window must not be shorter than what disturbs it


def ours(title, task, config, *sets, **more):
    return Contestant(title, task, config=config, sets=sets, **more)


def python(title, task, peer, *words, **more):
    return Contestant(title, task, peer=peer, words=words, **more)


@dataclasses.dataclass
class Task:
    """What is trained on what."""
    made: str = ""   # of data_sets.py
    file: str = ""   # that ships
    sets: tuple = ()               # how lockstep is told of its data, which is {data}
    epochs_of_one: bool = False    # a line of losses and speed is an epoch's


TASKS = {
    "cnn": Task("digits"),
    "mlp": Task(file="data/pima/pima-indians-diabetes.csv", epochs_of_one=True),
    "images": Task("images", sets=("data.root={data}", "task.size=[64,64]", "task.augment=[]")),
    "texts": Task("texts", sets=("task.file={data}/train.csv", "task.eval_file={data}/eval.csv", "task.eval_fraction=0",
                                 "task.max_length=64", "model.path={data}/model")),
}

FAST = "mnist_fast"
EXACT = ("train.layout=channels_last", "train.precision=fp32")
MPI = "launch.backend=mpi"
ALONE = dict(world=1)
CONTESTANTS = {
    "stock": python("the workshop's Python program", "cnn", "mnist_stock"),
    "memory": python("Python, data in memory", "cnn", "mnist_memory"),
    "memory_lockstep": python("Python, data in memory, over lockstep", "cnn", "mnist_memory", "--backend", "lockstep"),
    "tuned": python("Python tuned: memory, channels_last, malloc", "cnn", "mnist_memory", "--channels-last", env=TUNED_MALLOC),
    "tuned_bf16": python("Python tuned, bf16 autocast", "cnn", "mnist_memory", "--channels-last", "--bf16", env=TUNED_MALLOC),
    "tuned_compiled": python("Python tuned, torch.compile over DDP", "cnn", "mnist_memory", "--channels-last", "--compile", env=TUNED_MALLOC),
    "jax": python("JAX, jit and shard_map, two CPU devices", "cnn", "mnist_jax", in_one=True),
    "mnist": ours("mnist.yaml as it ships", "cnn", "mnist"),
    "exact": ours("mnist_fast.yaml, exact kernels", "cnn", FAST, *EXACT, exact=True),
    "fast": ours("mnist_fast.yaml, own kernels", "cnn", FAST, *EXACT, "train.kernels=fast"),
    "bf16": ours("mnist_fast.yaml, bf16", "cnn", FAST, "train.layout=channels_last", "train.precision=bf16", exact=True),
    "bf16_fast": ours("mnist_fast.yaml, bf16, own kernels", "cnn", FAST, "train.precision=bf16", "train.kernels=fast"),
    "shipped_fast": ours("mnist_fast.yaml as it ships", "cnn", FAST),
    "pima_stock": python("Python, DataLoader", "mlp", "pima"),
    "pima_lockstep": python("Python, DataLoader, over lockstep", "mlp", "pima", "--backend", "lockstep", faster=2),
    "pima_compiled": python("Python, torch.compile over DDP", "mlp", "pima", "--compile"),
    "pima_jax": python("JAX, jit and shard_map, two CPU devices", "mlp", "pima_jax", in_one=True, faster=4),
    "pima": ours("pima.yaml as it ships", "mlp", "pima", faster=8),
    "pima_gloo": ours("pima.yaml, gloo", "mlp", "pima", "launch.backend=gloo"),
    "pima_mpi": ours("pima.yaml, mpi backend", "mlp", "pima", MPI, faster=8),
    "pima_fast": ours("pima.yaml, own kernels", "mlp", "pima", "train.kernels=fast", faster=16),
    "resnet_stock": python("Python, ImageFolder, DataLoader with 4 workers", "images", "images"),
    "resnet_tuned": python("Python tuned: memory, channels_last, malloc", "images", "images", "--memory", "--channels-last", env=TUNED_MALLOC),
    "resnet": ours("folder.yaml, resnet18 on 64x64 pixels, not augmented", "images", "folder"),
    "resnet_fast": ours("the same, channels_last", "images", "folder", "train.layout=channels_last"),
    "text_stock": python("Python, transformers", "texts", "texts"),
    "text_tuned": python("Python tuned: malloc", "texts", "texts", env=TUNED_MALLOC),
    "text": ours("text.yaml, BERT-small, up to 64 tokens, batches as Python's", "texts", "text", "data.bucket=0"),
    "text_bucket": ours("text.yaml, BERT-small, up to 64 tokens, bucketed", "texts", "text"),
    "cnn_ddp": ours("mnist.yaml, one rank, DDP", "cnn", "mnist", **ALONE),
    "cnn_single": ours("mnist.yaml, one rank, no DDP", "cnn", "mnist", "train.mode=single", **ALONE),
    "cnn_beside": ours("two jobs of mnist.yaml side by side, one rank each", "cnn", "mnist", copies=2, **ALONE),
    "mnist_mpi": ours("mnist.yaml, mpi backend", "cnn", "mnist", MPI),
    "mlp_ddp": ours("pima.yaml, one rank, DDP", "mlp", "pima", faster=4, **ALONE),
    "mlp_single": ours("pima.yaml, one rank, no DDP", "mlp", "pima", "train.mode=single", faster=4, **ALONE),
    "mnist_load": ours("mnist.yaml, other work on each core", "cnn", "mnist", load=True),
    "fast_load": ours("mnist_fast.yaml, other work on each core", "cnn", FAST, load=True),
    "mnist_crowd": ours("mnist.yaml, 4 ranks", "cnn", "mnist", world=4),
    "fast_crowd": ours("mnist_fast.yaml, 4 ranks", "cnn", FAST, world=4),
}

SAME_BITS = """mnist=memory mnist=stock memory_lockstep=memory pima_lockstep=pima_stock exact=tuned bf16=tuned_bf16 mnist_mpi=mnist
    cnn_beside=cnn_ddp pima=pima_stock pima_gloo=pima_stock pima_mpi=pima_stock resnet=resnet_stock resnet_fast=resnet_tuned
    text=text_stock text_tuned=text_stock cnn_ddp=cnn_single mlp_ddp=mlp_single"""
# (one, other, how far apart their losses may be, up to which step): 0 = the same bits at every step that both logged
PROMISES = [
    *((*pair.split("="), 0, None) for pair in SAME_BITS.split()),
    ("fast", "exact", 1e-6, 40), ("tuned_compiled", "tuned", 1e-4, 40),
    ("jax", "memory", 2e-3, 40),  # it adds in another order: 1e-5 apart, and 7e-4 in a steep step
    ("pima_compiled", "pima_stock", 1e-5, 40), ("pima_jax", "pima_stock", 1e-5, 40), ("pima_fast", "pima_stock", 1e-6, 40)]


def data_of(who, place):
    task = TASKS[who.task]
    return place.data(task.made) if task.made else launch.ROOT / task.file


def settings_of(who, place, pace):
    steps, task = pace.steps[who.task] * who.faster, TASKS[who.task]
    kernels = ["train.kernels=exact"] if who.exact else []
    told = [setting.format(data=data_of(who, place)) for setting in task.sets]
    more = [f"train.max_steps={steps}", "train.eval_every=0", *told, *who.sets, *kernels]
    if task.epochs_of_one:
        return [*more, f"train.epochs={steps}", "checkpoint.every_epochs=0"]
    return [*more, f"train.log_every={pace.every[who.task]}"]


def command(who, place, pace, folder):
    """[(arguments, environment)] that train `who`, with what they write in `folder`."""
    if who.config:
        words = [word for setting in settings_of(who, place, pace) for word in ("--set", setting)]
        return [([place.mpirun, "--bind-to", "none", "-n", who.world, place.program, "train",
                  launch.ROOT / f"configs/{who.config}.yaml", *words, "--set", f"run.name=run{number}"],
                 launch.environment(**who.env)) for number in range(who.copies)]
    arguments = [place.python, place.peers / f"{who.peer}.py", "--data", data_of(who, place), "--out", folder, "--steps",
                 pace.steps[who.task] * who.faster, "--every", pace.every[who.task], *who.words]
    environments = launch.rank_environments(1 if who.in_one else who.world, **who.env)
    return [(arguments, {**env, **place.of_peer(who.peer, *who.words)}) for env in environments]


def records(who, folder):
    """The files that hold a line every few steps, one a rank; lockstep's, one a job, have the mean over ranks."""
    return sorted(folder.glob("runs/run*/metrics.jsonl" if who.config else "steps.*.jsonl"))


def lines(file):
    return [line for line in map(json.loads, file.read_text().splitlines()) if line.get("event", "step") == "step"]


def windows(speeds, most=5):
    """At most so many speeds, each over as many lines, give or take one; the first line, the warm-up, does not count."""
    counted = speeds[1:] or speeds
    number = min(most, len(counted))
    edges = [len(counted) * i // number for i in range(number + 1)]
    return [statistics.harmonic_mean(counted[begin:end]) for begin, end in zip(edges, edges[1:])]


class MemoryOnce:
    """The proportional set of all ranks and their workers, taken once, when they train."""

    def __init__(self, who, folder):
        self.who, self.folder, self.mb = who, folder, None

    def __call__(self, processes):
        if self.mb is None and any(file.stat().st_size for file in records(self.who, self.folder)):
            pids = [pid for process in processes for pid in launch.descendants(process.pid)]
            own = [] if self.who.config else [process.pid for process in processes]  # mpirun is no rank
            self.mb = launch.proportional_mb(own + pids) / (self.who.world * self.who.copies)


def train(who, place, pace, folder, limit):
    """(speeds, losses by step, MB a rank, how it ran)"""
    memory = MemoryOnce(who, folder)
    load = [subprocess.Popen([sys.executable, "-c", SPINNING, str(os.getpid())]) for _ in range(place.cores if who.load else 0)]
    try:
        ran = launch.run(command(who, place, pace, folder), folder, limit, memory)
    finally:
        launch.end(load)
    if who.load:
        ran.others = 0.0  # they were asked to
    ranks = [lines(file) for file in records(who, folder)]
    if not ranks or not all(ranks):
        raise launch.Failed(f"{who.title}: the training recorded no steps")
    losses = {str(same[0]["step"]): sum(line["loss"] for line in same) / len(same) for same in zip(*ranks)}
    jobs = ranks if who.config else ranks[:1]  # each rank of a Python program tells the whole job's
    return windows([sum(line["samples_per_second"] for line in same) for same in zip(*jobs)]), losses, memory.mb, ran
