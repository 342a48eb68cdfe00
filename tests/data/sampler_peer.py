"""1,000 random settings of torch.utils.data.DistributedSampler, and the indices it gives: a line each."""
import random
import sys

from torch.utils.data import DistributedSampler

draw = random.Random(int(sys.argv[1]))
for case in range(1000):
    size = draw.choice([1, 2, 3, 5, draw.randint(1, 40), draw.randint(1, 400), draw.randint(400, 3000)])
    world = draw.choice([1, 2, 3, 4, 7, draw.randint(1, 64), size, size + 1, 2 * size + draw.randint(0, 3)])
    world = min(world, 4000)
    rank = draw.randrange(world)
    seed = draw.choice([0, 1, draw.randint(0, 2**31), draw.randint(-5, 2**40)])
    epoch = draw.choice([0, 1, draw.randint(0, 1000)])
    shuffle, drop_last = draw.random() < 0.7, draw.random() < 0.5
    sampler = DistributedSampler(range(size), world, rank, shuffle=shuffle, seed=seed, drop_last=drop_last)
    sampler.set_epoch(epoch)
    print(size, world, rank, seed, epoch, int(shuffle), int(drop_last), len(sampler), *sampler)
