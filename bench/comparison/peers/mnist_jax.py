"""mnist_memory.py by JAX: jit and shard_map over two CPU devices of one process, the images in memory."""

import in_jax
import jax
import jax.numpy as jnp
import numpy
import record
import torch
from mnist_memory import in_memory
from models import SimpleCNN
from torch.utils.data import DistributedSampler


def pooled(x):
    return jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, 1, 2, 2), (1, 1, 2, 2), "VALID")


def main():
    options = record.arguments()
    images, labels = (tensor.numpy() for tensor in in_memory(options.data))
    labels = labels.astype(numpy.int32)
    torch.manual_seed(0)
    weights = in_jax.parameters_of(SimpleCNN())

    def conv(weights, name, x):
        out = jax.lax.conv_general_dilated(x, weights[f"{name}.weight"], (1, 1), "SAME")
        return out + weights[f"{name}.bias"][:, None, None]

    def loss_of(weights, x, y):
        for name in ("conv1", "conv2"):
            x = pooled(jax.nn.relu(conv(weights, name, x)))
        x = jax.nn.relu(in_jax.linear(weights, "fc1", x.reshape(len(x), -1)))
        return in_jax.cross_entropy(in_jax.linear(weights, "fc2", x), y, jnp.ones(10))

    def epoch_of(epoch):
        def sampler_of(rank):
            sampler = DistributedSampler(labels, in_jax.DEVICES, rank)
            sampler.set_epoch(epoch)
            return sampler
        for rows in in_jax.shares(sampler_of, 128):
            yield jax.device_put((images[rows], labels[rows]), in_jax.SPLIT)

    in_jax.train(record.Record(options, world=1), weights, loss_of, epoch_of)


if __name__ == "__main__":
    main()
