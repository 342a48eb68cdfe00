"""What is wanted of which ratio. A figure is named JOB.WHAT; its job is run when a wanted target needs it."""

import dataclasses

SPEED, TIME, MEMORY, CALLS = "samples/s", "s", "MB", "calls"


@dataclasses.dataclass
class Target:
    name: str
    what: str
    peer: str              # a figure, or "" where the target is a number and not a ratio
    ours: str
    firm: float | None     # None: shown beside the others, nothing is promised
    stretch: float | None
    unit: str = SPEED
    at_most: bool = False  # else at least
    speedup: bool = False  # of times: peer / ours
    share: int = 1         # ours / (share * peer): of so many ranks
    quick: bool = True     # --quick has it too
    only: bool = False     # it takes long: where --only names it
    needs: tuple = ()      # what must hold here, names of requirements.py
    limit: str = ""        # a figure in the place of ours that nothing here can pass: below `firm` the target does not apply

    @property
    def jobs(self):
        return [figure.partition(".")[0] for figure in (self.peer, self.ours) if figure]

    def ratio(self, peer, ours):
        if not self.peer:
            return ours
        return peer / ours if self.speedup else ours / (self.share * peer)

    def reached(self, ratio, wanted):
        return ratio <= wanted if self.at_most else ratio >= wanted


