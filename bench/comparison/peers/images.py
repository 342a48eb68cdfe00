"""A folder of images for resnet18, as configs/folder.yaml has it: ImageFolder, DataLoader, DistributedDataParallel over gloo.
[--memory] [--channels-last]"""

import record
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset
from torchvision import models, transforms
from torchvision.datasets import ImageFolder


def in_memory(images):
    return TensorDataset(torch.stack([image for image, _ in images]), torch.tensor(images.targets))


def main():
    options = record.arguments("--memory", "--channels-last")
    dist.init_process_group("gloo")
    as_trained = transforms.Compose([transforms.ToTensor(),
                                     transforms.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))])
    images = ImageFolder(f"{options.data}/train", as_trained)
    workers, classes = 4, len(images.classes)
    if options.memory:
        images, workers = in_memory(images), 0
    sampler = DistributedSampler(images)
    loader = DataLoader(images, batch_size=32, sampler=sampler, num_workers=workers)
    layout = torch.channels_last if options.channels_last else torch.contiguous_format

    torch.manual_seed(0)
    model = DistributedDataParallel(models.resnet18(num_classes=classes).to(memory_format=layout))
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, weight_decay=0.0001)

    steps = record.Record(options)
    for x, y in steps.batches(loader, sampler):
        optimizer.zero_grad()
        loss = criterion(model(x.to(memory_format=layout)), y)
        loss.backward()
        optimizer.step()
        steps.add(loss.item(), len(y))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
