"""Campaigns of faults: ranks, nodes, networks and disks fail at random moments, over Slurm and over the stand-in for PBS. Every
run has to end with the bits of one that was never broken. With --record, each campaign adds a row to docs/track-record.jsonl.

    python3 -m pytest -m full tests/e2e/test_relaunch_campaign.py -k slurm --seed N --minutes 0    repeats the run of seed N
"""

import collections
import contextlib
import datetime
import json
import random
import re
import shutil
import statistics
import time
import traceback

import pytest
from cluster_kit import SOURCE, folder_of_submission, start_lab
from cluster_kit import reference, site  # noqa: F401  (fixtures)
from conftest import run_process
from pbs_kit import DDP as DDP_PBS, ended, log_of as pbs_log, submitted
from process_kit import small_disk
from relaunch_kit import EVERY, LIMIT, PLACES, break_run, logged_steps, make_room, repair, same_bits, sets
from slurm_kit import DDP, log_of
from slurm_kit import environment  # noqa: F401  (a fixture)

pytestmark = pytest.mark.about("job_scripts")

RECORD = SOURCE / "docs/track-record.jsonl"
STEPS = 400
TIMEOUT = 10  # seconds that a collective may take
REST = 100  # steps that have no fault: it would come after the end
DISK = 1 << 25  # bytes
SECONDS = 60  # from a fault to the next step: the limit of the median, on a machine that is busy
WORDS = (*sets(STEPS), "--set", f"launch.timeout={TIMEOUT}s", "--set", "data.batch_size=2")
LASTING = {"pause": (0.6, 3), "suspend": (TIMEOUT + 1, TIMEOUT + 3), "interrupt": (0.4, 2), "full for a while": (0.2, 1)}  # seconds
LOSES_NODE = {"node", "cut"}
RESTARTS = {*PLACES, *LOSES_NODE, "stop"}
FAULTS = {"rank killed": list(PLACES), "rank stopped": ["stop"], "rank paused": ["pause"], "job suspended": ["suspend"],
          "node killed": ["node"], "node cut off": ["cut"], "network interrupted": ["interrupt"],
          "disk full for a while": ["full for a while"], "disk full to the end": ["full to the end"]}

COMMIT_OF_TESTS = "git diff --quiet HEAD -- tests job_scripts || dirty=-dirty; echo $(git rev-parse --short=12 HEAD || echo unknown)$dirty"


def slurm_job(lab, work, environment):  # noqa: F811
    job = lab.submit("--nodes=3", "--ntasks-per-node=1", DDP, "quick.yaml", *WORDS, cwd=work, env=environment)
    return job, lambda: lab.wait(job, within=LIMIT)["ExitCode"] == "0:0", lambda: log_of(work, job)


def pbs_job(lab, work, environment):  # noqa: F811
    variables = {**environment, "CONFIG": "quick.yaml", "SET": " ".join(WORDS[1::2])}
    job = submitted(lab, work, variables, "-k", "oed", "-l", "select=3:ncpus=1:mpiprocs=1", "-l", "place=scatter", script=DDP_PBS)
    return job, lambda: ended(lab, job, LIMIT) == 0, lambda: pbs_log(work, job)


def relaunches(log):
    """Of each, whether it lost no node, the number of its nodes, and the step of its checkpoint."""
    return [(bool(same), int(nodes), int(step or 0)) for same, nodes, step in re.findall(
        r"; continuing with (the same )?(\d+) nodes? (?:after step (\d+)|from the first step) \(relaunch ", log)]


def plan(seed):
    """The faults of a run: their names, and how, where, how many steps after the one before, and for how many seconds."""
    chance, nodes, faults = random.Random(seed), ["n1", "n2", "n3"], []
    for number in range(chance.randint(1, 6)):
        is_whole = len(nodes) == 3  # not every Slurm lets a job release nodes twice, and a job ends with its first node
        name = chance.choice([name for name, hows in FAULTS.items() if is_whole or not LOSES_NODE & {*hows}])
        how = chance.choice(FAULTS[name])
        node = chance.choice(nodes[1:] if how in LOSES_NODE else nodes)
        lasts = chance.uniform(*LASTING.get(how, (0, 0)))
        faults.append((name, how, tuple(nodes) if how == "suspend" else node, chance.randint(1, 30) + EVERY * bool(number), lasts))
        if how in LOSES_NODE:
            nodes.remove(node)
        if how == "full to the end":
            break
    return faults


