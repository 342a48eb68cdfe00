"""What the tests of training share: small configs, runs of the program, and looking into what they left."""

import csv
import gzip
import hashlib
import io
import json
import pathlib
import struct

from conftest import free_port, run_process

DATA = pathlib.Path(__file__).resolve().parents[2] / "data"
FORKED = pathlib.Path(__file__).parent / "peers/forked.py"

MNIST = f"""
run: {{name: mnist}}
task: {{name: mnist}}
data: {{root: {DATA}/mnist, batch_size: 128, workers: 1}}
model: {{name: simple_cnn}}
optim: {{name: sgd, lr: 0.01, momentum: 0.9}}
train: {{epochs: 1, log_every: 5, eval_every: 0}}
"""

# 20 steps an epoch at world 2, about 2 ms each: epochs that a test can afford
PIMA = f"""
run: {{name: pima}}
task: {{name: pima}}
data: {{root: {DATA}/pima, batch_size: 16, workers: 0}}
optim: {{name: adam, lr: 0.001}}
train: {{epochs: 4, log_every: 3, eval_every: 1}}
checkpoint: {{every_epochs: 1, keep: 3}}
"""


def write_config(folder, text):
    path = pathlib.Path(folder) / "config.yaml"
    path.write_text(text)
    return path


def write_small_mnist(root, train=4096, test=999):
    """The first samples of MNIST as torchvision lays them out: an odd number to evaluate, quickly. Returns root."""
    raw = root / "MNIST/raw"
    raw.mkdir(parents=True)
    for packed in (DATA / "mnist").glob("*-ubyte.gz"):
        data = gzip.decompress(packed.read_bytes())
        count = train if packed.name.startswith("train") else test
        head, size = (16, 784) if "images" in packed.name else (8, 1)
        (raw / packed.stem).write_bytes(data[:4] + struct.pack(">i", count) + data[8:head + count * size])
    return root


def python_ranks(python, world, folder, program, *words, **env):
    """Runs main() of a program of Python's as torchrun does, but without its agent. What a rank prints is in FOLDER/log.RANK."""
    folder.mkdir(parents=True, exist_ok=True)
    done = run_process([python, FORKED, world, folder, program, *words],
                       env=dict(WORLD_SIZE=world, MASTER_ADDR="127.0.0.1", MASTER_PORT=free_port(), **env))
    logs = [f"\n{log.name}:\n{log.read_text()[-2000:]}" for log in sorted(folder.glob("log.*"))]
    assert done.returncode == 0, f"Python's ranks failed:\n{done.stderr[-2000:]}{''.join(logs)}"


def sets(**values):
    """sets(train__epochs=3) -> ["--set", "train.epochs=3"]"""
    words = []
    for key, value in values.items():
        words += ["--set", f"{key.replace('__', '.')}={str(value).lower() if isinstance(value, bool) else value}"]
    return words


def metrics(run):
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


def losses(run):
    """That of each step which the run has logged."""
    return [line["loss"] for line in metrics(run) if line["event"] == "step"]


def status(run):
    return json.loads((run / "status.json").read_text())


def checkpoints(run):
    return sorted((run / "checkpoints").glob("step-*.pt"))


def newest(run):
    import torch
    return torch.load(checkpoints(run)[-1], weights_only=True)


def assert_predicted(text, wanted, names):
    """The CSV that predict printed has these probabilities, and the classes that are likeliest."""
    header, *rows = csv.reader(io.StringIO(text))
    assert header == ["sample", "class"] + [f"p({name})" for name in names]
    assert [int(row[0]) for row in rows] == list(range(len(wanted)))
    assert [row[1] for row in rows] == [names[i] for i in wanted.argmax(1)]
    given = wanted.new_tensor([[float(p) for p in row[2:]] for row in rows])
    assert (given - wanted).abs().max() <= 1e-6
    assert len(rows) == 1 or given.std() > 0.01  # a model that says something


def assert_same_tensors(left, right):
    """Two trees of dicts, lists, tensors and numbers that are equal to the last bit."""
    import torch
    assert type(left) is type(right) or {type(left), type(right)} <= {int, float}
    if isinstance(left, dict):
        assert list(left) == list(right)
        for key in left:
            assert_same_tensors(left[key], right[key])
    elif isinstance(left, (list, tuple)):
        assert len(left) == len(right)
        for a, b in zip(left, right):
            assert_same_tensors(a, b)
    elif isinstance(left, torch.Tensor):
        assert left.dtype == right.dtype and left.shape == right.shape
        # as bytes: a NaN is no number's equal, not even its own
        assert torch.equal(*(tensor.contiguous().reshape(-1).view(torch.uint8) for tensor in (left, right)))
    else:
        assert left == right


# What differs between two attempts at the same training, whatever is done.
CLOCKS = {"seconds", "samples_per_second"}


def without_clocks(lines):
    return [{key: value for key, value in line.items() if key not in CLOCKS} for line in lines]


def assert_same_run(left, right):
    """The newest checkpoints and the metrics of two runs agree bit for bit."""
    a, b = newest(left), newest(right)
    for tree in (a, b):
        for key in ("seconds", "metrics_offset", "config"):
            tree["lockstep"].pop(key)
    assert_same_tensors(a, b)
    assert without_clocks(metrics(left)) == without_clocks(metrics(right))


# The same bits on any x86-64 processor, but for square roots: no library may choose its instructions.
ANY_CPU = {"ATEN_CPU_CAPABILITY": "default", "MKL_CBWR": "COMPATIBLE", "ONEDNN_MAX_CPU_ISA": "SSE41", "OMP_NUM_THREADS": "1"}


def digest_of_tree(tree):
    """The SHA-256 of dicts, lists, tensors and numbers."""
    import torch
    digest = hashlib.sha256()

    def add(node):
        if isinstance(node, dict):
            for key, value in node.items():
                digest.update(f"{key}:".encode())
                add(value)
        elif isinstance(node, (list, tuple)):
            for value in node:
                add(value)
        elif isinstance(node, torch.Tensor):
            digest.update(f"{node.dtype}{list(node.shape)}".encode())
            digest.update(node.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
        else:
            digest.update(f"{node!r};".encode())

    add(tree)
    return digest.hexdigest()


def digest_of_run(run, without=()):
    """What a run ended with, as JSON can keep it, without these metrics."""
    state = newest(run)
    return {"step": state["iter_no"], "model": digest_of_tree(state["model"]),
            "optimizer": digest_of_tree(state["optimizer"]), "metrics": digest_of_tree([{name: line[name] for name in line if name not in without} for line in without_clocks(metrics(run))])}
