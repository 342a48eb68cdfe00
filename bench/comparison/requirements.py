"""What a target asks of this machine and this lockstep; where it is missing, why in words."""

import os
import shutil
import subprocess
import sys

import machine


def built(place, name):
    there = (place.program.parents[1] / f"lib/liblockstep_{name}.so").exists()
    return "" if there else f"liblockstep_{name}.so is not built (cmake --build build/release --target lockstep_{name})"


def gpu(place):
    return built(place, "cuda") if machine.gpus() else "no GPU here"


def strace(place):
    if not shutil.which("strace"):
        return "strace is not installed"
    tried = subprocess.run(["strace", "-f", "--seccomp-bpf", "-o", os.devnull, "true"], capture_output=True, text=True)
    return "" if tried.returncode == 0 else f"strace may not trace here: {tried.stderr.strip()[:80]}"


def jax(place):
    """Its wheels, beside the Python that the peers have."""
    folder = place.root / ".deps/jax"
    if not (folder / "jax").exists():
        print("installing JAX: scripts/requirements/jax.txt", file=sys.stderr)
        lock = place.root / "scripts/requirements/jax.txt"
        done = subprocess.run([place.python, "-m", "pip", "install", "-q", "--no-deps", "--require-hashes", "-r", lock,
                               "--target", folder], capture_output=True, text=True)
        if done.returncode != 0:
            return f"JAX could not be installed: {done.stderr.strip()[-80:]}"
    return ""


CHECKS = {
    "jax": jax, "gpu": gpu, "strace": strace,
    "own kernels": lambda place: built(place, "fast"),
    "python": lambda place: built(place, "python"),
    "compiler": lambda place: "" if shutil.which("g++") else "torch.compile needs g++",
    "bf16": lambda place: "" if machine.bf16_instructions() else f"this CPU has none of {', '.join(machine.BF16)}",
    "two cores": lambda place: "" if machine.physical_cores() >= 2 else "1 physical core: two ranks share it",
    "crowd": lambda place: "" if place.cores < 4 else "4 ranks have a core each"}


def missing(target, place):
    """'' where the target applies, else why it does not."""
    return next((why for need in target.needs if (why := CHECKS[need](place))), "")
