"""peer.py CASES OUT [STORE]: runs every case of this world size under Python's DDP with gloo.

Twin of peer.cpp, reading the same cases. RANK and WORLD_SIZE come from the environment; STORE is a file for
the rendezvous, without it torchrun's MASTER_ADDR and MASTER_PORT are used.
"""

import datetime
import os
import pathlib
import sys

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.nn.parallel import DistributedDataParallel

sys.path.append(str(pathlib.Path(__file__).resolve().parents[2] / "bench/comparison/peers"))
from models import PimaNet, SimpleCNN  # noqa: E402


class Net(nn.Module):
    shape, classes, indices = (8,), 2, False


class Mlp(Net):
    def __init__(self):
        super().__init__()
        self.net = PimaNet()

    def forward(self, x, pick):
        return [self.net(x)]


class Cnn(Net):
    shape, classes = (1, 28, 28), 10

    def __init__(self):
        super().__init__()
        self.net = SimpleCNN()

    def forward(self, x, pick):
        return [self.net(x)]


class BatchNormNet(Net):
    shape = (1, 8, 8)

    def __init__(self):
        super().__init__()
        self.conv, self.bn1 = nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4)
        self.fc1, self.bn2, self.fc2 = nn.Linear(4 * 6 * 6, 16), nn.BatchNorm1d(16), nn.Linear(16, 2)

    def forward(self, x, pick):
        x = F.relu(self.bn1(self.conv(x))).flatten(1)
        return [self.fc2(F.relu(self.bn2(self.fc1(x))))]


class DropoutNet(Net):
    def __init__(self):
        super().__init__()
        self.fc1, self.drop, self.fc2 = nn.Linear(8, 32), nn.Dropout(0.5), nn.Linear(32, 2)

    def forward(self, x, pick):
        return [self.fc2(self.drop(F.relu(self.fc1(x))))]


class Shared(nn.Module):
    def __init__(self, weight):
        super().__init__()
        self.weight = weight


class Tied(Net):
    def __init__(self):
        super().__init__()
        setattr(self, "in", nn.Linear(8, 8, bias=False))
        self.out = Shared(getattr(self, "in").weight)
        self.head = nn.Linear(8, 2)

    def forward(self, x, pick):
        return [self.head(F.relu(torch.matmul(F.relu(getattr(self, "in")(x)), self.out.weight)))]


class Frozen(Net):
    def __init__(self):
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(8, 16), nn.Linear(16, 2)
        self.fc1.weight.requires_grad_(False)

    def forward(self, x, pick):
        return [self.fc2(F.relu(self.fc1(x)))]


class Sparse(Net):
    shape, indices = (5,), True

    def __init__(self):
        super().__init__()
        self.embedding, self.fc = nn.Embedding(20, 8, sparse=True), nn.Linear(8, 2)

    def forward(self, x, pick):
        return [self.fc(self.embedding(x).mean(1))]


class Lstm(Net):
    shape = (5, 4)

    def __init__(self):
        super().__init__()
        self.lstm, self.fc = nn.LSTM(4, 6, num_layers=2, batch_first=True), nn.Linear(6, 2)

    def forward(self, x, pick):
        output, _ = self.lstm(x)
        return [self.fc(output[:, -1])]


class Branch(Net):
    def __init__(self):
        super().__init__()
        self.trunk, self.a, self.b, self.c = nn.Linear(8, 16), nn.Linear(16, 2), nn.Linear(16, 2), nn.Linear(16, 2)

    def forward(self, x, pick):
        hidden = F.relu(self.trunk(x))
        if pick == 0:
            return [self.a(hidden)]
        if pick == 1:
            return [self.b(hidden)]
        return [self.a(hidden) + self.b(hidden)]


class TwoOutputs(Net):
    def __init__(self):
        super().__init__()
        self.trunk, self.a, self.b = nn.Linear(8, 16), nn.Linear(16, 2), nn.Linear(16, 2)

    def forward(self, x, pick):
        hidden = F.relu(self.trunk(x))
        return [self.a(hidden), self.b(hidden), x]


