"""What the scheduler tests share: a lab, jobs that run at the same time in it, a quick config, and a run's folder read back."""

import concurrent.futures
import contextlib
import dataclasses
import hashlib
import inspect
import json
import os
import pathlib
import re
import signal
import sys
import time
import typing

import pytest
from conftest import OPEN_MPI, run_process
from process_kit import PENDING, executable, has_signal, shared_library, status_of, wait_for
from train_kit import metrics

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "cluster"))
import lab as lab_module  # noqa: E402

Lab, why_not = lab_module.Lab, lab_module.why_not
SOURCE = pathlib.Path(__file__).resolve().parents[2]

ENDLESS = 1_000_000  # max_steps of a run that is to be stopped, however slow who stops it is

SO_LONG = ("--set", "train.max_steps=120")  # of a run that is told to stop in its first steps, and goes on to its end

# MNIST, small batches, no evaluation: a job of a second or two
QUICK = """
run:   {name: quick}
launch: {join_timeout: 60s, timeout: 60s}
task:  {name: mnist}
data:  {root: data/mnist, batch_size: 16, workers: 0}
optim: {name: sgd, lr: 0.01, momentum: 0.9}
train: {epochs: 1, max_steps: 12, log_every: 2, eval_every: 0}
"""


def folder_of_submission(parent):
    """A folder with the quick config in it, and a space in its name."""
    folder = parent / "my work"
    folder.mkdir()
    (folder / "quick.yaml").write_text(QUICK)
    return folder


@pytest.fixture
def work(tmp_path):
    return folder_of_submission(tmp_path)


@pytest.fixture(scope="session")
def site(mpi, mpi_on_path):
    """The environment of a site that has the MPI that was linked: what its module would set."""
    if mpi is OPEN_MPI:
        return {}
    return {"PATH": mpi_on_path, "LOCKSTEP_SRUN_MPI": "pmi2"}


# ---- tests whose jobs wait more than they work ---------------------------------------------------------------

AT_ONCE = 4  # on two cores beside other workers: as many as still meet and stop within what a scheduler gives them


def at_once(play):
    """A test that runs beside the others of its file that are at_once, AT_ONCE at a time, when the first has its turn.

    play(desk, PARAMETER...) is the test, in a thread of its own; the desk is what the kit's `stories` makes for it.
    """
    asked = ["stories", "request", *list(inspect.signature(play).parameters)[1:]]

    def test(stories, request, **_):
        stories(request.node.name)
    test.__signature__ = inspect.Signature([inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY) for name in asked])
    test.__name__, test.__module__, test.__doc__, test.play = play.__name__, play.__module__, play.__doc__, play
    return test


@dataclasses.dataclass
class Desk:
    """What a test has that is played at once with others: a folder of submission of its own, and what the fixtures are."""
    lab: Lab
    work: pathlib.Path
    environment: dict
    lockstep: pathlib.Path
    reference: typing.Callable


def play_at_once(kind, lab, environment, request):
    """What a kit's fixture `stories`, of a module, yields: NAME -> waits for that test, and fails as it does."""
    lockstep, library, reference, folders = map(request.getfixturevalue, ("lockstep", "wait_at_step", "reference", "tmp_path_factory"))

    def desk(name):
        folder = folder_of_submission(folders.mktemp(name[:30]))
        program = waiting_program(folder, lockstep, library)
        return kind(lab, folder, {**environment, "LOCKSTEP_PROGRAM": str(program)}, lockstep, reference)
    chosen = [item for item in request.session.items
              if item.module is request.module and hasattr(getattr(item, "function", None), "play")]
    with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
        played = {item.name: pool.submit(item.function.play, desk(item.originalname),
                                         **(item.callspec.params if hasattr(item, "callspec") else {})) for item in chosen}
        yield lambda name: played[name].result()
        pool.shutdown(cancel_futures=True)


def processes_of(lab, word, name, nodes=None):
    """The pids, seen from outside, of the programs of that name on these nodes (all) with NAME=VALUE in their environment; VALUE
    may end in *."""
    nets = {pathlib.Path(f"/proc/{lab.node_init(node)}/ns/net").stat().st_ino for node in nodes or lab.nodes}
    found, wanted = [], word.encode()
    for folder in pathlib.Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it has ended
            if (folder / "comm").read_text() == f"{name}\n" and (folder / "ns/net").stat().st_ino in nets:
                words = (folder / "environ").read_bytes().split(b"\0")
                if any(each.startswith(wanted[:-1]) if wanted.endswith(b"*") else each == wanted for each in words):
                    found.append(int(folder.name))
    return found


def is_stopped(rank):
    return status_of(rank)["State"] in "TZX"


def has_heard(rank):
    """Does a signal to stop wait for that stopped process, or does it go on, or has it ended? mpirun lets it go on to tell it."""
    status = status_of(rank)
    stops = (signal.SIGUSR1, signal.SIGUSR2, signal.SIGTERM, signal.SIGKILL)
    return status["State"] != "T" or any(has_signal(status, number, *PENDING) for number in stops)


