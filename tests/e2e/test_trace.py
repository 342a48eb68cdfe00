"""trace.json: one time line of all ranks, and a run that is no different for it."""

import json

import pytest

from conftest import run_process
from train_kit import ANY_CPU, PIMA, digest_of_run, status, write_config

pytestmark = pytest.mark.about("loop", "report")

PHASES = {"data", "forward", "backward", "waiting for communication", "optimizer", "other"}


def spans_of(run):
    trace = json.loads((run / "trace.json").read_text())
    return trace, [event for event in trace["traceEvents"] if event["ph"] == "X"]


def assert_nested(spans):
    """What shares a track lies inside what is around it, or behind what is before it."""
    tracks = {}
    for span in spans:
        tracks.setdefault((span["pid"], span["tid"]), []).append((span["ts"], span["ts"] + span["dur"]))
    for track in tracks.values():
        open_until = []
        for begin, end in sorted(track, key=lambda span: (span[0], -span[1])):
            while open_until and open_until[-1] <= begin + 0.002:  # three decimals are written
                open_until.pop()
            assert not open_until or end <= open_until[-1] + 0.002, (begin, end, open_until)
            open_until.append(end)


@pytest.fixture(scope="session")
def traced(lockstep, mpiexec, once):
    """The same run without a trace and with one of its last 60 steps."""
    def make(place):
        config = write_config(place, PIMA)
        for name, steps in (("plain", 0), ("traced", 60)):
            run_process([mpiexec, "-n", 2, lockstep, "train", config, "--set", f"run.name={name}", "--set",
                         f"train.trace={steps}"], cwd=place, env=ANY_CPU, check=True)
    return once("traced", make) / "runs"


def test_every_phase_of_every_rank_is_there_and_nests_and_buckets_overlap(traced):
    trace, spans = spans_of(traced / "traced")
    assert_nested(spans)
    for rank in (0, 1):
        names = {span["name"] for span in spans if span["pid"] == rank}
        assert names == PHASES | {"all-reduce", "evaluation", "checkpoint"}
        assert {span["args"]["step"] for span in spans if span["pid"] == rank} >= set(range(21, 81))
    hosts = [event["args"]["name"] for event in trace["traceEvents"] if event["name"] == "process_name"]
    assert [host.split(" on ")[0] for host in hosts] == ["rank 0", "rank 1"]
    error = max(clock["error_us"] for clock in trace["otherData"]["clocks"])
    buckets = {(span["pid"], span["args"]["step"], span["args"]["bucket"]): span
               for span in spans if span["name"] == "all-reduce"}
    steps = [key[1:] for key in buckets if key[0] == 0]
    assert len(steps) >= 60
    for step in steps:
        first, second = buckets[(0, *step)], buckets[(1, *step)]
        assert first["args"]["bytes"] == second["args"]["bytes"] > 0
        assert max(first["ts"], second["ts"]) <= min(first["ts"] + first["dur"], second["ts"] + second["dur"]) + 2 * error


def test_a_trace_changes_no_bit(traced):
    assert digest_of_run(traced / "plain") == digest_of_run(traced / "traced")
    assert not (traced / "plain/trace.json").exists()


def test_a_failed_run_leaves_what_rank_0_did(lockstep, mpirun, tmp_path):
    """A loss that is no number ends it: the others cannot be asked for theirs."""
    config = write_config(tmp_path, PIMA)
    result = mpirun(2, lockstep, "train", config, "--trace", "--set", "optim.name=sgd", "--set", "optim.lr=1e38", "--set",
                    "train.epochs=50", cwd=tmp_path, env=ANY_CPU)
    assert result.returncode != 0, result.output
    run = tmp_path / "runs/pima"
    assert status(run)["state"] == "failed"
    trace, spans = spans_of(run)
    assert "this rank only" in trace["otherData"]["note"]
    assert {span["pid"] for span in spans} == {0} and {"forward", "all-reduce"} <= {span["name"] for span in spans}
