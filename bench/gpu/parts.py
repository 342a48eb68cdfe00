"""The parts that the kit runs, in order. A part adds its results to `found`, and raises Wrong if they are wrong."""

import dataclasses
import re
import sys
import types

import jobs
import launch
import measure
import modes
import place
import show
import step_time
import targets
import trained
import trouble
import verdict
from running import Wrong


@dataclasses.dataclass
class Row:
    name: str
    what: str
    seconds: int     # at most
    work: object     # work(part, found)
    needs: tuple = ("a device",)


def doctor(part, found):
    said = part.run([part.here.program, "doctor", "--device", part.here.kind])
    found["checks"] = f"{len(re.findall(r'^ *ok', said, re.M))} ok, {len(re.findall(r'^ *warning', said, re.M))} warnings"


def tests(part, binary, names, least, world=1):
    """gtests that are to run, and not to be skipped."""
    said = part.run([part.here.program.parent / binary, f"--gtest_filter={names}"], ranks=trained.ranks(world, part.here) if world > 1 else None,
                    LOCKSTEP_TEST_GPU="1")
    passed = re.search(r"\[  PASSED  \] (\d+) test", said)
    if not passed or int(passed[1]) < least or "[  SKIPPED ]" in said:
        raise Wrong(f"{binary} {names}: tests are missing or were skipped")
    return f"{passed[1]} passed"


def plugin(part, found):
    found["loaded first, and rejected if too late"] = tests(part, "test_comm", "CudaPlugin.*", 2)


def nccl(part, found, world=1):
    peer = [part.here.program.parent / "comm_peer", part.here.backend, 60_000, 20_000, 100]
    said = part.run(peer, ranks=trained.ranks(world, part.here))
    if len(re.findall(r"^done \d", said, re.M)) != world:
        raise Wrong("a rank did not finish its sums")
    found["sums"] = f"101 of 1000 floats, {world} rank{'s' * (world > 1)}: right"


def gpu_tests(part, found):
    found["data parallel"] = tests(part, "test_parallel", "DataParallelOnGpus.*", 1)
    found["SyncBatchNorm"] = tests(part, "test_parallel_ranks", "SyncNormOnAGpu.*", 1)
    if len(part.here.gpus) > 1:
        found["one rank, two GPUs"] = tests(part, "test_parallel_ranks", "DdpOnGpus.*", 1)


def two_ranks(part, found):
    nccl(part, found, world=2)
    if part.here.device == "cuda":
        found["SyncBatchNorm"] = tests(part, "test_parallel_ranks", "SyncNormOnAGpu.*", 1, world=2)
        found["stages"] = tests(part, "test_parallel_ranks", "StageLineOnGpus.*", 1, world=2)
    found |= trained.compared(part, trained.ours(part, "ours", "data.batch_size=128", world=2),
                              trained.theirs(part, "python", batch=128, world=2), trained.CLOSE["fp32"])


def against_python(part, found, precision, layout="nchw"):
    """With the same bits each time on both sides: without, cuDNN's sums are in another order each time, in fp32 at least."""
    sets = ("data.batch_size=256", f"train.precision={precision}", f"train.layout={layout}", "train.deterministic=true")
    words = trained.compared(part, trained.ours(part, f"ours-{precision}-{layout}", *sets),
                             trained.theirs(part, f"python-{precision}-{layout}", precision, layout == "channels_last", deterministic=True),
                             trained.CLOSE[precision])
    found |= {f"{precision} {layout}, {what}": how for what, how in words.items()}


def parity(part, found):
    against_python(part, found, "fp32")
    against_python(part, found, "fp32", "channels_last")
    against_python(part, found, "bf16")


def gpu_step(part, found):
    """The shipped config of the GPU's step, against Python with the same choices."""
    taken = step_time.choices(part.here.program)
    words = trained.compared(part, trained.ours(part, "ours", "data.batch_size=256", config=step_time.CONFIG.stem, steps=60),
                             trained.theirs(part, "python", taken["precision"], taken["layout"] == "channels_last", steps=60), 0.05)
    found |= {f"{taken['precision']} {taken['layout']}, {what}": how for what, how in words.items()}


def fp16(part, found):
    against_python(part, found, "fp16")
    if not any(what.endswith("loss scale") for what in found):
        raise Wrong("the checkpoint has no loss scale")


def pinned(part, found):
    """Without train.deterministic cuDNN's sums are in another order each time."""
    how = ("data.batch_size=256", "data.workers=2", "train.deterministic=true")
    pin = trained.ours(part, "pinned", *how, "data.pin_memory=true", steps=100)
    plain = trained.ours(part, "pageable", *how, "data.pin_memory=false", steps=100)
    found |= trained.compared(part, pin, plain, 0)


