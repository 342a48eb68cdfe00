"""One JAX program on two CPU devices of its own: each takes a rank's batch, and the gradients are averaged, as DDP does."""

import os

os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=2"
os.environ["JAX_PLATFORMS"] = "cpu"

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy  # noqa: E402
from jax.sharding import Mesh, NamedSharding, PartitionSpec  # noqa: E402

jax.config.update("jax_cpu_enable_async_dispatch", False)  # else two steps of one device may take both threads, and hang

DEVICES = 2
LEARNING_RATE, MOMENTUM = 0.01, 0.9
MESH = Mesh(numpy.array(jax.devices()), ("rank",))
SPLIT = NamedSharding(MESH, PartitionSpec("rank"))


def parameters_of(module):
    """The same first weights as the other programs'."""
    return {name: jnp.asarray(tensor.detach().numpy()) for name, tensor in module.named_parameters()}


def linear(weights, name, x):
    return x @ weights[f"{name}.weight"].T + weights[f"{name}.bias"]


def cross_entropy(scores, targets, class_weights):
    picked = jnp.take_along_axis(jax.nn.log_softmax(scores), targets[:, None], axis=1)[:, 0]
    weights = class_weights[targets]
    return -(weights * picked).sum() / weights.sum()


def make_step(loss_of):
    """step(weights, velocity, x, y) -> both, and each device's loss; compiled once for each shape."""
    def on_a_device(weights, velocity, x, y):
        loss, gradients = jax.value_and_grad(loss_of)(weights, x, y)
        gradients = jax.lax.pmean(gradients, "rank")
        velocity = jax.tree.map(lambda v, g: MOMENTUM * v + g, velocity, gradients)
        weights = jax.tree.map(lambda w, v: w - LEARNING_RATE * v, weights, velocity)
        return weights, velocity, loss[None]

    whole, split = PartitionSpec(), PartitionSpec("rank")
    mapped = jax.shard_map(on_a_device, mesh=MESH, in_specs=(whole, whole, split, split), out_specs=(whole, whole, split),
                           check_vma=False)
    return jax.jit(mapped, donate_argnums=(0, 1))


def shares(sampler_of, batch_size):
    """The batches of one epoch, each the two ranks' own one after the other, as the other programs' samplers deal them."""
    ranks = [numpy.array(list(sampler_of(rank))) for rank in range(DEVICES)]
    for begin in range(0, len(ranks[0]), batch_size):
        yield numpy.concatenate([rank[begin:begin + batch_size] for rank in ranks])


def train(steps, weights, loss_of, epoch_of):
    """Until `steps` are done; epoch_of(n) gives the batches (x, y) of epoch n, on the devices."""
    velocity, step, epoch = jax.tree.map(jnp.zeros_like, weights), make_step(loss_of), 0
    while not steps.done:
        for x, y in epoch_of(epoch):
            weights, velocity, losses = step(weights, velocity, x, y)
            steps.add(None if steps.is_quiet else float(losses.mean()), len(y))
            if steps.done:
                break
        epoch += 1
