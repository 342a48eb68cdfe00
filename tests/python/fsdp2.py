"""fsdp2.py WORLD...: fully_shard() averages gradients and keeps the ranks' parameters equal, over gloo and over lockstep alike."""

import copy
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard

import ranks

TOLERANCE = {torch.float64: 1e-12, torch.float32: 1e-5, torch.float16: 5e-3, torch.bfloat16: 4e-2}


def train(net, group, batch, mean):
    """The parameters after three steps; the first gradients must be the mean of the ranks'."""
    mesh = DeviceMesh.from_group(group, "cpu")
    for layer in net:
        if isinstance(layer, nn.Linear):
            fully_shard(layer, mesh=mesh)
    fully_shard(net, mesh=mesh)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for step in range(3):
        net(batch).square().mean().backward()
        if step == 0:
            for parameter, wanted in zip(net.parameters(), mean):
                found = parameter.grad.full_tensor().double()
                assert (found - wanted).abs().max() <= TOLERANCE[parameter.dtype] * wanted.abs().max(), "not the mean"
        optimizer.step()
        optimizer.zero_grad()
    return [parameter.full_tensor().detach() for parameter in net.parameters()]


def compare(world, rank):
    groups = [dist.new_group(backend=backend) for backend in ("gloo", "lockstep")]
    for kind in TOLERANCE:
        torch.manual_seed(0)
        net = nn.Sequential(nn.Linear(13, 37), nn.ReLU(), nn.Linear(37, 11), nn.ReLU(), nn.Linear(11, 5)).to(kind)
        torch.manual_seed(10 + rank)
        batch = torch.randn(16, 13).to(kind)
        alone = copy.deepcopy(net)
        alone(batch).square().mean().backward()
        mean = [parameter.grad.double() for parameter in alone.parameters()]
        for gradient in mean:
            dist.all_reduce(gradient, dist.ReduceOp.AVG)
        gloo, ours = (train(copy.deepcopy(net), group, batch, mean) for group in groups)
        assert all(torch.equal(a, b) for a, b in zip(gloo, ours)), f"{kind}: gloo and lockstep differ"


if __name__ == "__main__":
    sys.exit(any(ranks.run(int(world), compare) for world in sys.argv[1:]))
