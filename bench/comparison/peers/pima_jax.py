"""pima.py by JAX: jit and shard_map over two CPU devices of one process, the table in memory."""

import in_jax
import jax
import jax.numpy as jnp
import numpy
import record
import torch
from ddp_train import pima_sets
from models import PimaNet
from torch.utils.data import DistributedSampler


def main():
    options = record.arguments()
    train_set, _ = pima_sets(options.data)
    inputs, targets = (tensor.numpy() for tensor in train_set.tensors)
    targets = targets.astype(numpy.int32)
    counts = numpy.bincount(targets)
    class_weights = jnp.asarray((counts.sum() / (counts * len(counts))).astype(numpy.float32))
    torch.manual_seed(0)
    weights = in_jax.parameters_of(PimaNet())

    def loss_of(weights, x, y):
        for name in ("fc1", "fc2"):
            x = jax.nn.relu(in_jax.linear(weights, name, x))
        return in_jax.cross_entropy(in_jax.linear(weights, "head", x), y, class_weights)

    # the same in each epoch: kept on the devices
    batches = [jax.device_put((inputs[rows], targets[rows]), in_jax.SPLIT) for rows in in_jax.shares(
        lambda rank: DistributedSampler(train_set, in_jax.DEVICES, rank, shuffle=False), 32)]
    in_jax.train(record.Record(options, world=1), weights, loss_of, lambda epoch: batches)


if __name__ == "__main__":
    main()
