"""Each exercise of the course, proven: unsolved, solved and with typical wrong answers it is told what its master says."""

import concurrent.futures

import pytest

from conftest import SOURCE, run_process

NAMES = sorted(path.stem for path in (SOURCE / "tutorials/exercises").glob("*")
               if path.suffix in (".cpp", ".yaml", ".pbs", ".slurm", ".sh"))
AT_ONCE = 2
FEW = 2  # wrong answers of each in the quick tier


@pytest.fixture(scope="module")
def proofs(prepared, request):
    """(name, wrong answers) -> the future of its proof; they run a few at a time, and each test waits for its own."""
    wanted = [(item.callspec.params["name"], item.callspec.params["wrong"]) for item in request.session.items
              if item.module is request.module and hasattr(item, "callspec")]

    def prove(name, wrong):
        return run_process([prepared, "workshop", "prove", name, "--wrong", wrong], env={"LOCKSTEP_CHECKS": AT_ONCE},
                           timeout=900)
    pool = concurrent.futures.ThreadPoolExecutor(AT_ONCE)
    yield {which: pool.submit(prove, *which) for which in wanted}
    pool.shutdown(cancel_futures=True)


@pytest.mark.parametrize("wrong", [FEW, pytest.param(99, marks=pytest.mark.full)], ids=["few", "all"])
@pytest.mark.parametrize("name", NAMES)
def test_every_answer_is_told_what_its_master_says(name, wrong, proofs):
    result = proofs[name, wrong].result()
    assert result.returncode == 0, result.stdout + result.stderr