MB, TIMES, MICROSECONDS = dict(unit=MEMORY, at_most=True), dict(unit=TIME, speedup=True), dict(unit="us", speedup=True)
COST = dict(at_most=True, speedup=True)  # the time that ours takes of the peer's, from two speeds
SCALING = dict(share=2, needs=("two cores",), limit="cnn_beside.speed")
KERNELS, BF16, GPU, JAX, COMPILER, PYTHON = ("own kernels",), ("bf16",), ("gpu",), ("jax",), ("compiler",), ("python",)
CROWD = ("crowd", *KERNELS)
TARGETS = [
    Target("P0", "mnist.yaml as it ships", "stock.speed", "mnist.speed", 1.5, 1.8),
    Target("P0", "mnist.yaml as it ships", "memory.speed", "mnist.speed", 1.25, None),
    Target("P1", "CNN fp32, the bits of channels_last", "stock.speed", "exact.speed", 2.2, 2.8),
    Target("P1", "CNN fp32, the bits of channels_last", "tuned.speed", "exact.speed", 1.4, 1.8),
    Target("P1'", "CNN fp32, own kernels", "stock.speed", "fast.speed", 4.5, 6, needs=KERNELS),
    Target("P2", "CNN bf16, the bits of autocast", "tuned_bf16.speed", "bf16.speed", 1.5, 2, needs=BF16),
    Target("P2", "CNN bf16, own kernels", "tuned_bf16.speed", "bf16_fast.speed", 2.5, 3.5, needs=BF16 + KERNELS),
    Target("P3", "Pima MLP as it ships", "pima_stock.speed", "pima.speed", 12, 20),
    Target("P3", "Pima MLP, mpi backend", "pima_stock.speed", "pima_mpi.speed", 12, 20),
    Target("P3", "Pima MLP, without a graph", "pima_stock.speed", "pima_fast.speed", 100, None, needs=KERNELS),
    Target("P4", "all-reduce of 1.61 MiB, shared", "allreduce.gloo", "allreduce.shared", 20, None, **TIMES),
    Target("P4", "all-reduce of 1.61 MiB, shared", "allreduce.MPI_Allreduce", "allreduce.shared", 2, None, **TIMES),
    Target("P4", "all-reduce of 1.61 MiB, gradients in shared memory", "allreduce.gloo", "allreduce.shared_in_place", 70, 120, **TIMES),
    Target("P4", "all-reduce of 1.61 MiB, gradients in shared memory", "allreduce.MPI_Allreduce", "allreduce.shared_in_place", 8, 9, **TIMES),
    Target("P6", "a whole one-step job", "start_torchrun.seconds", "start.seconds", 0.17, 0.12, TIME, at_most=True),
    Target("P7", "memory of a rank in training", "stock.mb", "mnist.mb", 0.33, 0.25, **MB),
    Target("P7", "memory of a rank, the bits of channels_last", "tuned.mb", "exact.mb", None, None, **MB),
    Target("P7", "memory of a rank, own kernels", "tuned.mb", "fast.mb", None, None, **MB, needs=KERNELS),
    Target("P7", "memory of a rank, bf16", "tuned_bf16.mb", "bf16.mb", None, None, **MB, needs=BF16),
    Target("P7", "memory of a rank, Pima MLP", "pima_stock.mb", "pima.mb", None, None, **MB),
    Target("P7", "memory of a rank, Pima MLP without a graph", "pima_stock.mb", "pima_fast.mb", None, None, **MB, needs=KERNELS),
    Target("P8", "calls that name a file, to the first step", "", "calls.files", 500, 300, CALLS, at_most=True, needs=("strace",)),
    Target("P5", "DDP with one rank, CNN: its time", "cnn_single.speed", "cnn_ddp.speed", 1.01, 1.005, **COST),
    Target("P5", "DDP with one rank, MLP: its time", "mlp_single.speed", "mlp_ddp.speed", 1.01, 1.005, **COST),
    Target("P9", "weak scaling from 1 to 2 ranks", "cnn_ddp.speed", "mnist.speed", 0.95, 0.98, **SCALING),
    Target("P9", "weak scaling from 1 to 2 ranks, mpi backend", "cnn_ddp.speed", "mnist_mpi.speed", 0.95, 0.98, quick=False, **SCALING),
    Target("P9", "two jobs of one rank side by side", "cnn_ddp.speed", "cnn_beside.speed", None, None, share=2, quick=False),
    Target("P10", "a step on a GPU", "", "gpu.microseconds", 110, 60, "us", at_most=True, needs=GPU),
    Target("P10", "a step on a GPU", "gpu_eager.microseconds", "gpu.microseconds", 5, None, **MICROSECONDS, needs=GPU),
    Target("P10", "a step on a GPU", "gpu_compiled.microseconds", "gpu.microseconds", 1.5, None, **MICROSECONDS, needs=GPU),
    Target("P11", "CNN fp32, the bits of channels_last", "tuned_compiled.speed", "exact.speed", 1.15, None, quick=False, needs=COMPILER),
    Target("P11", "CNN fp32, the bits of channels_last", "jax.speed", "exact.speed", 1.15, None, quick=False, needs=JAX),
    Target("P11", "Pima MLP as it ships", "pima_compiled.speed", "pima.speed", 12, 20, quick=False, needs=COMPILER),
    Target("P11", "Pima MLP as it ships", "pima_jax.speed", "pima.speed", 2, 4, quick=False, needs=JAX),
    Target("P11", "Pima MLP, gloo", "pima_stock.speed", "pima_gloo.speed", None, None, quick=False),
    Target("P11", "Pima MLP, without a graph", "pima_jax.speed", "pima_fast.speed", 15, None, quick=False, needs=KERNELS + JAX),
    Target("P13", "Python's all-reduce of 4 KiB", "sums.gloo_4096", "sums.lockstep_4096", 20, None, **TIMES, needs=PYTHON),
    Target("P13", "Python's all-reduce of 1.61 MiB", "sums.gloo_1686568", "sums.lockstep_1686568", 10, None, **TIMES, needs=PYTHON),
    Target("P13", "Python's all-reduce of 64 MiB", "sums.gloo_67108864", "sums.lockstep_67108864", 2, None, **TIMES, needs=PYTHON),
    Target("P13", "Python's DDP, Pima MLP", "pima_stock.speed", "pima_lockstep.speed", 3, None, needs=PYTHON),
    Target("P13", "Python's DDP, CNN", "memory.speed", "memory_lockstep.speed", None, None, needs=PYTHON),
    Target("P12", "resnet18 on a folder of images", "resnet_stock.speed", "resnet.speed", 1.15, None, only=True),
    Target("P12", "resnet18, the bits of channels_last", "resnet_tuned.speed", "resnet_fast.speed", 1.15, None, only=True),
    Target("P12", "BERT-small on a file of texts, Python's batches", "text_stock.speed", "text.speed", 1.15, None, only=True),
    Target("P12", "BERT-small on a file of texts, Python's batches", "text_tuned.speed", "text.speed", 1.15, None, only=True),
    Target("P12", "BERT-small, texts of like length in a batch", "text_tuned.speed", "text_bucket.speed", None, None, only=True),
    Target("P12", "resnet18: memory of a rank", "resnet_stock.mb", "resnet.mb", None, None, **MB, only=True),
    Target("P12", "BERT-small: memory of a rank", "text_stock.mb", "text.mb", None, None, **MB, only=True),
    Target("fast", "mnist_fast.yaml as it ships", "mnist.speed", "shipped_fast.speed", 1, None, needs=KERNELS),
    Target("fast", "mnist_fast.yaml, other work on each core", "mnist_load.speed", "fast_load.speed", 1, None, quick=False, needs=KERNELS),
    Target("fast", "mnist_fast.yaml, more ranks than cores", "mnist_crowd.speed", "fast_crowd.speed", 1, None, quick=False, needs=CROWD),
]
