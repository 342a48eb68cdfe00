"""What the tests of runs that survive their nodes share: labs of three nodes, a run of four ranks, and ways to break it."""

import contextlib
import dataclasses
import json
import os
import pathlib
import signal
import time

from cluster_kit import digests, go_on, last_checkpoint, metrics, processes_of, runs
from conftest import run_process
from process_kit import fill, wait_for

RANKS = 4
EVERY = 20  # steps between checkpoints
LIMIT = 300  # seconds
PLACES = {"carrier": 0, "first rank": 1, "rank": -1}  # among a node's processes
STOPS = {"stop": -1, "pause": -1, "suspend": 0}  # the first of them that is stopped


def sets(steps=200, as_world=RANKS):
    return ("--set", f"train.max_steps={steps}", "--set", f"checkpoint.every_steps={EVERY}", "--set", "train.log_every=1",
            "--set", f"train.as_world={as_world}")


@dataclasses.dataclass
class Broken:
    """A run, from the moment at which something of it was broken."""
    run: pathlib.Path
    at: float
    step: int      # it had logged
    attempt: int

    def seconds_to_next_step(self):
        """Until the next attempt has logged one. Its file is first cut to what the checkpoint knows."""
        least = None

        def has_grown():
            nonlocal least
            if json.loads((self.run / "status.json").read_text())["attempt"] == self.attempt:
                return False
            size = (self.run / "metrics.jsonl").stat().st_size
            grown = least is not None and size > least
            least = size if least is None else min(size, least)
            return grown
        wait_for(has_grown, LIMIT, "the ranks to be started again")
        return time.monotonic() - self.at


def ranks_on(lab, node, job):
    """The pids, seen from outside, of the job's ranks on that node, carriers among them."""
    name = "SLURM_JOB_ID" if lab.scheduler == "slurm" else "PBS_JOBID"
    return sorted(processes_of(lab, f"{name}={job}", "lockstep", [node]))


def break_run(lab, work, job, how, node, step, lasts=0.0, before=lambda: None):
    """Waits for that step, then breaks something: of that node its first or last rank, what carries them, all of it, or its
    network; or the disk of the run. It stops a rank (stop, pause), or those of all these nodes (suspend). A pause, a
    suspension, an interruption and a disk that is full for a while last that many seconds. It calls `before` when only that is left."""
    def logged():
        with contextlib.suppress(OSError, IndexError, ValueError):
            return max(logged_steps(runs(work)[0]))
        return 0
    wait_for(lambda: logged() >= step, LIMIT, f"step {step}")
    run = runs(work)[0]
    attempt = json.loads((run / "status.json").read_text())["attempt"]
    def ranks():
        return [pid for each in (node if how == "suspend" else [node]) for pid in ranks_on(lab, each, job)]
    if how in (*PLACES, *STOPS):
        wait_for(lambda: len(ranks()) > 1, LIMIT, f"the ranks on {node}")
    before()
    if how in PLACES:
        os.kill(ranks()[PLACES[how]], signal.SIGKILL)
    elif how in STOPS:
        stopped = ranks()[STOPS[how]:]
        signal_all(stopped, signal.SIGSTOP)
    elif how == "node":
        lab.kill_node(node)
    elif how.startswith("full"):
        fill(work / "runs")
    else:
        lab.cut_node(node)
    go_on(work)
    at = time.monotonic()
    time.sleep(lasts)
    if how in ("pause", "suspend"):
        signal_all(stopped, signal.SIGCONT)
    elif how == "interrupt":
        plug_in(lab, node)
    elif how == "full for a while":
        make_room(work)
    return Broken(run, at, logged(), attempt)


def signal_all(pids, number):
    for pid in pids:
        os.kill(pid, number)


def make_room(work):
    (work / "runs/more").unlink()


def plug_in(lab, node):
    lab.run("ip", "link", "set", f"to-{node}", "master", "lan")


def repair(lab, node, how):
    """The node as it was, and known to its scheduler."""
    if how == "cut":
        plug_in(lab, node)
    elif how == "node":
        if lab.scheduler == "pbs":
            (lab.folder / f"mom.{node}").unlink(missing_ok=True)
        lab.boot_node(node)
    if lab.scheduler == "pbs":
        wait_for(lambda: (lab.folder / f"mom.{node}").exists(), what=f"{node} to come back")
    else:
        everywhere = ("sbatch", "--wait", f"--nodes={len(lab.nodes)}", "--output=/dev/null", "--wrap=srun true")
        wait_for(lambda: lab.run(*everywhere, check=False).returncode == 0, what=f"{node} to come back")


def same_bits(lockstep, run, reference, *words):
    return digests(lockstep, last_checkpoint(run), run_process) == reference(RANKS, "gloo", *words)


def logged_steps(run):
    return [m["step"] for m in metrics(run) if m["event"] == "step"]


def logged_once(run, steps):
    """Every step is in the metrics once, in order: what a lost attempt logged beyond its checkpoint is gone."""
    return logged_steps(run) == list(range(1, steps + 1))
