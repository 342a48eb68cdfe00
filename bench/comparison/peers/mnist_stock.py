"""The workshop's program: torchvision's MNIST through a DataLoader, DistributedDataParallel over gloo."""

import record
import torch
import torch.distributed as dist
from models import SimpleCNN
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler
from torchvision import datasets, transforms


def main():
    options = record.arguments()
    dist.init_process_group("gloo")
    transform = transforms.Compose([transforms.ToTensor(), transforms.Normalize((0.1307,), (0.3081,))])
    train_set = datasets.MNIST(options.data, train=True, transform=transform)
    sampler = DistributedSampler(train_set)
    loader = DataLoader(train_set, batch_size=128, sampler=sampler, num_workers=2)

    torch.manual_seed(0)
    model = DistributedDataParallel(SimpleCNN())
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)

    steps = record.Record(options)
    for images, labels in steps.batches(loader, sampler):
        optimizer.zero_grad()
        loss = criterion(model(images), labels)
        loss.backward()
        optimizer.step()
        steps.add(loss.item(), len(labels))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
