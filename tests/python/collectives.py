"""collectives.py WORLD...: each collective, type and operation over gloo and over lockstep in one program, byte by byte.

gloo may refuse what lockstep does. Sums of bools differ (docs/how-to/python.md).
"""

import ctypes
import datetime
import sys
import threading
import warnings

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
import torch.distributed.nn.functional as autograd

import ranks

warnings.filterwarnings("ignore", category=FutureWarning)  # collectives with two names

OPS = {name: getattr(dist.ReduceOp, name) for name in ("SUM", "AVG", "PRODUCT", "MIN", "MAX", "BAND", "BOR", "BXOR")}
TYPES = [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64,
         torch.bool, torch.complex64, torch.complex128]
MOVED = [torch.uint16, torch.float8_e4m3fn]  # types that no backend sums
FLOAT = torch.float32


def values(kind, count, seed=0):
    """Other numbers on each rank."""
    generator = torch.Generator().manual_seed(1000 * seed + 7 * dist.get_rank() + count)
    if kind.is_complex:
        return torch.randn(count, generator=generator, dtype=kind)
    if kind.is_floating_point:
        return (3 * torch.randn(count, generator=generator, dtype=torch.float64)).to(kind)
    return torch.randint(0, 2 if kind == torch.bool else 7, (count,), generator=generator).to(kind)


def reductions(kind, op, count, world, rank):
    """(name, call of a group) of collectives that reduce `count` numbers for each rank."""
    def reduce(group):
        tensor = values(kind, count)
        dist.reduce(tensor, world - 1, op, group)
        return tensor if rank == world - 1 else None

    def all_reduce(group):
        tensor = values(kind, count)
        dist.all_reduce(tensor, op, group)
        return tensor

    def coalesced(group):
        tensors = [values(kind, count + i) for i in range(3)]
        dist.all_reduce_coalesced(tensors, op, group)
        return tensors

    def reduce_scatter(group):
        output = torch.zeros(count, dtype=kind)
        dist.reduce_scatter(output, [values(kind, count, i) for i in range(world)], op, group)
        return output

    def reduce_scatter_tensor(group):
        output = torch.zeros(count, dtype=kind)
        dist.reduce_scatter_tensor(output, values(kind, count * world), op, group)
        return output
    return [(call.__name__, call) for call in (reduce, all_reduce, coalesced, reduce_scatter, reduce_scatter_tensor)]


def moves(kind, count, world, rank):
    own, zeros = lambda seed=0: values(kind, count, seed), lambda n=count: torch.zeros(n, dtype=kind)
    last = world - 1

    def into(call, output, *words):
        def run(group):
            result = output()
            call(result, *[word() for word in words], group=group)
            return result
        return run
    return {
        "broadcast": into(lambda tensor, group: dist.broadcast(tensor, last, group), own),
        "all_gather": into(dist.all_gather, lambda: [zeros() for _ in range(world)], own),
        "all_gather_into_tensor": into(dist.all_gather_into_tensor, lambda: zeros(count * world), own),
        "gather": into(lambda output, tensor, group: dist.gather(tensor, output, 0, group),
                       lambda: [zeros() for _ in range(world)] if rank == 0 else None, own),
        "scatter": into(lambda output, inputs, group: dist.scatter(output, inputs, last, group), zeros,
                        lambda: [own(i) for i in range(world)] if rank == last else None),
        "all_to_all": into(dist.all_to_all, lambda: [zeros() for _ in range(world)], lambda: [own(i) for i in range(world)]),
        "all_to_all_single": into(dist.all_to_all_single, lambda: zeros(count * world), lambda: values(kind, count * world))}.items()


def in_place(call, tensor, whole=None):
    """A collective of one tensor; its memory afterwards, in the order of storage."""
    def run(group):
        own = tensor()
        call(own, group=group)
        return own if whole is None else whole(own)
    return run


