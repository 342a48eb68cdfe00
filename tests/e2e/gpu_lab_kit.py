"""Pretended GPUs for tests (tests/gpulab): the environment that has them, and programs that run in it, a rank each."""

import dataclasses
import pathlib
import subprocess
import sys
import time

import pytest
from conftest import SOURCE, cache_value, end_session, free_port, members, start_process
from process_kit import PATIENCE, wait_for

sys.path[:0] = [str(SOURCE / folder) for folder in ("bench/gpu", "bench/comparison")]

# A network without a way out, for nodes to meet in: it lives as long as its process, and its address is no loopback's.
NETWORK = """ip link set lo up && ip link add lab0 type veth peer name lab1 && ip addr add 10.98.0.1/24 dev lab0 || exit 77
ip link set lab1 up && ip link set lab0 up && exec sleep infinity"""
ADDRESS = {"MASTER_ADDR": "10.98.0.1", "GLOO_SOCKET_IFNAME": "lab0"}

# A program on a node of its own: another host name.
ON_NODE = 'hostname "$0" && exec "$@"'


def libraries(build_dir):
    """What is preloaded, the driver first; skips where the build has none."""
    if cache_value(build_dir, "LOCKSTEP_GPULAB") != "ON":
        pytest.skip("this build has no pretended GPUs: they need the CUDA half, for CUDA 13")
    folder = build_dir / "gpulab"
    found = [folder / "libcuda.so.1", *folder.glob("libcudart.so.*"), folder / "libnccl.so.2"]
    assert len(found) == 3 and all(file.exists() for file in found), f"{folder} is not built: ninja -C {build_dir} gpulab"
    return found


def interfaces(namespace):
    return subprocess.run(["nsenter", f"--net={namespace}", "ip", "-br", "addr", "show", "dev", "lab0"], capture_output=True, text=True).stdout


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
    nodes: int = 1
    strict: bool = True
    started: list = dataclasses.field(default_factory=list)
    holder: list = dataclasses.field(default_factory=list)

    def env(self, **faults):
        files = libraries(self.build_dir)
        told = {"gpus": self.gpus, "strict": int(self.strict)} | faults
        return {"LD_PRELOAD": " ".join(map(str, files)), "LD_LIBRARY_PATH": str(files[0].parent), "CUBLAS_WORKSPACE_CONFIG": ":4096:8",
                **{f"LAB_{name.upper()}": str(value) for name, value in told.items()}}

    def network(self):
        """The path of the namespace in which the nodes are; skips where none can be made."""
        if not self.holder:
            self.holder.append(start_process(["unshare", "--net", "sh", "-c", NETWORK], stdin=subprocess.DEVNULL))
            path = f"/proc/{self.holder[0].pid}/ns/net"
            wait_for(lambda: self.holder[0].poll() is not None or " UP " in interfaces(path))
        if self.holder[0].poll() is not None:
            pytest.skip("no network namespaces here")
        return f"/proc/{self.holder[0].pid}/ns/net"

    def start(self, world, *words, env=None, each=None, cwd=None, name="rank"):
        """A process a rank, as torchrun would tell them, spread evenly over the nodes; `each` is a rank's own environment."""
        share = world // self.nodes
        port = free_port()
        ranks = []
        for rank in range(world):
            own = {"RANK": rank, "WORLD_SIZE": world, "LOCAL_RANK": rank % share, "LOCAL_WORLD_SIZE": share, "GROUP_RANK": rank // share,
                   "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
            apart = []
            if self.nodes > 1:
                own |= ADDRESS
                apart = ["nsenter", f"--net={self.network()}", "unshare", "--uts", "sh", "-c", ON_NODE, f"labnode{rank // share}"]
            log = self.folder / f"{name}{rank}.txt"
            told = self.env() | own | (env or {}) | (each[rank] if each else {})
            process = start_process([*apart, *words], env=told, cwd=cwd or self.folder,
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
    """gpu_lab(gpus=2, nodes=1, strict=True) -> a Lab."""
    labs = []

    def make(gpus=1, **how):
        labs.append(Lab(build_dir, tmp_path, gpus, **how))
        return labs[-1]
    yield make
    for lab in labs:
        lab.end()
        for process in lab.holder:
            end_session(process)
