"""PyTorch's DDP tutorial in Python: the twin of main.cpp. torchrun --nproc-per-node=2 twin.py"""
import os
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DistributedSampler


class ToyModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.net1 = nn.Linear(10, 10)
        self.net2 = nn.Linear(10, 5)

    def forward(self, x):
        return self.net2(torch.relu(self.net1(x)))


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = DistributedDataParallel(ToyModel())
    optimizer = torch.optim.SGD(model.parameters(), 0.05)

    inputs = torch.randn(64, 10)
    labels = inputs.narrow(1, 0, 5) * 2
    sampler = DistributedSampler(inputs)

    for epoch in range(20):
        sampler.set_epoch(epoch)
        total = torch.zeros(2, dtype=torch.float64)
        for batch in torch.tensor(list(sampler)).split(8):
            loss = nn.functional.mse_loss(model(inputs[batch]), labels[batch])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += torch.tensor([loss.item(), 1], dtype=torch.float64)
        dist.all_reduce(total)
        if dist.get_rank() == 0:
            print(f"Epoch {epoch} | Average Loss: {total[0] / total[1]:.6f}")
    dist.destroy_process_group()
    sys.stdout.flush()
    os._exit(0)  # on a busy machine a thread of gloo's now and then ends Python's exit in abort()


main()