def shapes(world, rank):
    """Tensors that are not one row of memory."""
    transposed = lambda: values(FLOAT, 48 * 101).view(48, 101).t()
    image = lambda: values(FLOAT, 2 * 3 * 20 * 5).view(2, 3, 20, 5).to(memory_format=torch.channels_last)
    for name, make in {"transposed": transposed, "channels_last": image, "scalar": lambda: values(FLOAT, 1)[0],
                       "empty": lambda: values(FLOAT, 0)}.items():
        yield f"all_reduce {name}", in_place(dist.all_reduce, make)
        yield f"broadcast {name}", in_place(lambda tensor, group: dist.broadcast(tensor, 0, group), make)
        yield f"reduce {name}", in_place(lambda tensor, group: dist.reduce(tensor, 0, group=group), make, lambda t: t if rank == 0 else None)
    special = lambda: torch.tensor([1e-42, float("nan"), float("inf"), -float("inf"), -0.0, 3e38]).roll(rank)
    for name in ("SUM", "MIN", "MAX"):
        yield f"all_reduce {name} of nan, inf, -0", in_place(lambda t, group, op=OPS[name]: dist.all_reduce(t, op, group), special,
                                                           lambda tensor: tensor.where(~tensor.isnan(), 0.5))  # NaNs may differ in sign
    yield "all_reduce sparse", in_place(dist.all_reduce, lambda: torch.sparse_coo_tensor([[rank, rank + 1]], [1.0, 2.0], (world + 2,)),
                                        lambda tensor: tensor.to_dense())

    def rows(group):
        sent = [k + 1 for k in range(world)]
        output = torch.zeros((rank + 1) * world, 3)
        dist.all_to_all_single(output, values(FLOAT, 3 * sum(sent)).view(-1, 3), [rank + 1] * world, sent, group)
        return output
    yield "all_to_all_single uneven", rows


def others(world, rank):
    """Calls that are not one collective of one tensor."""
    def wait_all(works):
        return [work.wait() for work in works]

    def in_flight(group):
        tensors = [values(FLOAT, 100 + i, i) for i in range(20)]
        wait_all([dist.all_reduce(tensor, group=group, async_op=True) for tensor in tensors])
        return tensors

    def kinds_in_flight(group):
        own, part, all_, swapped = values(FLOAT, 8 * world), torch.zeros(8), torch.zeros(8 * world * world), torch.zeros(8 * world)
        wait_all([dist.reduce_scatter_tensor(part, own.clone(), group=group, async_op=True),
                  dist.all_gather_into_tensor(all_, own, group=group, async_op=True),
                  dist.all_to_all_single(swapped, own.clone(), group=group, async_op=True), dist.barrier(group, async_op=True)])
        return [part, all_, swapped]

    def future(group):
        work = dist.all_reduce(values(FLOAT, 100), group=group, async_op=True)
        return work.get_future().then(lambda done: done.value()[0] * 2).wait()

    def coalescing(group):
        tensors = [values(FLOAT, count) for count in (3, 1000)]
        with dist._coalescing_manager(group):
            for tensor in tensors:
                dist.all_reduce(tensor, group=group)
        return tensors

    def objects(group):
        all_, first = [None] * world, [rank, {"x": rank}]
        dist.all_gather_object(all_, {"rank": rank, "list": list(range(50 * rank))}, group)
        dist.broadcast_object_list(first, world - 1, group)
        return [all_, first]

    def messages(group):
        if world == 1:
            return None
        own, got = [values(FLOAT, 100, tag) for tag in (5, 6)], [torch.zeros(100) for _ in range(2)]
        after, before = (rank + 1) % world, (rank - 1) % world
        works = [dist.irecv(got[i], before, group, tag=5 + i) for i in (1, 0)] + [dist.isend(own[i], after, group, tag=5 + i) for i in (0, 1)]
        wait_all(works)
        batch = [dist.P2POp(dist.isend, own[0], after, group), dist.P2POp(dist.irecv, got[0], before, group)]
        wait_all(dist.batch_isend_irecv(batch))
        return got

    def any_source(group):
        if rank:
            return dist.send(torch.full((4,), float(rank)), 0, group)
        got = {}
        for _ in range(world - 1):
            tensor = torch.zeros(4)
            got[dist.recv(tensor, group=group)] = tensor
        return sorted(got), [got[source] for source in sorted(got)]

    def sum_begun_before_a_message(group):
        own, word = values(FLOAT, 1000), torch.zeros(3)
        if rank == 0:
            work = dist.all_reduce(own, group=group, async_op=True)
            for other in range(1, world):
                dist.send(torch.ones(3), other, group)
            work.wait()
        else:
            dist.recv(word, 0, group)
            dist.all_reduce(own, group=group)
        return own, word

    def of_functions(group):
        own, parts = values(FLOAT, 6 * world), values(FLOAT, 4 * world, 2)
        done = [functional.all_reduce(own, "avg", group), functional.all_gather_tensor(own, 0, group),
                functional.reduce_scatter_tensor(own, "sum", 0, group), functional.broadcast(own, 0, group),
                functional.all_to_all_single(own, None, None, group), *functional.all_reduce_coalesced([own, parts], "sum", group),
                *functional.all_gather_into_tensor_coalesced([own, parts], group),
                *functional.reduce_scatter_tensor_coalesced([own, parts], "sum", [0, 0], group)]
        return [functional.wait_tensor(tensor) for tensor in done]

    def gradient(group):
        own = values(FLOAT, 10).requires_grad_()
        total = autograd.all_reduce(own, group=group)
        total.square().sum().backward()
        return total, own.grad

    def parts(group):
        backend, results = dist.get_backend(group), []
        for members in ([0], list(range(world)), list(range(world))[::-1], list(range(1, world))):
            part = dist.new_group(members, backend=backend) if members else None
            if part and rank in members:
                tensor = values(FLOAT, 1001)
                dist.all_reduce(tensor, group=part)
                results += [tensor, dist.get_process_group_ranks(part)]
        return results

    def split(group):
        halves = [ranks for ranks in ([0], list(range(1, world))[::-1]) if ranks]
        part, alone = dist.split_group(group, halves), dist.split_group(group, [[world - 1]])
        tensor = values(FLOAT, 1001)
        dist.all_reduce(tensor, group=part)
        return [tensor, dist.get_process_group_ranks(part), part.group_desc, alone is dist.GroupMember.NON_GROUP_MEMBER]

    def threads(group):
        groups, tensors = [dist.new_group(backend=dist.get_backend(group)) for _ in range(2)], [values(FLOAT, 1000, i) for i in range(2)]

        def work(i):
            for _ in range(20):
                dist.all_reduce(tensors[i], group=groups[i])
                tensors[i].div_(world)
        started = [threading.Thread(target=work, args=(i,)) for i in range(2)]
        [thread.start() for thread in started]
        [thread.join() for thread in started]
        return tensors

    def timeout_of_a_wait(group):
        return dist.all_reduce(values(FLOAT, 10), group=group, async_op=True).wait(datetime.timedelta(seconds=60))

    def monitored_barrier(group):
        return group.monitored_barrier(datetime.timedelta(seconds=60))  # in older torchs, dist's takes gloo alone
    return [(name, call) for name, call in locals().items() if callable(call) and name != "wait_all"]


