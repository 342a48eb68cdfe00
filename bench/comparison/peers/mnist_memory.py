"""The same with all images in memory, ready to be trained on, and no DataLoader: [--channels-last] [--bf16] [--compile]."""

import record
import torch
import torch.distributed as dist
from models import SimpleCNN
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DistributedSampler
from torchvision import datasets


def in_memory(root):
    digits = datasets.MNIST(root, train=True)
    images = digits.data.unsqueeze(1).to(torch.float32).div_(255)
    return images.sub_(0.1307).div_(0.3081), digits.targets


def main():
    options = record.arguments("--channels-last", "--bf16", "--compile", backend="gloo")
    dist.init_process_group(options.backend)
    images, labels = in_memory(options.data)
    sampler = DistributedSampler(images)
    layout = torch.channels_last if options.channels_last else torch.contiguous_format

    torch.manual_seed(0)
    model = DistributedDataParallel(SimpleCNN().to(memory_format=layout))
    if options.compile:
        model.compile()
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)

    steps, epoch = record.Record(options), 0
    while not steps.done:
        sampler.set_epoch(epoch)
        for batch in torch.tensor(list(sampler)).split(128):
            x, y = images[batch].to(memory_format=layout), labels[batch]
            optimizer.zero_grad()
            with torch.autocast("cpu", dtype=torch.bfloat16, enabled=options.bf16):
                loss = criterion(model(x), y)
            loss.backward()
            optimizer.step()
            steps.add(loss.item(), len(batch))
            if steps.done:
                break
        epoch += 1
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
