"""step.py MODEL STEPS STORE: twin of step.cpp under Python's DDP; prints {"plain_ms": ..., "ddp_ms": ...}."""

import json
import os
import pathlib
import statistics
import sys
import time

import torch
import torch.distributed as dist
import torch.nn.functional as F

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tests/parity"))
from peer import PimaNet, SimpleCNN  # noqa: E402

WORK = {"cnn": (SimpleCNN, (128, 1, 28, 28), 10), "mlp": (PimaNet, (16, 8), 2)}


def timed_step(model, sgd, x, y):
    begin = time.perf_counter()
    sgd.zero_grad()
    F.cross_entropy(model(x), y).backward()
    sgd.step()
    return 1e3 * (time.perf_counter() - begin)


def main():
    kind, shape, classes = WORK[sys.argv[1]]
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{sys.argv[3]}", rank=rank, world_size=world)
    torch.manual_seed(0)
    plain = kind()
    torch.manual_seed(0)
    wrapped = torch.nn.parallel.DistributedDataParallel(kind())
    optimizers = [torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9) for model in (plain, wrapped)]
    x = torch.randn(shape, generator=torch.Generator().manual_seed(rank))
    y = torch.randint(0, classes, (shape[0],))
    times = [(timed_step(plain, optimizers[0], x, y), timed_step(wrapped, optimizers[1], x, y))
             for _ in range(12 + int(sys.argv[2]))][12:]
    if rank == 0:
        print(json.dumps({"plain_ms": statistics.median(t[0] for t in times),
                          "ddp_ms": statistics.median(t[1] for t in times)}))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
