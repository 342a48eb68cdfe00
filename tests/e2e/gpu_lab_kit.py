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
class Lab:
    """A machine of so many GPUs; faults are LAB_... of tests/gpulab/README.md: lab.env(delay_ms=2)."""
    build_dir: pathlib.Path
    folder: pathlib.Path
    gpus: int = 1
    strict: bool = True

    def env(self, **faults):
        files = libraries(self.build_dir)
        told = {"gpus": self.gpus, "strict": int(self.strict)} | faults
        return {"LD_PRELOAD": " ".join(map(str, files)), "LD_LIBRARY_PATH": str(files[0].parent), "CUBLAS_WORKSPACE_CONFIG": ":4096:8",
                **{f"LAB_{name.upper()}": str(value) for name, value in told.items()}}

    def run(self, world, *words, env=None, check=True):
        """Runs all ranks, as torchrun would tell them, to their ends -> their exit statuses and what each has said."""
        job = {"WORLD_SIZE": world, "LOCAL_WORLD_SIZE": world, "GROUP_RANK": 0, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": free_port()}
        logs = [self.folder / f"rank{rank}.txt" for rank in range(world)]
        ranks = [start_process(words, env=self.env() | job | {"RANK": rank, "LOCAL_RANK": rank} | (env or {}), cwd=self.folder,
                               stdin=subprocess.DEVNULL, stdout=open(log, "wb"), stderr=subprocess.STDOUT)
                 for rank, log in enumerate(logs)]
        end = time.monotonic() + PATIENCE
        try:
            statuses = [rank.wait(max(0.1, end - time.monotonic())) for rank in ranks]
        finally:
            for rank in ranks:
                if rank.poll() is None or members(rank):
                    end_session(rank, grace=1.0)
        texts = [log.read_text(errors="replace") for log in logs]
        if check and any(statuses):
            pytest.fail("\n".join(f"rank {i}: exit {status}\n{text[-3000:]}" for i, (status, text) in enumerate(zip(statuses, texts))))
        return statuses, texts


@pytest.fixture
def gpu_lab(build_dir, tmp_path):
    """gpu_lab(gpus=2, strict=True) -> a Lab."""
    return lambda gpus=1, **how: Lab(build_dir, tmp_path, gpus, **how)