class Never(Net):
    def __init__(self):
        super().__init__()
        self.fc1, self.never, self.fc2 = nn.Linear(8, 16), nn.Linear(16, 16), nn.Linear(16, 2)

    def forward(self, x, pick):
        return [self.fc2(F.relu(self.fc1(x)))]


class Reuse(Net):
    def __init__(self):
        super().__init__()
        setattr(self, "in", nn.Linear(8, 16))
        self.twice, self.never, self.out = nn.Linear(16, 16), nn.Linear(16, 16), nn.Linear(16, 2)

    def forward(self, x, pick):
        return [self.out(F.relu(self.twice(F.relu(self.twice(F.relu(getattr(self, "in")(x)))))))]


class Twins(Net):
    def __init__(self):
        super().__init__()
        setattr(self, "in", nn.Linear(8, 24))
        self.a, self.b, self.out = nn.Linear(24, 24), nn.Linear(24, 24), nn.Linear(24, 2)

    def forward(self, x, pick):
        return [self.out(F.relu(self.b(F.relu(self.a(F.relu(getattr(self, "in")(x)))))))]


NETS = {"mlp": Mlp, "cnn": Cnn, "bn": BatchNormNet, "dropout": DropoutNet, "tied": Tied, "frozen": Frozen,
        "sparse": Sparse, "lstm": Lstm, "branch": Branch, "outputs": TwoOutputs, "never": Never, "reuse": Reuse,
        "twins": Twins}


def read_cases(path):
    for line in pathlib.Path(path).read_text().splitlines():
        words = line.split()
        if words and not words[0].startswith("#"):
            yield words[0], dict(word.split("=", 1) for word in words[1:])


def user_hook(state, bucket):
    future = dist.all_reduce(bucket.buffer().mul_(0.5), async_op=True).get_future()
    return future.then(lambda done: done.value()[0].mul_(0.25))


def plain_bf16_hook(state, bucket):  # under its own name, because DDP refuses bf16_compress_hook without NCCL
    return default_hooks.bf16_compress_hook(state, bucket)


def register_hook(ddp, case):
    name = case.get("hook", "none")
    builtin = {"builtin_allreduce": dist.BuiltinCommHookType.ALLREDUCE,
               "builtin_fp16": dist.BuiltinCommHookType.FP16_COMPRESS}
    plain = {"allreduce": default_hooks.allreduce_hook, "fp16": default_hooks.fp16_compress_hook,
             "bf16": plain_bf16_hook, "user": user_hook,
             "fp16_wrapper": default_hooks.fp16_compress_wrapper(default_hooks.allreduce_hook)}
    if name in builtin:
        ddp._register_builtin_comm_hook(builtin[name])
    elif name in plain:
        ddp.register_comm_hook(None, plain[name])
    elif name == "powersgd":
        state = powerSGD_hook.PowerSGDState(
            None, matrix_approximation_rank=int(case.get("rank", 1)), start_powerSGD_iter=int(case.get("start", 2)),
            warm_start=case.get("warm", "1") == "1", use_error_feedback=case.get("feedback", "1") == "1",
            batch_tensors_with_same_shape=case.get("batched", "0") == "1",
            orthogonalization_epsilon=float(case.get("epsilon", 0)), random_seed=int(case.get("seed", 0)))
        ddp.register_comm_hook(state, powerSGD_hook.powerSGD_hook)


def sample(net, number, rank, batch):
    generator = torch.Generator().manual_seed(1000 + 10 * number + rank)
    shape = (batch, *net.shape)
    x = torch.randint(0, 20, shape, generator=generator) if net.indices else torch.randn(shape, generator=generator)
    return x, torch.randint(0, net.classes, (batch,), generator=generator)


def make_optimizer(case, ddp):
    lr = float(case.get("lr", 0.05))
    kinds = {"sgd": lambda p: torch.optim.SGD(p, lr=lr, momentum=0.9), "plain": lambda p: torch.optim.SGD(p, lr=lr),
             "adam": lambda p: torch.optim.Adam(p, lr=lr), "adamw": lambda p: torch.optim.AdamW(p, lr=lr)}
    return kinds[case.get("optim", "sgd")](ddp.parameters())


