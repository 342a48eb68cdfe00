"""What the stand-in for OpenPBS keeps of its jobs: a JSON file each, and the way they lie on the nodes."""
import fcntl
import json
import os
import re
import sys
from pathlib import Path

SERVER = "lab"
NODE_CPUS = 32
DEFAULT_KILL_DELAY = 10
# a user may not submit to an execution queue that a routing queue feeds
QUEUES = {"workq": None, "route": "batch", "batch": None}
FROM_ROUTE_ONLY = {"batch"}


def lab():
    return Path(os.environ["PBS_LAB"])


def nodes():
    return (lab() / "nodes").read_text().split()


def kill_delay(folder):
    """Seconds between SIGTERM and SIGKILL: the server's attribute, a file here, for tests in a hurry."""
    path = folder / "kill_delay"
    return float(path.read_text()) if path.exists() else DEFAULT_KILL_DELAY


def load(folder, job_id):
    if "." not in job_id:
        job_id += "." + SERVER
    try:
        return json.loads((folder / "jobs" / f"{job_id}.json").read_text())
    except FileNotFoundError:
        sys.exit(f"qstat: Unknown Job Id {job_id}")


def save(folder, job, **more):
    job.update(more)
    path = folder / "jobs" / f"{job['id']}.json"
    path.with_suffix(".new").write_text(json.dumps(job, indent=1))
    os.replace(path.with_suffix(".new"), path)


def next_id(folder):
    (folder / "jobs").mkdir(exist_ok=True)
    with open(folder / "jobs" / "sequence", "a+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        number = int(file.read() or 0) + 1
        file.truncate(0)
        file.write(str(number))
    return number


def output_path(job, which="output"):
    """Where -o or -e says, else NAME.oNUMBER, NAME.oNUMBER.INDEX of an array's task, in the folder of submission."""
    number = re.match(r"\d+", job["id"]).group()
    default = f"{job['name']}.{which[0]}{number}" + (f".{job['array_index']}" if "array_index" in job else "")
    return Path(job["workdir"]) / job.get(which, default)


def chunks(job):
    """select=2:ncpus=4:mpiprocs=2+1:... as (host, {resource: amount}) a chunk: packed while there is room on a host,
    on a host each with place=scatter."""
    hosts = nodes()
    out, free, scatter = [], dict.fromkeys(hosts, NODE_CPUS), "scatter" in job["resources"].get("place", "")
    for part in job["resources"].get("select", "1:ncpus=1").split("+"):
        words = part.split(":")
        count = int(words[0]) if words[0].isdigit() else 1
        wanted = {"ncpus": "1", **dict(w.split("=") for w in words if "=" in w)}
        for _ in range(count):
            taken = [host for host, _ in out]
            host = next((n for n in hosts if free[n] >= int(wanted["ncpus"]) and not (scatter and n in taken)), None)
            if host is None:
                return []
            free[host] -= int(wanted["ncpus"])
            out.append((host, wanted))
    return out
