"""DDP with the images in the device's memory, ready to be trained on: [--batch N] [--device cuda|cpu] [--precision fp32|bf16|fp16]
[--channels-last] [--deterministic] [--compile (mode reduce-overhead)].

Waits for the device only where it writes a line. Leaves steps.RANK.jsonl and, of rank 0, end.pt.
"""

import contextlib
import gzip
import os
import pathlib

import record
import torch
import torch.distributed as dist
from models import SimpleCNN
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DistributedSampler

TYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


def numbers(file, header):
    return torch.frombuffer(bytearray(gzip.decompress(file.read_bytes())[header:]), dtype=torch.uint8)


def digits(folder):
    images = numbers(folder / "train-images-idx3-ubyte.gz", 16).view(-1, 1, 28, 28).to(torch.float32).div_(255)
    return images.sub_(0.1307).div_(0.3081), numbers(folder / "train-labels-idx1-ubyte.gz", 8).long()


def device_of(options):
    if options.device == "cpu":
        return torch.device("cpu")
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]) % torch.cuda.device_count())
    torch.cuda.set_device(device)
    return device


def wrapped(options, device):
    torch.manual_seed(0)
    layout = torch.channels_last if options.channels_last else torch.contiguous_format
    model = SimpleCNN().to(device=device, memory_format=layout)
    ddp = DistributedDataParallel(model, device_ids=None if device.type == "cpu" else [device.index])
    return model, torch.compile(ddp, mode="reduce-overhead") if options.compile else ddp, layout


def main():
    options = record.arguments("--channels-last", "--deterministic", "--compile", batch=256, device="cuda", precision="fp32")
    device = device_of(options)
    if options.deterministic:
        os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"
        torch.use_deterministic_algorithms(True)
    dist.init_process_group("gloo" if device.type == "cpu" else "nccl", device_id=None if device.type == "cpu" else device)
    images, labels = (part.to(device) for part in digits(pathlib.Path(options.data)))
    sampler = DistributedSampler(images)
    model, trained, layout = wrapped(options, device)
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    scaler = torch.amp.GradScaler(device.type, enabled=options.precision == "fp16")
    autocast = (contextlib.nullcontext if options.precision == "fp32"
                else lambda: torch.autocast(device.type, dtype=TYPES[options.precision]))

    steps, epoch = record.Record(options), 0
    while not steps.done:
        sampler.set_epoch(epoch)
        for batch in torch.tensor(list(sampler)).to(device).split(options.batch):
            x, y = images[batch].to(memory_format=layout), labels[batch]
            optimizer.zero_grad()
            with autocast():
                loss = criterion(trained(x), y)
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            steps.add(loss if steps.is_quiet else loss.item(), len(batch))
            if steps.done:
                break
        epoch += 1
    if dist.get_rank() == 0:
        end = {"model": {name: value.cpu() for name, value in model.state_dict().items()}, "scale": scaler.get_scale()}
        torch.save(end, options.out / "end.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
