"""failures.py CASE: what a rank of Python sees when another one fails, forks or exits. Prints nothing if all is well."""

import datetime
import os
import signal
import sys
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import ranks


def sum_until_error(limit, group=None):
    """The error that ends this rank's sums, within `limit` seconds of the moment at which rank 1 failed."""
    while True:
        begin = time.monotonic()
        try:
            dist.all_reduce(torch.ones(3), group=group)
            time.sleep(0.01)
        except RuntimeError as error:
            assert time.monotonic() - begin < limit, f"{time.monotonic() - begin} s"
            return str(error)


def ends_alone(name, words, limit, end):
    def case(world, rank):
        part = dist.new_group([1, 2], timeout=datetime.timedelta(seconds=3 if name == "stopped" else 60))
        group = part if rank == 2 else None  # gives up before rank 0 does, and names the job's ranks
        for _ in range(3):
            dist.all_reduce(torch.ones(3))
        if rank == 1:
            end()
        error = sum_until_error(limit, group)
        assert "rank 1 (host" in error and words in error, error
        begin = time.monotonic()
        assert "rank 1" in sum_until_error(limit, group), "later calls throw, too"
        dist.destroy_process_group()
        assert time.monotonic() - begin < 20
        sys.exit(0)
    return case


def raise_error():
    raise ValueError("a bug")


def memory_is_unlinked():
    names = [line for line in open("/proc/self/maps") if "/dev/shm/lockstep" in line]
    assert names and all(line.rstrip().endswith("(deleted)") for line in names), names


def check_sum(world):
    tensor = torch.ones(1000)
    dist.all_reduce(tensor)
    assert tensor.eq(world).all()


def forks(world, rank):
    """A child that exits, destroys the group or calls a collective does its parent no harm."""
    check_sum(world)
    memory_is_unlinked()

    def destroy():
        dist.destroy_process_group()
        sys.exit(0)

    def call():
        try:
            dist.all_reduce(torch.ones(3))
        except RuntimeError as error:
            sys.exit("a forked process" not in str(error))
    for child in (lambda: sys.exit(0), destroy, call, raise_error):
        if rank == 0:
            pid = os.fork()
            if not pid:
                child()
                os._exit(9)
            status = os.waitpid(pid, 0)[1]
            assert status == (256 if child is raise_error else 0), status
        check_sum(world)
    dist.send(torch.ones(1), 1) if rank == 0 else rank == 1 and dist.recv(torch.ones(1), 0)
    dist.destroy_process_group()
    sys.exit(0)


def loader_workers(world, rank):
    model = DistributedDataParallel(torch.nn.Linear(8, 8))
    data = torch.utils.data.TensorDataset(torch.randn(64, 8))
    for _ in range(2):
        for (batch,) in torch.utils.data.DataLoader(data, batch_size=16, num_workers=2):
            model(batch).sum().backward()
    check_sum(world)


def no_destroy(world, rank):
    work = dist.all_reduce(torch.ones(3), async_op=True)
    work.wait()
    sys.exit(0)


def groups_again(world, rank):
    """Groups that are opened and destroyed, also twice in one store, leave no file, thread or memory behind."""
    def resources():
        maps = sum("/dev/shm" in line for line in open("/proc/self/maps"))
        return len(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task")), maps

    if rank == 0:  # from here on it counts its groups apart: [0] has the name that [1, 2] has for the others
        dist.new_group([0], use_local_synchronization=True)
    dist.new_group([0])
    dist.barrier()
    part = dist.new_group([1, 2])
    if rank:
        dist.all_reduce(torch.ones(3), group=part)
    del part
    store, before = dist.distributed_c10d._get_default_store(), None
    dist.destroy_process_group()
    for turn in range(5):
        dist.init_process_group("lockstep", store=store, rank=rank, world_size=world)
        part = dist.new_group(backend="lockstep")
        check_sum(world)
        dist.all_reduce(torch.ones(100), group=part)
        work = dist.all_reduce(torch.ones(3), async_op=True)
        del part
        dist.destroy_process_group()
        work.wait()
        del work
        before = before or (resources() if turn == 1 else None)
    assert resources() == before, (before, resources())
    dist.init_process_group("lockstep", store=store, rank=rank, world_size=world)


def other_threads_run(world, rank):
    """Neither a call nor wait() holds the interpreter's lock."""
    import threading
    check_sum(world)
    if rank:
        for _ in range(2):
            time.sleep(0.5)
            dist.all_reduce(torch.ones(3))
        return
    ticks, over = 0, False

    def count():
        nonlocal ticks
        while not over:
            ticks += 1
            time.sleep(0.001)
    thread = threading.Thread(target=count)
    thread.start()
    for wait in (lambda: dist.all_reduce(torch.ones(3)), lambda: dist.all_reduce(torch.ones(3), async_op=True).wait()):
        before = ticks
        wait()
        assert ticks - before > 50, ticks - before
    over = True
    thread.join()


# name: (what the ranks do, rank 1's exit status, the group's timeout)
CASES = {
    "killed": (ends_alone("killed", "has died", 20, lambda: os.kill(os.getpid(), signal.SIGKILL)), -signal.SIGKILL, 60),
    "stopped": (ends_alone("stopped", "is stopped", 30, lambda: os.kill(os.getpid(), signal.SIGSTOP)), -signal.SIGKILL, 5),
    "raised": (ends_alone("raised", "ValueError: a bug", 20, raise_error), 1, 60),
    **{case.__name__: (case, 0, 60) for case in (forks, loader_workers, no_destroy, groups_again, other_threads_run)}}


def main():
    work, wanted, timeout = CASES[sys.argv[1]]
    pids = ranks.start(3, work, timeout=timeout)
    statuses = {}
    for rank in (0, 2, 1):
        if rank == 1 and wanted == -signal.SIGKILL:
            os.kill(pids[1], signal.SIGKILL)
        statuses[rank] = os.waitstatus_to_exitcode(os.waitpid(pids[rank], 0)[1])
    assert statuses == {0: 0, 1: wanted, 2: 0}, statuses


if __name__ == "__main__":
    main()