def resume(part, found):
    """Dropout draws from the device's generator: other draws would be other losses."""
    how = dict(config="mnist_bert_layer")
    sets = ("parallel.tensor=1", "parallel.sequence=false")
    whole = trained.ours(part, "whole", *sets, steps=40, **how)
    trained.ours(part, "parts", *sets, steps=20, **how)
    rest = trained.ours(part, "parts", *sets, steps=40, words=("--resume", "auto"), **how)
    found |= trained.compared(part, rest, whole, 1e-3)
    generators = trained.asked(part, rest.saved)
    wanted = ["cpu", "cuda"] if part.here.device == "cuda" else ["cpu"]
    if generators["devices"] != wanted or not generators["taken"]:
        raise Wrong(f"the checkpoint has generators of {', '.join(generators['devices'])}, not of {', '.join(wanted)}; "
                    f"Python {'restores' if generators['taken'] else 'does not restore'} them")
    if generators["states"] != trained.asked(part, whole.saved)["states"]:
        raise Wrong("the generators differ from those of a run without a stop")
    if part.here.device == "cuda":
        how = dict(config=step_time.CONFIG.stem)
        whole = trained.ours(part, "graph", "train.deterministic=true", steps=60, **how)
        trained.ours(part, "graph-parts", "train.deterministic=true", steps=30, **how)
        rest = trained.ours(part, "graph-parts", "train.deterministic=true", steps=60, words=("--resume", "auto"), **how)
        found |= {f"the GPU's own step, {what}": how for what, how in trained.compared(part, rest, whole, 1e-2).items()}
    found["generators"] = f"of {' and '.join(wanted)}: as without a stop, and Python's take them"


def sanitizer(part, found):
    sets = ("train.max_steps=3", "data.batch_size=16", "train.eval_every=0", "run.name=run", "launch.device=cuda", "data.workers=0")
    # libtorch asks for kernels that it may not have, which CUDA calls an error
    said = part.run([part.here.sanitizer, "--tool", "memcheck", "--report-api-errors", "no", "--error-exitcode", 9, part.here.program, "train",
                     launch.ROOT / "configs/mnist.yaml", *(word for setting in sets for word in ("--set", setting))],
                    PYTORCH_NO_CUDA_MEMORY_CACHING="1")  # or one block of the cache would hide what lies beside a tensor
    summary = re.search(r"ERROR SUMMARY: (\d+) error", said)
    if not summary or summary[1] != "0":
        raise Wrong(summary[0] if summary else "compute-sanitizer printed no summary")
    found["memcheck"] = "0 errors in 3 steps of mnist.yaml"


def speed(part, found):
    """P10, by what bench/compare has for it."""
    rows = [target for target in targets.TARGETS if target.name == "P10"]
    if part.here.device == "cpu":
        jobs.JOBS.update(step_time.jobs("cpu", steps=4, every=1))
    there = place.Place(part.here.program, sys.executable, "", trained.PEER.parent, part.folder)
    names = list(dict.fromkeys(job for target in rows for job in target.jobs))
    results = measure.rounds(names, there, types.SimpleNamespace(rounds=3 if part.here.device == "cuda" else 1), measure.Clock(part.left() - 5, part.here.seconds(120)),
                             lambda text: (part.log.write(f"{text}\n".encode()), part.log.flush()))
    shown = verdict.rows(rows, results, there)
    found["config"] = step_time.CONFIG.name
    found |= {figure.partition(".")[0]: show.figures(verdict.summary(values), "us") for figure, values in results.figures.items()}
    found["table"] = show.table([show.HEAD, *map(show.cells, shown)])
    part.log.write(f"{found['table']}\n".encode())
    if results.failed or results.late:
        raise Wrong("; ".join(f"{job}: {why}" for job, why in (results.failed | results.late).items()))


GPU = ("a GPU",)
ROWS = [
    Row("doctor", "lockstep doctor on the GPU", 60, doctor),
    Row("plugin", "the CUDA plug-in: loaded first, and rejected if loaded too late", 60, plugin, GPU),
    Row("nccl", "sums over NCCL, one rank", 60, nccl),
    Row("tests", "the tests that need a GPU", 60, gpu_tests, GPU),
    Row("parity", "20 steps against Python's DDP: fp32, channels_last, bf16", 120, parity),
    Row("fp16", "20 steps in fp16 with GradScaler against Python's", 60, fp16, GPU),
    Row("step", "60 steps of the GPU's own step against Python's DDP", 60, gpu_step),
    Row("speed", "P10: microseconds of a step, and of Python's eager and compiled", 200, speed),
    Row("two", "NCCL, DDP, SyncBatchNorm and stages at two ranks", 90, two_ranks),
    Row("modes", "every training mode, on the GPU and on the CPU", 150, modes.one, GPU),
    Row("modes2", "the same at two and four ranks", 240, modes.two, GPU),
    Row("trouble", "a rank that is killed, stopped, or skips a collective", 200, trouble.ends),
    Row("pinned", "100 steps from page-locked memory, and from pageable", 60, pinned),
    Row("resume", "dropout from the device's generator, with and without a stop", 90, resume),
    Row("sanitizer", "compute-sanitizer memcheck over 3 steps", 120, sanitizer, ("a GPU", "a sanitizer")),
]


NEEDS = {
    "a GPU": lambda here: "" if here.device == "cuda" else "no GPU",
    "a device": lambda here: "no GPU" if here.device == "none" else "",
    "a sanitizer": lambda here: "" if here.sanitizer else "compute-sanitizer is not installed",
}


def missing(row, here):
    return next((why for need in row.needs if (why := NEEDS[need](here))), "")