class Run:
    def __init__(self, case):
        self.case, self.rank = case, dist.get_rank()
        torch.manual_seed(10 + self.rank)
        self.net = NETS[case.get("model", "mlp")]()
        on = lambda key, otherwise="0": case.get(key, otherwise) == "1"
        more = {}
        if "cap" in case:
            more["bucket_cap_mb"] = float(case["cap"])
        if "cap_list" in case:
            more["bucket_cap_mb_list"] = [float(size) for size in case["cap_list"].split(",")]
        for key, name in {"skip_unused": "skip_all_reduce_unused_params", "batched_copy": "batched_grad_copy",
                          "lazy": "lazy_bucket_allocation", "forward_sync": "forward_sync_buffers"}.items():
            if key in case:
                more[name] = on(key)
        self.ddp = DistributedDataParallel(
            self.net, find_unused_parameters=on("find_unused"), static_graph=on("static"),
            gradient_as_bucket_view=on("view"), broadcast_buffers=on("buffers", "1"), **more)
        register_hook(self.ddp, case)
        self.optimizer = make_optimizer(case, self.ddp)
        self.losses = []
        torch.manual_seed(77 + self.rank)

    def train(self):
        if self.case.get("join") != "1":
            return self.steps(0)
        with self.ddp.join(divide_by_initial_world_size=self.case.get("divide_by_initial", "1") == "1"):
            self.steps(self.rank)

    def steps(self, more):
        count = int(self.case.get("steps", 6)) + more
        micros = int(self.case.get("accumulate", 1))
        for step in range(count):
            with self.ddp.no_sync():
                for micro in range(micros - 1):
                    self.forward_backward(step * micros + micro, step, count)
            self.forward_backward(step * micros + micros - 1, step, count)
            self.optimizer.step()
            self.optimizer.zero_grad(set_to_none=self.case.get("set_to_none", "1") == "1")

    def forward_backward(self, number, step, count):
        batch = int(self.case.get("batch", 8))
        if self.case.get("uneven_batch") == "1" and step + 1 == count:
            batch -= 1 + self.rank
        pick = (number + self.rank) % 3
        x, y = sample(self.net, number, self.rank, batch)
        outputs = self.ddp(x, pick)
        loss = F.cross_entropy(outputs[0], y)
        if len(outputs) > 1 and pick == 0:
            loss = loss + outputs[1].square().mean()
        self.losses.append(loss.detach())
        loss.backward()

    def write(self, stem):
        tensors = [torch.stack(self.losses)] if self.losses else []
        tensors += [p for _, p in self.ddp.named_parameters()] + [b for _, b in self.net.named_buffers()]
        with open(f"{stem}.bin", "wb") as file:
            for tensor in tensors:
                file.write(tensor.detach().contiguous().numpy().tobytes())
        buckets = self.ddp.reducer._get_zeros_like_grad_buckets()
        pathlib.Path(f"{stem}.txt").write_text("".join(f"{len(b.parameters())}\n" for b in buckets))


def main():
    cases, out = sys.argv[1], pathlib.Path(sys.argv[2])
    torch.set_num_threads(1)
    how = {"init_method": f"file://{sys.argv[3]}", "rank": int(os.environ["RANK"]),
           "world_size": int(os.environ["WORLD_SIZE"])} if len(sys.argv) > 3 else {}
    dist.init_process_group(os.environ.get("BACKEND", "gloo"), timeout=datetime.timedelta(seconds=60), **how)
    out.mkdir(parents=True, exist_ok=True)
    world = str(dist.get_world_size())
    for name, case in read_cases(cases):
        if world in case["worlds"].split(","):
            run = Run(case)
            run.train()
            run.write(out / f"{name}.{dist.get_rank()}")
    dist.destroy_process_group()
    os._exit(0)  # what is asked is written; on a busy machine a thread of gloo's now and then ends Python's exit in abort()


if __name__ == "__main__":
    main()
