"""The examples' model, optimizer, schedule, communication hook and task in plain Python DDP: what lockstep must equal.

torchrun --nproc-per-node 2 tables_twin.py --pima CSV --out FOLDER leaves FOLDER/NAME.pt for each example.
"""

import argparse
import math
import pathlib

import torch
import torch.distributed as dist
import torch.nn.functional as F
from ddp_train import PimaNet, pima_sets
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


class Lion(torch.optim.Optimizer):
    def __init__(self, params, lr, betas, weight_decay):
        super().__init__(params, dict(lr=lr, betas=betas, weight_decay=weight_decay))

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            beta1, beta2 = group["betas"]
            for p in group["params"]:
                if p.grad is None:
                    continue
                if not self.state[p]:
                    self.state[p]["exp_avg"] = torch.zeros_like(p)
                average = self.state[p]["exp_avg"]
                p.mul_(1 - group["lr"] * group["weight_decay"])
                p.add_(average.mul(beta1).add_(p.grad, alpha=1 - beta1).sign_(), alpha=-group["lr"])
                average.mul_(beta2).add_(p.grad, alpha=1 - beta2)


class Residual(nn.Module):
    def __init__(self, inputs, width, classes):
        super().__init__()
        self.into = nn.Linear(inputs, width)
        self.norm = nn.LayerNorm(width)
        self.middle = nn.Linear(width, width)
        self.out = nn.Linear(width, classes)

    def forward(self, x):
        x = torch.relu(self.into(x.flatten(1)))
        return self.out(x + torch.tanh(self.middle(self.norm(x))))


class Mlp(nn.Module):
    def __init__(self, *widths):
        super().__init__()
        layers = []
        for i, (a, b) in enumerate(zip(widths, widths[1:])):
            layers += [nn.Linear(a, b)] + ([nn.ReLU()] if i + 2 < len(widths) else [])
        self.layers = nn.Sequential(*layers)

    def forward(self, x):
        return self.layers(x)


def clamped(limit, bucket):
    future = dist.all_reduce(bucket.buffer().div_(dist.get_world_size()), async_op=True).get_future()
    return future.then(lambda done: done.value()[0].clamp_(-limit, limit))


def spirals(count, turns, shift):
    number = torch.arange(count, dtype=torch.float32) + shift
    label = torch.arange(count) % 2
    radius = (number + 1) / float(count)
    angle = radius * (turns * 6.28125) + label * 3.140625
    return TensorDataset(torch.stack([radius * angle.cos(), radius * angle.sin()], 1), label)


def train(data, model, make_optimizer, rate=None, hook=None, batch=16, epochs=4):
    torch.manual_seed(0)
    model = DistributedDataParallel(model())
    if hook:
        model.register_comm_hook(*hook)
    sampler = DistributedSampler(data, shuffle=True, seed=0)
    loader = DataLoader(data, batch_size=batch, sampler=sampler)
    optimizer = make_optimizer(model.parameters())
    for epoch in range(epochs):
        sampler.set_epoch(epoch)
        for x, y in loader:
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()
        if rate:
            for group in optimizer.param_groups:
                group["lr"] = rate(epoch + 1)
    return {"model": model.module.state_dict(), "lr": optimizer.param_groups[0]["lr"], "state": optimizer.state_dict()["state"]}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--pima", required=True)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    args = parser.parse_args()
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    pima = pima_sets(args.pima)[0]
    results = {
        "lion": train(pima, PimaNet, lambda p: Lion(p, 1e-3, (0.9, 0.99), 0.01),
                      rate=lambda epoch: 1e-3 / math.sqrt(1 + epoch / 2)),
        "residual": train(pima, lambda: Residual(8, 24, 2), lambda p: torch.optim.Adam(p, lr=1e-3)),
        "clamped": train(pima, PimaNet, lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9), hook=(0.02, clamped)),
        "spirals": train(spirals(600, 1.5, 0), lambda: Mlp(2, 32, 16, 2), lambda p: torch.optim.Adam(p, lr=0.01),
                         batch=20),
    }
    if dist.get_rank() == 0:
        for name, result in results.items():
            torch.save(result, args.out / f"{name}.pt")
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
