"""The plain Python program that lockstep must equal bit for bit: torch DDP over gloo, DataLoader, torchvision.

torchrun --nproc-per-node N ddp_train.py --mnist ROOT --pima CSV --variants variants.json --out FOLDER
trains once for each variant and leaves FOLDER/NAME.pt.
"""

import argparse
import csv
import json
import math
import os
import pathlib
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset
from torchvision import datasets, transforms

sys.path.append(str(pathlib.Path(__file__).resolve().parents[3] / "bench/comparison/peers"))
from models import PimaNet, SimpleCNN  # noqa: E402

DEFAULTS = dict(task="mnist", batch=128, epochs=1, max_steps=0, accumulate=1, clip=0, smoothing=0, optim="sgd", lr=0.01,
                schedule="none", bf16=False, channels_last=False, evaluate=False, zero=False)


def pima_table(path, seed=0, eval_fraction=0.2):
    """All rows in doubles: split by class, zeros that mean "missing" filled with the median, standardized. And the labels, and
    the rows to train and to evaluate on."""
    rows = [[float(word) for word in row] for row in csv.reader(open(path)) if not row[0][0].isalpha()]
    draw = torch.Generator().manual_seed(seed)
    train, held = [], []
    for label in (0, 1):
        members = [i for i, row in enumerate(rows) if row[8] == label]
        order = torch.randperm(len(members), generator=draw).tolist()
        kept = math.floor(eval_fraction * len(members) + 0.5)
        held += [members[i] for i in order[:kept]]
        train += [members[i] for i in order[kept:]]
    # the file's numbers are read as float32
    table = torch.tensor([row[:8] for row in rows], dtype=torch.float32).double().tolist()
    train, held = sorted(train), sorted(held)
    for column in range(8):
        if 1 <= column <= 5:
            known = sorted(table[i][column] for i in train if table[i][column] != 0)
            median = (known[(len(known) - 1) // 2] + known[len(known) // 2]) / 2
            for row in table:
                row[column] = row[column] or median
        values = [table[i][column] for i in train]
        mean = spread = 0.0
        for value in values:
            mean += value
        mean /= len(values)
        for value in values:
            spread += (value - mean) * (value - mean)
        spread = math.sqrt(spread / len(values))
        for row in table:
            row[column] = (row[column] - mean) / spread
    return torch.tensor(table, dtype=torch.float32), torch.tensor([int(row[8]) for row in rows]), train, held


def pima_sets(path):
    table, labels, *parts = pima_table(path)
    return [TensorDataset(table[part], labels[part]) for part in parts]


def optimizer_of(model, v):
    if v["zero"]:
        from torch.distributed.optim import ZeroRedundancyOptimizer
        return ZeroRedundancyOptimizer(model.parameters(), torch.optim.Adam, lr=v["lr"])
    if v["optim"] == "sgd":
        return torch.optim.SGD(model.parameters(), lr=v["lr"], momentum=0.9)
    return {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}[v["optim"]](model.parameters(), lr=v["lr"])


def train(v, train_set, eval_set):
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    model = PimaNet() if v["task"] == "pima" else SimpleCNN()
    if v["channels_last"]:
        model = model.to(memory_format=torch.channels_last)
    model = DistributedDataParallel(model)
    sampler = DistributedSampler(train_set, num_replicas=world, rank=rank, shuffle=True, seed=0)
    loader = DataLoader(train_set, batch_size=v["batch"], sampler=sampler)
    optimizer = optimizer_of(model, v)
    scheduler = None
    if v["schedule"] == "one_cycle":
        scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.05, total_steps=v["max_steps"])
    criterion = nn.CrossEntropyLoss(label_smoothing=v["smoothing"])

    step = 0
    for epoch in range(v["epochs"]):
        sampler.set_epoch(epoch)
        group = []
        for i, batch in enumerate(loader):
            group.append(batch)
            if len(group) < v["accumulate"] and i + 1 < len(loader):
                continue
            optimizer.zero_grad()
            for j, (x, y) in enumerate(group):
                if v["channels_last"]:
                    x = x.to(memory_format=torch.channels_last)
                model.require_backward_grad_sync = j + 1 == len(group)
                with torch.autocast("cpu", dtype=torch.bfloat16, enabled=v["bf16"]):
                    loss = criterion(model(x), y)
                (loss / len(group)).backward()
            if v["clip"]:
                torch.nn.utils.clip_grad_norm_(model.parameters(), v["clip"])
            optimizer.step()
            if scheduler:
                scheduler.step()
            group = []
            step += 1
            if step == v["max_steps"]:
                break
        if step == v["max_steps"]:
            break

    if v["zero"]:
        optimizer.consolidate_state_dict(0)
    if v["zero"] and dist.get_rank() > 0:
        return  # the whole is rank 0's
    result = {"model": model.module.state_dict(), "optimizer": optimizer.state_dict(), "step": step}
    if v["evaluate"] and rank == 0:
        model.module.eval()
        with torch.no_grad():
            result["correct"] = sum((model.module(x).argmax(1) == y).sum().item()
                                    for x, y in DataLoader(eval_set, batch_size=500))
        result["evaluated"] = len(eval_set)
    return result


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--mnist", required=True)
    parser.add_argument("--pima", required=True)
    parser.add_argument("--variants", required=True)
    parser.add_argument("--out", required=True)
    args = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    transform = transforms.Compose([transforms.ToTensor(), transforms.Normalize((0.1307,), (0.3081,))])
    sets = {"mnist": [datasets.MNIST(args.mnist, train=train, transform=transform) for train in (True, False)],
            "pima": pima_sets(args.pima)}
    for name, variant in json.loads(pathlib.Path(args.variants).read_text()).items():
        variant = DEFAULTS | variant
        result = train(variant, *sets[variant["task"]])
        if dist.get_rank() == 0:
            torch.save(result, pathlib.Path(args.out) / f"{name}.pt")
        dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
    os._exit(0)  # the interpreter's own end now and then aborts in a thread of libtorch's ("terminate called without ...")
