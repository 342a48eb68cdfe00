"""Runs the jobs in turn, round after round, within the time that there is."""

import pathlib
import tempfile
import time

import contestants
import jobs
import launch
import verify


class Results:
    """figures: {JOB.WHAT: [one a window or run]}; runs: the machine's; failed, late: {JOB: why}; wrong, right: sentences."""

    def __init__(self):
        self.figures, self.runs, self.failed, self.late = {}, [], {}, {}
        self.losses = verify.Losses(contestants.PROMISES)
        self.wrong, self.right = [], []

    def add(self, job, figures, ran):
        for what, values in figures.items():
            self.figures.setdefault(f"{job}.{what}", []).extend(values)
        self.runs.append({"job": job, "seconds": ran.seconds, "others": ran.others, "steal": ran.steal,
                          "middle": {f"{job}.{what}": sorted(values)[len(values) // 2] for what, values in figures.items()}})

    def conclude(self):
        self.losses.compare()
        self.wrong += self.losses.wrong
        self.right += self.losses.right
        if "allreduce.mpi" in self.figures:
            self.right.append("all-reduce: every sum checked by lockstep bench allreduce")


def measured(job, place, pace, folder, limit, results):
    """Runs one job once and adds what it gave."""
    if job in jobs.JOBS:
        results.add(job, *jobs.JOBS[job](place, pace, folder, limit))
        return
    who = contestants.CONTESTANTS[job]
    speeds, losses, mb, ran = contestants.train(who, place, pace, folder, limit)
    results.losses.add(job, losses)
    results.add(job, {"speed": speeds} | ({"mb": [mb]} if mb else {}), ran)


class Clock:
    """Is there time for one more? A job is begun when it would, as far as is known, end in time.

    One that takes `patience` seconds, and five times what any other one took, hangs.
    """

    def __init__(self, seconds, patience=60):
        self.end, self.patience, self.longest = time.monotonic() + seconds, patience, {}

    def left(self):
        return self.end - time.monotonic()

    def fits(self, job):
        return self.left() > self.longest.get(job, 5)

    def hangs(self):
        """After how many seconds it does."""
        return max([self.patience, *(5 * seconds for seconds in self.longest.values())])

    def took(self, job, seconds):
        self.longest[job] = max(seconds, self.longest.get(job, 0))


def in_a_new_folder(job, place, pace, clock, results):
    with tempfile.TemporaryDirectory(prefix="lockstep-compare-") as folder:
        left, hangs = clock.left(), clock.hangs()
        try:
            measured(job, place, pace, pathlib.Path(folder), min(left, hangs), results)
        except launch.TooSlow as slow:
            raise launch.Failed(f"it hangs: {slow}") if hangs < left else slow


def attempt(job, place, pace, clock, results):
    begin = time.monotonic()
    try:
        try:
            in_a_new_folder(job, place, pace, clock, results)
        except launch.PortTaken:  # between free_port() and its use
            begin = time.monotonic()
            in_a_new_folder(job, place, pace, clock, results)
        clock.took(job, time.monotonic() - begin)
    except launch.TooSlow as slow:
        results.late[job] = str(slow)
    except launch.Failed as failed:
        results.failed[job] = str(failed)
    except jobs.WrongSum as wrong:
        results.wrong.append(str(wrong))
        results.failed[job] = "its sums are wrong"


def rounds(names, place, pace, clock, say):
    """Every job once a round, forwards and then backwards: none always follows the same one."""
    results = Results()
    for number in range(pace.rounds):
        for job in names if number % 2 == 0 else names[::-1]:
            if job in results.failed:
                continue
            if not clock.fits(job):
                if number == 0:
                    results.late.setdefault(job, "there was no time left for it")
                continue
            say(f"round {number + 1} of {pace.rounds} at most: {job}")
            attempt(job, place, pace, clock, results)
    results.conclude()
    return results