class Campaign:
    def __init__(self, scheduler, submit, folder, lockstep, environment, reference):  # noqa: F811
        self.scheduler, self.submit, self.folder, self.lockstep = scheduler, submit, folder, lockstep
        self.environment, self.reference = {**environment, "LOCKSTEP_MAX_RELAUNCHES": "20"}, reference
        self.faults, self.survived, self.seconds = collections.Counter(), collections.Counter(), collections.defaultdict(list)
        self.runs, self.failures, self.lab, self.begun_with = 0, [], None, self.versions()

    def run(self, seed):
        """A run with the faults of this seed; what goes wrong is in `failures`, and its folder stays."""
        self.lab = self.lab or start_lab(self.folder / f"lab{seed}", self.scheduler, nodes=3, slurmd_timeout=300)
        (self.folder / f"{seed}").mkdir()
        work, injected = folder_of_submission(self.folder / f"{seed}"), []
        (self.folder / f"disk/{seed}").mkdir()
        (work / "runs").symlink_to(self.folder / f"disk/{seed}")
        try:
            self.break_and_compare(work, plan(seed), injected)
        except (Exception, pytest.fail.Exception) as error:
            self.count(injected, injected[:-1])
            what = f"{type(error).__name__}: {error}".splitlines()[0]
            self.failures.append({"seed": seed, "fault": injected[-1] if injected else "none", "what": what, "fixed": ""})
            (work / "error.txt").write_text(traceback.format_exc())
            self.lab.stop()  # nothing writes to the run any more
            self.lab = None
            shutil.copytree(self.folder / f"disk/{seed}", work.parent / "run", ignore=shutil.ignore_patterns("more"))
        else:
            self.count(injected, injected)
            shutil.rmtree(work.parent)
        shutil.rmtree(self.folder / f"disk/{seed}")

    def count(self, injected, survived):
        self.runs += 1
        self.faults.update(injected)
        self.survived.update(survived)

    def break_and_compare(self, work, faults, injected):
        job, succeeds, log = self.submit(self.lab, work, self.environment)
        step, nodes, expected = 0, 3, []

        def check_relaunches():
            found = relaunches(log())
            assert [each[:2] for each in found] == [each[:2] for each in expected], f"relaunches (same nodes?, nodes): {found}"
            # the newest checkpoint may still be written, or have failed on a full disk
            assert all(at - saved <= 2 * EVERY for (*_, saved), (*_, at) in zip(found, expected)), f"too many steps repeated: {found}"
        for name, how, node, gap, lasts in faults:
            if step + gap > STEPS - REST:
                break
            broken = break_run(self.lab, work, job, how, node, step + gap, lasts, lambda: (check_relaunches(), injected.append(name)))
            step = broken.step
            if how in RESTARTS:
                nodes -= how in LOSES_NODE
                expected.append((how not in LOSES_NODE, nodes, step))
                self.seconds[name].append(broken.seconds_to_next_step())
        good = succeeds()
        check_relaunches()
        for _, how, node, *_ in faults[:len(injected)]:
            if how in LOSES_NODE:
                repair(self.lab, node, how)
        if injected[-1] == "disk full to the end":
            assert not good and "No space left on device" in log(), "a full disk is not reported"
            make_room(work)
            _, succeeds, log = self.submit(self.lab, work, self.environment)
            good = succeeds()
        assert not list(work.glob(".lockstep-run*")), "the job left a file"
        assert good, "the job failed: " + next((line for line in log().splitlines() if "error: " in line), log()[-200:])
        steps = logged_steps(broken.run)
        full = any(name.startswith("disk") for name in injected)  # what cannot be written is not in the metrics
        assert steps == (sorted({*steps}) if full else list(range(1, STEPS + 1))), "the metrics lack steps, or have some twice"
        assert same_bits(self.lockstep, broken.run, self.reference, *WORDS), "the parameters differ"

    def versions(self):
        """Of the program and of the tests, and when the program was built."""
        told = run_process([self.lockstep, "--version"], check=True).stdout
        tests = run_process(["sh", "-c", COMMIT_OF_TESTS], cwd=SOURCE, check=True).stdout.strip()
        return (*re.search(r"^lockstep +(\S+)\ncommit +(\S+)", told).groups(), tests, self.lockstep.stat().st_mtime)

    def row(self, seed):
        assert self.versions() == self.begun_with, "the program or the tests changed during the campaign: it is not recorded"
        version, commit, tests, _ = self.begun_with
        return {"date": f"{datetime.date.today()}", "version": version, "commit": commit, "tests": tests, "scheduler": self.scheduler,
                "seed": seed, "runs": self.runs, "faults": {name: [self.faults[name], self.survived[name]] for name in FAULTS},
                "seconds": {name: round(statistics.median(times), 1) for name, times in self.seconds.items()},
                "failures": self.failures}


def add_row(row, is_recorded, capsys):
    if is_recorded:
        with RECORD.open("a") as record:
            record.write(json.dumps(row) + "\n")
    with capsys.disabled():
        print(f"\n{json.dumps(row)}")


@pytest.mark.parametrize("scheduler, submit", [("slurm", slurm_job), ("pbs", pbs_job)])
@pytest.mark.full
@pytest.mark.alone  # it measures time
def test_every_broken_run_ends_with_the_bits_of_an_unbroken_one(scheduler, submit, tmp_path, environment, lockstep,  # noqa: F811
                                                                reference, request, capsys):  # noqa: F811
    seed, end = request.config.getoption("--seed"), time.monotonic() + 60 * request.config.getoption("--minutes")
    with capsys.disabled():
        print(f"\n{scheduler}: the first seed is {seed}", flush=True)
    reference(4, "gloo", *WORDS)
    with small_disk(tmp_path / "disk", DISK), contextlib.ExitStack() as stack:
        campaign = Campaign(scheduler, submit, tmp_path, lockstep, environment, reference)
        stack.callback(lambda: add_row(campaign.row(seed), request.config.getoption("--record"), capsys) if campaign.runs else None)
        stack.callback(lambda: campaign.lab.stop() if campaign.lab else None)
        while campaign.runs == 0 or time.monotonic() < end:
            campaign.run(seed + campaign.runs)
    assert not campaign.failures
    assert all(statistics.median(times) <= SECONDS for times in campaign.seconds.values()), campaign.seconds