def waiting_program(folder, lockstep, library):
    """The program for the jobs of `folder`: rank 0 waits where wait_at() says; else it is the program alone."""
    program = folder.parent / f"{folder.name} bin" / "lockstep"
    program.parent.mkdir()
    executable(program, f"#!/bin/sh\n[ \"$1\" != train ] || [ ! -e '{folder / WAIT_AT}' ] ||\n"
                        f"  export LD_PRELOAD='{library}' TEST_WAIT_AT='{folder / WAIT_AT}'\nexec '{lockstep}' \"$@\"\n")
    return program


WAIT_AT = ".wait-at"


def wait_at(work, step):
    """When rank 0 of a run of `work` has logged that step, it waits until go_on(work)."""
    (work / WAIT_AT).write_text(f"{step}\n")


def is_waiting(work):
    return steps_logged(work) >= int((work / WAIT_AT).read_text())


def go_on(work):
    (work / WAIT_AT).unlink(missing_ok=True)


@pytest.fixture(scope="session")
def wait_at_step(tmp_path_factory):
    """What waiting_program preloads."""
    return shared_library(tmp_path_factory.mktemp("wait"), "wait_at_step.so", SOURCE / "tests/e2e/peers/wait_at_step.c")


@contextlib.contextmanager
def held(lab, word, work):
    """Stops the ranks with that word in their environment meanwhile: what comes to them then, they know before their next step.
    Afterwards they go on, where wait_at(work, step) said that they wait, too."""
    ranks = processes_of(lab, word, "lockstep")
    assert ranks, f"no rank has {word}: its run has ended"
    for rank in ranks:
        os.kill(rank, signal.SIGSTOP)
    try:
        wait_for(lambda: all(map(is_stopped, ranks)), what="the ranks to stop")
        yield ranks
    finally:
        go_on(work)
        for rank in ranks:
            with contextlib.suppress(ProcessLookupError):
                os.kill(rank, signal.SIGCONT)


def told(lab, word, command, work):
    """A command about a job, whose ranks do no more steps before one of them has heard of it."""
    with held(lab, word, work) as ranks:
        lab.run(*command)
        wait_for(lambda: any(map(has_heard, ranks)), what="a rank to hear of it")


def has_to_stop_now(lab, word, work, log, limit, lead):
    """Holds the ranks of a job of that limit, whose rank 0 waits at a step (wait_at), until it has to stop, that lead before its
    end. On a busy machine it may have had to before it came to that step."""
    def is_over():
        return log.exists() and "stopped early" in log.read_text()
    wait_for(lambda: is_waiting(work) or is_over(), what="its step, or its end")
    if is_over():
        go_on(work)
        return
    with held(lab, word, work):
        # of a job that began late there is less left than the lead
        late = re.search(r"the job ends in (\d+) s.* so the run will stop", log.read_text())
        time.sleep(int(late[1]) / 2 + 1 if late else limit - lead + 1)


@pytest.fixture(scope="session")
def reference(lockstep, mpiexec, once):
    """reference(world, backend, SET...): digests of the same training without a scheduler, made once for all workers."""
    def train(world, backend, *sets):
        def make(folder):
            (folder / "quick.yaml").write_text(QUICK)
            run_process([mpiexec, "-n", world, lockstep, "train", "quick.yaml", "--set", f"launch.backend={backend}", *sets],
                        cwd=folder, env={"LOCKSTEP_HOME": str(SOURCE)}, check=True)
            (folder / "digests").write_text(json.dumps(digests(lockstep, last_checkpoint(runs(folder)[0]), run_process)))
        key = hashlib.sha256(repr((world, backend, sets)).encode()).hexdigest()[:16]
        return json.loads((once(f"reference-{key}", make) / "digests").read_text())
    return train


def start_lab(folder, scheduler, **how):
    reason = why_not(scheduler)
    if reason:
        pytest.skip(reason)
    return Lab(folder, scheduler, **how).start()


def runs(work):
    """The run folders under work/runs, oldest first."""
    return sorted((p for p in (work / "runs").iterdir() if p.is_dir() and p.name != ".jobs"), key=lambda p: p.stat().st_ctime)


def steps_logged(work):
    """How many steps the first run of `work` has logged so far."""
    try:
        return max((m["step"] for m in metrics(runs(work)[0]) if m["event"] == "step"), default=0)
    except (FileNotFoundError, IndexError, ValueError):
        return 0


def first_steps(work, steps=6):
    wait_for(lambda: steps_logged(work) >= steps, what=f"step {steps}")


def digests(program, checkpoint, run_process):
    """name -> digest of a checkpoint's model tensors."""
    done = run_process([program, "inspect", checkpoint, "--json"], check=True)
    entries = json.loads(done.stdout)["entries"]
    model = {e["name"]: e["digest"] for e in entries if e["name"].startswith("model.")}
    assert model
    return model


def last_checkpoint(run):
    return max((run / "checkpoints").glob("step-*.pt"))
