"""What the kit runs on: the Python with its PyTorch, the libraries that come with that, the GPUs, NCCL, the sanitizer."""

import dataclasses
import glob
import json
import os
import pathlib
import shutil
import subprocess
import sys

from place import Refused

ROOT = pathlib.Path(__file__).resolve().parents[2]  # KIT/share/lockstep
KIT = ROOT.parents[1]
ASKED = """import json, os, torch
with open("/proc/self/maps") as maps:
    files = {line.split(None, 5)[5].strip() for line in maps if line.count("/")}
folders = {os.path.dirname(path) for path in files if os.path.basename(path).startswith(("libcudart.so.", "libnccl.so."))}
nccl = torch.cuda.nccl.version() if torch.distributed.is_available() and torch.distributed.is_nccl_available() else ()
count = torch.cuda.device_count()
print("told:" + json.dumps({
    "torch": torch.__version__, "cuda": torch.version.cuda or "none", "nccl": list(nccl),
    "gpus": [torch.cuda.get_device_name(i) for i in range(count)],
    "libraries": [os.path.join(os.path.dirname(torch.__file__), "lib"), *sorted(folders)]}))
"""
PATIENCE = 120  # with the first import of torch, from a cold disk


@dataclasses.dataclass
class Here:
    device: str
    torch: str
    cuda: str
    nccl: tuple
    gpus: list
    libraries: list
    version: str = ""     # of our program, in its own words
    sanitizer: str = ""
    program: pathlib.Path = KIT / "bin/lockstep"

    @property
    def kind(self):
        """Of the device as Python names it."""
        return "cuda" if self.device == "cuda" else "cpu"

    def steps(self, number):
        """A rehearsal takes few."""
        return number if self.device == "cuda" else max(2, number // 10)

    def seconds(self, number):
        """A rehearsal has patience: its machine may be busy."""
        return number if self.device == "cuda" else 3 * number

    @property
    def backend(self):
        return "nccl" if self.device == "cuda" else "gloo"


def last_words(text, lines=4):
    return "\n  ".join((text.strip().splitlines() or ["it printed nothing"])[-lines:])


def ask_torch():
    try:
        asked = subprocess.run([sys.executable, "-B", "-c", ASKED], capture_output=True, text=True, timeout=PATIENCE)
    except subprocess.TimeoutExpired:
        raise Refused(f"`import torch` did not end within {PATIENCE} s", "run it by hand: the disk may be slow, or the driver may hang")
    told = [line for line in asked.stdout.splitlines() if line.startswith("told:")]
    if "No module named 'torch'" in asked.stderr:
        raise Refused(f"{sys.executable} has no PyTorch", "name a Python with PyTorch: PYTHON=/path/to/python3")
    if asked.returncode != 0 or not told:
        raise Refused(f"PyTorch does not start in {sys.executable}: {last_words(asked.stderr)}", "fix it, or name another Python in PYTHON")
    return json.loads(told[-1].removeprefix("told:"))


def check_version(found, wanted):
    if found.partition("+")[0] != wanted["torch"]:
        raise Refused(f"this kit was built for PyTorch {wanted['torch']}, and {sys.executable} has {found}",
                      "name a Python with that version in PYTHON, or build the kit for this version")


def check_cuda(found, wanted):
    if found.partition(".")[0] != wanted["cuda"].partition(".")[0]:
        raise Refused(f"this kit was built for CUDA {wanted['cuda']}, and PyTorch here for CUDA {found}",
                      f"name a Python in PYTHON whose PyTorch is for CUDA {wanted['cuda']}")


def starts(program, folders):
    os.environ["LD_LIBRARY_PATH"] = ":".join(map(str, folders))
    return subprocess.run([program, "--version"], capture_output=True, text=True)


def start(program, libraries):
    """What the program says of itself, with the path of libraries left as it has to be for all that follows."""
    try:
        ran = starts(program, libraries)  # what lies in KIT/lib is found by run paths, and is not for the machine's Python
        if ran.returncode != 0 and "libstdc++" in ran.stderr:  # the machine's compiler is older than ours
            ran = starts(program, [KIT / "lib/gcc", *libraries])
    except OSError as error:
        raise Refused(f"{program}: {error.strerror}",
                      "unpack it on Linux on x86-64, on a file system that is not mounted noexec")
    if ran.returncode != 0:
        raise Refused(f"{program} does not start: {last_words(ran.stderr)}", "unpack the kit again, or use a system with a newer C library")
    return ran.stdout.strip()


def sanitizer():
    found = shutil.which("compute-sanitizer")
    return found or next(iter(sorted(glob.glob("/usr/local/cuda*/bin/compute-sanitizer"))), "")


def packed_for(kit):
    """The versions of PyTorch and CUDA that the kit was built for."""
    try:
        return json.loads((kit / "contents.json").read_text())
    except (OSError, ValueError) as error:
        raise Refused(f"{kit} is not a complete kit: {error}", "unpack it again")


def look_around(on_cpu):
    packed = packed_for(KIT)
    told = ask_torch()
    check_version(told["torch"], packed)
    check_cuda(told["cuda"], packed)
    version = start(KIT / "bin/lockstep", told["libraries"])
    device = "cpu" if on_cpu else "cuda" if told["gpus"] else "none"
    return Here(device, told["torch"], told["cuda"], tuple(told["nccl"]), told["gpus"], told["libraries"], version, sanitizer())
