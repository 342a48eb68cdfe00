"""Pretended GPUs for tests (tests/gpulab): the environment that has them, and programs that run in it, a rank each."""

import dataclasses
import pathlib
import subprocess
import sys
import time

import pytest
from conftest import SOURCE, cache_value, end_session, free_port, members, start_process
from process_kit import PATIENCE

sys.path[:0] = [str(SOURCE / folder) for folder in ("bench/gpu", "bench/comparison")]

def libraries(build_dir):
    """What is preloaded, the driver first; skips where the build has none."""
    if cache_value(build_dir, "LOCKSTEP_GPULAB") != "ON":
        pytest.skip("this build has no simulated GPUs: they need the CUDA plug-in for CUDA 13")
    folder = build_dir / "gpulab"
    found = [folder / "libcuda.so.1", *folder.glob("libcudart.so.*"), folder / "libnccl.so.2"]
    assert len(found) == 3 and all(file.exists() for file in found), f"{folder} is not built: ninja -C {build_dir} gpulab"
    return found


@dataclasses.dataclass
class Rank:
    process: object
    log: pathlib.Path

    @property
    def said(self):
        return self.log.read_text(errors="replace")


@dataclasses.dataclass
class Lab:
    """A machine of so many GPUs; faults are LAB_... of tests/gpulab/README.md: lab.env(delay_ms=2)."""
    build_dir: pathlib.Path
    folder: pathlib.Path
    gpus: int = 1
    strict: bool = True
    started: list = dataclasses.field(default_factory=list)

    def env(self, **faults):
        files = libraries(self.build_dir)
        told = {"gpus": self.gpus, "strict": int(self.strict)} | faults
        return {"LD_PRELOAD": " ".join(map(str, files)), "LD_LIBRARY_PATH": str(files[0].parent), "CUBLAS_WORKSPACE_CONFIG": ":4096:8",
                **{f"LAB_{name.upper()}": str(value) for name, value in told.items()}}

    def start(self, world, *words, env=None, each=None, cwd=None, name="rank"):
        """A process a rank, as torchrun would tell them; `each` is a rank's own environment."""
        port = free_port()
        ranks = []
        for rank in range(world):
            own = {"RANK": rank, "WORLD_SIZE": world, "LOCAL_RANK": rank, "LOCAL_WORLD_SIZE": world, "GROUP_RANK": 0,
                   "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
            log = self.folder / f"{name}{rank}.txt"
            told = self.env() | own | (env or {}) | (each[rank] if each else {})
            process = start_process(words, env=told, cwd=cwd or self.folder,
                                    stdin=subprocess.DEVNULL, stdout=open(log, "wb"), stderr=subprocess.STDOUT)
            ranks.append(Rank(process, log))
        self.started += ranks
        return ranks

    def run(self, world, *words, check=True, timeout=PATIENCE, **how):
        """Runs all ranks to their ends -> their exit statuses and what each has said."""
        ranks = self.start(world, *words, **how)
        end = time.monotonic() + timeout
        try:
            for rank in ranks:
                rank.process.wait(max(0.1, end - time.monotonic()))
        finally:
            self.end(ranks)
        statuses = [rank.process.returncode for rank in ranks]
        if check and any(statuses):
            pytest.fail("\n".join(f"rank {i}: exit {rank.process.returncode}\n{rank.said[-3000:]}" for i, rank in enumerate(ranks)))
        return statuses, [rank.said for rank in ranks]

    def end(self, ranks=None):
        for rank in ranks or self.started:
            if rank.process.poll() is None or members(rank.process):
                end_session(rank.process, grace=1.0)


@pytest.fixture
def gpu_lab(build_dir, tmp_path):
    """gpu_lab(gpus=2, strict=True) -> a Lab."""
    labs = []

    def make(gpus=1, **how):
        labs.append(Lab(build_dir, tmp_path, gpus, **how))
        return labs[-1]
    yield make
    for lab in labs:
        lab.end()
