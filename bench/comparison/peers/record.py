"""What a peer is told, and what it writes: a line every few steps, {"step", "loss", "samples_per_second"}, a file a rank."""

import argparse
import json
import pathlib
import time

import torch.distributed as dist


def arguments(*switches, **defaults):
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", required=True)
    parser.add_argument("--out", required=True, type=pathlib.Path)
    parser.add_argument("--steps", required=True, type=int)
    parser.add_argument("--every", required=True, type=int)
    for switch in switches:
        parser.add_argument(switch, action="store_true")
    for name, value in defaults.items():
        parser.add_argument(f"--{name}", default=value, type=type(value))
    return parser.parse_args()


class Record:
    """Counts steps; `done` when there were enough."""

    def __init__(self, options, world=None):
        """`world`: of a program without torch's process group; its own samples are then counted as they come."""
        self.options, self.step, self.samples = options, 0, 0
        self.world = world or dist.get_world_size()
        rank = 0 if world else dist.get_rank()
        self.file = (options.out / f"steps.{rank}.jsonl").open("w")
        self.begin = time.perf_counter()

    @property
    def done(self):
        return self.step >= self.options.steps

    def batches(self, loader, sampler):
        """Of one epoch after another, until there were enough steps."""
        epoch = 0
        while not self.done:
            sampler.set_epoch(epoch)
            for batch in loader:
                yield batch
                if self.done:
                    break
            epoch += 1

    @property
    def is_quiet(self):
        """Whether the next step leaves no line: its loss may stay where it is."""
        return (self.step + 1) % self.options.every != 0 and self.step + 1 < self.options.steps

    def add(self, loss, samples):
        self.step += 1
        self.samples += samples
        if self.step % self.options.every == 0 or self.done:
            now = time.perf_counter()
            line = {"step": self.step, "loss": loss, "samples_per_second": self.samples * self.world / (now - self.begin)}
            print(json.dumps(line), file=self.file, flush=True)
            self.samples, self.begin = 0, now
