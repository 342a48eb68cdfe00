"""Where the programs and the data are, with what is missing installed."""

import argparse
import dataclasses
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

import contestants
import data_sets
import launch
import machine
from launch import ROOT

PEERS = ROOT / "bench/comparison/peers"
JAX = ROOT / ".deps/jax"


class Refused(Exception):
    """The input is wrong: (what, what to do)."""


def positive(text):
    """The type of an option."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of 1 or more")
    return int(text)


def writable(folder, option="--out"):
    try:
        folder.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
    except OSError as error:
        raise Refused(f"{option} {folder}: {error.strerror}", "name a folder that can be written")
    return folder


@dataclasses.dataclass
class Place:
    """Where the programs and the data are."""
    program: pathlib.Path
    python: pathlib.Path
    mpirun: str
    peers: pathlib.Path
    made: pathlib.Path  # an empty folder, for data sets that are made here
    root: pathlib.Path = ROOT
    cores: int = dataclasses.field(default_factory=machine.cores)

    @property
    def modules(self):
        return self.program.parents[1] / "lib/python"

    def of_peer(self, *words):
        """What the environment of a peer with this name and these words has beside the others'."""
        more = JAX if "jax" in words[0] else self.modules if "lockstep" in words else None
        return {"PYTHONPATH": f"{launch.python_environment()['PYTHONPATH']}:{more}"} if more else {}

    def data(self, name):
        """The folder of a data set of data_sets.py."""
        folder = self.made / name
        if not folder.exists():
            begun = pathlib.Path(tempfile.mkdtemp(dir=self.made))
            data_sets.MADE[name](begun, self.python)
            begun.rename(folder)
        return folder


def has_peers(python):
    asked = "import importlib.metadata as m; m.version('torch'), m.version('torchvision')"  # to import them takes seconds
    return python.exists() and subprocess.run([python, "-c", asked], capture_output=True).returncode == 0


def python_with_peers():
    python = ROOT / ".deps/python/bin/python3"
    if not has_peers(python):
        print("installing the peers: scripts/bootstrap --tests --no-build", file=sys.stderr)
        if subprocess.run([ROOT / "scripts/bootstrap", "--tests", "--no-build"]).returncode or not has_peers(python):
            raise Refused("PyTorch and torchvision could not be installed",
                          "run scripts/bootstrap --tests, which lists what is missing")
    return python


def as_typed(path):
    """By its name where that means it, as users do: Open MPI's takes a path for a wish to set LD_LIBRARY_PATH."""
    name = os.path.basename(path)
    return name if shutil.which(name) == path else path


def mpirun_of(cache):
    """The one of the MPI that was linked."""
    linked = [line.partition("=")[2] for line in cache.read_text().splitlines() if line.startswith("MPIEXEC_EXECUTABLE:")]
    for path in filter(None, [*linked, shutil.which("mpirun")]):
        if os.access(path, os.X_OK):
            return as_typed(path)
    raise Refused("there is no mpirun", "run scripts/bootstrap, which lists what to install")


def find(build, peers, made):
    program, cache = build.resolve() / "bin/lockstep", build.resolve() / "CMakeCache.txt"
    if not program.exists() or not cache.exists():
        raise Refused(f"{program} is not built", "scripts/bootstrap builds it; --build DIR names another build folder")
    return Place(program, python_with_peers(), mpirun_of(cache), peers.resolve(), made)


def check_peers(folder, jobs):
    """Are the programs of these jobs there?"""
    needed = {contestants.CONTESTANTS[job].peer for job in jobs if job in contestants.CONTESTANTS}
    for name in sorted(filter(None, needed | ({"mnist_stock"} if "start_torchrun" in jobs else set()))):
        if not (folder / f"{name}.py").is_file():
            raise Refused(f"{folder}/{name}.py is missing", f"pass a folder with the programs of {PEERS}")