def cases(world, rank):
    for kind in TYPES:
        for name, op in OPS.items():
            for count in (1, 1003) if kind != FLOAT else (1, 1003, 100_003):
                yield from ((f"{call} {name} {kind} {count}", run) for call, run in reductions(kind, op, count, world, rank)
                            if not (kind == torch.bool and name == "SUM"))
    for kind in TYPES + MOVED:
        yield from ((f"{call} {kind}", run) for call, run in moves(kind, 1003, world, rank))
    yield from shapes(world, rank)
    yield from others(world, rank)


def as_bytes(result):
    if isinstance(result, torch.Tensor):
        flat = result.detach().contiguous()
        return str(result.dtype), result.stride(), ctypes.string_at(flat.data_ptr(), flat.nbytes)
    return [as_bytes(each) for each in result] if isinstance(result, (list, tuple)) else repr(result)


def outcome(call, group):
    try:
        return as_bytes(call(group)), None
    except Exception as error:
        return None, f"{type(error).__name__}: {error}"


def compare(world, rank):
    groups = [dist.new_group(backend=backend) for backend in ("gloo", "lockstep")]
    differ, compared, refused = [], 0, 0
    for name, call in cases(world, rank):
        (gloo, refusal), (ours, error) = (outcome(call, group) for group in groups)
        compared += not refusal
        refused += bool(refusal)
        if refusal and not refusal.startswith(("RuntimeError", "ValueError: all_reduce does not support")):
            differ.append(f"{name}: this test has an error: {refusal}")
        elif not refusal and gloo != ours:
            differ.append(f"{name}: {error or 'other bytes'}")
    assert compared > 500, f"gloo refused {refused} calls: only {compared} were compared"
    assert not differ, f"rank {rank} of {world}: {len(differ)} of {compared} differ from gloo:\n" + "\n".join(differ[:40])
    if rank == 0:
        print(f"world {world}: {compared} calls have gloo's bytes, gloo refuses {refused}", flush=True)


if __name__ == "__main__":
    sys.exit(any(ranks.run(int(world), compare) for world in sys.argv[1:]))
