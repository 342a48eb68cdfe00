"""ddp.py FOLDER 2=NAME,NAME 3=NAME...: models of zoo.py under Python's DistributedDataParallel, at 2 ranks, at 3, ...

What `exported_peer ddp` does: rank 0's into FOLDER/NAME.ddp2.want.safetensors. The ranks are this process's children.
"""

import sys
import warnings

import torch
import torch._dynamo  # optimizers want it: once, and not in every rank
import torch.distributed as dist
from safetensors.torch import save_file
from torch.nn.parallel import DistributedDataParallel
from torch.utils import _pytree as pytree

from export import ALL, drawn, make_data, train


def part(values, rank, ranks):
    return pytree.tree_map(lambda leaf: leaf.chunk(ranks)[rank] if isinstance(leaf, torch.Tensor) else leaf, values)


def train_as_rank(rank, folder, ranks, names):
    dist.init_process_group("gloo", init_method=f"file://{folder}/store.{ranks}.{names[0]}", rank=rank, world_size=ranks)
    for name in names:
        module = drawn(ALL[name])
        steps, _ = make_data(module, ALL[name])
        left = train(module, part(steps, rank, ranks), "sgd", call=DistributedDataParallel(module), seed=7 + rank)
        if rank == 0:
            save_file(left, f"{folder}/{name}.ddp{ranks}.want.safetensors")
    dist.destroy_process_group()


def main(folder, *jobs):
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore")
    for ranks, names in (job.split("=") for job in jobs):
        given = (folder, int(ranks), names.split(","))
        torch.multiprocessing.start_processes(train_as_rank, given, int(ranks), start_method="fork")


if __name__ == "__main__":
    main(*sys.argv[1:])
