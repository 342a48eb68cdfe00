"""Diabetes from 8 measurements through a DataLoader, as configs/pima.yaml has it: DistributedDataParallel over gloo.
[--compile]"""

import record
import torch
import torch.distributed as dist
from ddp_train import pima_sets  # the split and the medians, which the tests hold to the bit
from models import PimaNet
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler


def main():
    options = record.arguments("--compile", backend="gloo")
    dist.init_process_group(options.backend)
    train_set, _ = pima_sets(options.data)
    sampler = DistributedSampler(train_set, shuffle=False)
    loader = DataLoader(train_set, batch_size=32, sampler=sampler)

    torch.manual_seed(0)
    model = DistributedDataParallel(PimaNet(), find_unused_parameters=True)
    if options.compile:
        model.compile()
    counts = torch.bincount(train_set.tensors[1]).double()
    criterion = nn.CrossEntropyLoss(weight=(counts.sum() / (counts * len(counts))).float())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)

    steps = record.Record(options)
    for x, y in steps.batches(loader, sampler):
        optimizer.zero_grad()
        loss = criterion(model(x), y)
        loss.backward()
        optimizer.step()
        steps.add(loss.item(), len(y))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
