"""Ranks of Python as forks of one process, which has imported torch once."""

import datetime
import os
import tempfile

import torch
import torch.distributed as dist

torch.set_num_threads(1)


def start(world, work, *words, backend="lockstep", timeout=60):
    """The pids of ranks that run work(world, rank, *words) in a group and exit as any program of Python's."""
    folder = tempfile.mkdtemp()
    pids = []
    for rank in range(world):
        pid = os.fork()
        if not pid:
            dist.init_process_group(backend, init_method=f"file://{folder}/store", rank=rank, world_size=world,
                                    timeout=datetime.timedelta(seconds=timeout))
            work(world, rank, *words)
            if dist.is_initialized():
                dist.destroy_process_group()
            raise SystemExit(0)
        pids.append(pid)
    return pids


def run(world, work, *words, **how):
    """Whether a rank failed."""
    return any([os.waitpid(pid, 0)[1] for pid in start(world, work, *words, **how)])
