"""All-reduces of each size over gloo and over lockstep, in turn: rank 0 prints "BACKEND_BYTES MICROSECONDS", medians. SIZE... ROUNDS"""

import statistics
import sys
import time

import torch
import torch.distributed as dist

SECONDS = 0.05  # of a round


def microseconds(group, tensor):
    """Of one call, over as many as fit in a round on both ranks."""
    def measured(calls):
        dist.barrier(group)
        begin = time.perf_counter()
        for _ in range(calls):
            dist.all_reduce(tensor, dist.ReduceOp.AVG, group)
        return (time.perf_counter() - begin) / calls
    calls = torch.tensor(max(2.0, SECONDS / measured(3)))
    dist.broadcast(calls, 0, group)
    return 1e6 * measured(int(calls))


def main():
    *sizes, rounds = map(int, sys.argv[1:])
    dist.init_process_group("gloo")
    groups = {backend: dist.new_group(backend=backend) for backend in ("gloo", "lockstep")}
    for size in sizes:
        times, tensor = {backend: [] for backend in groups}, torch.ones(size // 4)
        for _ in range(rounds):
            for backend, group in groups.items():
                times[backend].append(microseconds(group, tensor))
        assert tensor.eq(1).all(), "wrong sum"
        for backend in groups if dist.get_rank() == 0 else ():
            print(f"{backend}_{size} {statistics.median(times[backend]):.1f}", flush=True)
    dist.destroy_process_group()


main()
