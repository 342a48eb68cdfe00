"""What the scheduler tests share: a lab, a quick config, and a run's folder read back."""

import json
import pathlib
import sys

import pytest
from conftest import OPEN_MPI
from process_kit import wait_for

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "cluster"))
import lab as lab_module  # noqa: E402

Lab, why_not = lab_module.Lab, lab_module.why_not
SOURCE = pathlib.Path(__file__).resolve().parents[2]

# MNIST, small batches, no evaluation: a job of a second or two
QUICK = """
run:   {name: quick}
launch: {join_timeout: 30s, timeout: 60s}
task:  {name: mnist}
data:  {root: data/mnist, batch_size: 16, workers: 0}
optim: {name: sgd, lr: 0.01, momentum: 0.9}
train: {epochs: 1, max_steps: 12, log_every: 2, eval_every: 0}
"""


@pytest.fixture
def work(tmp_path):
    """A folder of submission with the quick config in it, and a space in its name."""
    folder = tmp_path / "my work"
    folder.mkdir()
    (folder / "quick.yaml").write_text(QUICK)
    return folder


@pytest.fixture(scope="session")
def site(mpi, mpi_on_path):
    """The environment of a site that has the MPI that was linked: what its module would set."""
    if mpi is OPEN_MPI:
        return {}
    return {"PATH": mpi_on_path, "LOCKSTEP_SRUN_MPI": "pmi2"}


@pytest.fixture
def across(mpi, site):
    """across(nodes) -> what a job on that many nodes adds to its environment; empty where there is nothing to say.

    MPICH's UCX takes the lab's nodes, which are one kernel, for one host, whose memory they do not share: it is held to
    TCP. Over that, UCX 1.13 now and then hangs in MPI_Finalize, with any program, so such a job is looked at when its
    run is done, and then ended.
    """
    return lambda nodes: {"UCX_TLS": "tcp"} if mpi is not OPEN_MPI and nodes > 1 else {}


def start_lab(folder, scheduler):
    reason = why_not(scheduler)
    if reason:
        pytest.skip(reason)
    return Lab(folder, scheduler).start()


def runs(work):
    """The run folders under work/runs, oldest first."""
    return sorted((p for p in (work / "runs").iterdir() if p.is_dir()), key=lambda p: p.stat().st_ctime)


def metrics(run):
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


def steps_logged(work):
    """How many steps the first run of `work` has logged so far."""
    try:
        return max((m["step"] for m in metrics(runs(work)[0]) if m["event"] == "step"), default=0)
    except (FileNotFoundError, IndexError, ValueError):
        return 0


def wait_until_done(work, within=90):
    """Waits for the first run of `work`, whatever then becomes of its job."""
    def done():
        try:
            return json.loads((runs(work)[0] / "status.json").read_text())["state"] == "done"
        except (FileNotFoundError, IndexError, ValueError):
            return False
    wait_for(done, within, "the run to be done")


def digests(program, checkpoint, run_process):
    """name -> digest of a checkpoint's model tensors."""
    done = run_process([program, "inspect", checkpoint, "--json"], check=True)
    entries = json.loads(done.stdout)["entries"]
    model = {e["name"]: e["digest"] for e in entries if e["name"].startswith("model.")}
    assert model
    return model


def last_checkpoint(run):
    return max((run / "checkpoints").glob("step-*.pt"))
