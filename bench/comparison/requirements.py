"""What a target asks of this machine and this lockstep; where it is missing, why in words."""

import os
import shutil
import subprocess
import sys

import machine


def own_kernels(place):
    built = (place.program.parents[1] / "lib/liblockstep_fast.so").exists()
    return "" if built else "the fast kernels are not built (cmake --build build/release --target lockstep_fast)"


def python_module(place):
    built = (place.modules.parent / "liblockstep_python.so").exists()
    return "" if built else "the module for Python is not built (cmake --build build/release --target lockstep_python)"


def bf16(place):
    return "" if machine.bf16_instructions() else f"this CPU has none of {', '.join(machine.BF16)}"


def two_cores(place):
    found = machine.physical_cores()
    return "" if found >= 2 else f"{found} physical core: two ranks share it"


def crowd(place):
    return "" if place.cores < 4 else "4 ranks have a core each"


def gpu(place):
    if not machine.gpus():
        return "no GPU here"
    plugin = place.program.parent.parent / "lib/liblockstep_cuda.so"
    return "" if plugin.exists() else "this lockstep was built without CUDA"


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


def compiler(place):
    return "" if shutil.which("g++") else "torch.compile needs g++"


CHECKS = {"jax": jax, "compiler": compiler, "own kernels": own_kernels, "python": python_module, "bf16": bf16, "two cores": two_cores, "crowd": crowd, "gpu": gpu, "strace": strace}


def missing(target, place):
    """'' where the target applies, else why it does not."""
    return next((why for need in target.needs if (why := CHECKS[need](place))), "")
