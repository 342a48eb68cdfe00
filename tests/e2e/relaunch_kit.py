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
from process_kit import wait_for

RANKS = 4
EVERY = 20  # steps between checkpoints
PLACES = {"carrier": 0, "first rank": 1, "rank": -1}  # among a node's processes


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
        wait_for(has_grown, what="the ranks to be started again")
        return time.monotonic() - self.at


def ranks_on(lab, node, job):
    """The pids, seen from outside, of the job's ranks on that node, carriers among them."""
    net = pathlib.Path(f"/proc/{lab.node_init(node)}/ns/net").stat().st_ino
    found = []
    name = "SLURM_JOB_ID" if lab.scheduler == "slurm" else "PBS_JOBID"
    for pid in processes_of(lab, f"{name}={job}", "lockstep"):
        with contextlib.suppress(OSError):
            if pathlib.Path(f"/proc/{pid}/ns/net").stat().st_ino == net:
                found.append(pid)
    return sorted(found)


def break_run(lab, work, job, how, node, step):
    """Waits for that step, then kills the first or the last rank of that node, what carries them, or the node, or pulls its cable."""
    def logged():
        with contextlib.suppress(OSError, IndexError, ValueError):
            return max(m["step"] for m in metrics(runs(work)[0]) if m["event"] == "step")
        return 0
    wait_for(lambda: logged() >= step, what=f"step {step}")
    if how in PLACES:
        os.kill(ranks_on(lab, node, job)[PLACES[how]], signal.SIGKILL)
    elif how == "node":
        lab.kill_node(node)
    else:
        lab.cut_node(node)
    go_on(work)
    run = runs(work)[0]
    at, attempt = time.monotonic(), json.loads((run / "status.json").read_text())["attempt"]
    return Broken(run, at, logged(), attempt)


def repair(lab, node, how):
    """The node as it was, and known to its scheduler."""
    if how == "cut":
        lab.run("ip", "link", "set", f"to-{node}", "master", "lan")
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


def logged_once(run, steps):
    """Every step is in the metrics once, in order: what a lost attempt logged beyond its checkpoint is gone."""
    return [m["step"] for m in metrics(run) if m["event"] == "step"] == list(range(1, steps + 1))

