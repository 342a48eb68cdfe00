"""docs/track-record.md: the campaigns of faults in docs/track-record.jsonl, which tests/e2e/test_relaunch_campaign.py extends."""

import json

from modules import ROOT

GOES_ON, RESTARTS, ELSEWHERE = "the run continues", "the job restarts its ranks on the same nodes", "the job continues on the other nodes"
PROMISES = {
    "rank killed": RESTARTS, "rank stopped": f"{RESTARTS} after `launch.timeout`", "rank paused": f"{GOES_ON} (up to 3 s; `launch.timeout` is 10 s)",
    "job suspended": f"{GOES_ON} (11 to 13 s; `launch.timeout` is 10 s)", "node killed": ELSEWHERE, "node cut off": ELSEWHERE,
    "network interrupted": f"{GOES_ON} (up to 2 s; `LOCKSTEP_SILENCE` is 5 s)", "disk full for a while": f"{GOES_ON} (up to 1 s)",
    "disk full to the end": "**only an error**: the run fails and names the reason. Submitted again with free space, it continues"}
KEYS = ("date", "version", "commit", "tests", "scheduler", "seed", "runs")
PAGE = """# Track record

`python3 scripts/docs` generates this page from `docs/track-record.jsonl`. `scripts/test --full` adds two campaigns to that file. A campaign breaks training runs at random
moments. Each run has four ranks on three nodes, under real Slurm or simulated PBS, and a checkpoint every 20 steps. The nodes are network namespaces of one machine, which
is often busy with other work. A run has up to six faults, at least 21 steps apart. It survives a fault if the job does what the table promises
([elastic.md](how-to/elastic.md), [cluster.md](how-to/cluster.md#a-node-dies), [run-folder.md](reference/run-folder.md#exact-resume)), ends with exactly the parameters of
an uninterrupted run, and logs each step once (while the disk is full, steps may be missing). A fault that restarts ranks may cause one relaunch, of at most 40 repeated
steps; others none. If a run fails for any reason, its last fault counts as not survived. The seed chooses the faults of a campaign's first run; each further run adds 1 to
it. To repeat a run, check out the commit of its tests:

```sh
.deps/python/bin/python3 -m pytest -m full tests/e2e/test_relaunch_campaign.py -k slurm --seed 1000 --minutes 0
```

## Faults

{runs} runs so far. The time is from the fault to the next step: the smallest and the largest median of a campaign.

{faults}

## Campaigns

{campaigns}

## Failures

{failures}
"""


def table(*rows):
    return "\n".join(f"| {' | '.join(map(str, row))} |" for row in (rows[0], ["---"] * len(rows[0]), *rows[1:]))


def page():
    campaigns = [json.loads(line) for line in (ROOT / "docs/track-record.jsonl").read_text().splitlines()]
    names = dict.fromkeys([*PROMISES, *(name for each in campaigns for name in each["faults"])])
    total = {name: [sum(each["faults"].get(name, (0, 0))[i] for each in campaigns) for i in (0, 1)] for name in names}
    times = {name: [each["seconds"][name] for each in campaigns if name in each["seconds"]] for name in names}
    span = {name: f"{min(found)} to {max(found)} s" if found else "" for name, found in times.items()}
    failures = [(each["date"], each["commit"], each["scheduler"], *(str(one[key]).replace("|", "\\|") for key in ("seed", "fault", "what")),
                 one["fixed"] or "open") for each in campaigns for one in each["failures"]]
    return PAGE.format(
        runs=sum(each["runs"] for each in campaigns),
        faults=table(("fault", "promise", "injected", "survived", "time"), *((name, PROMISES[name], *total[name], span[name]) for name in names),
                     ("all", "", *map(sum, zip(*total.values())), "")),
        campaigns=table((*KEYS, "faults", "survived"), *((*map(each.get, KEYS), *map(sum, zip(*each["faults"].values()))) for each in campaigns)),
        failures=table(("date", "commit", "scheduler", "seed", "fault", "result", "fixed in"), *failures) if failures else "None so far.")
