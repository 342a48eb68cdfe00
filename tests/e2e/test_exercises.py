"""Each exercise of the course, proven: unsolved, solved and with typical wrong answers it is told what its master says."""

import concurrent.futures

import pytest

from conftest import SOURCE, run_process

NAMES = sorted(path.stem for path in (SOURCE / "tutorials/exercises").glob("*")
               if path.suffix in (".cpp", ".yaml", ".pbs", ".slurm", ".sh"))
AT_ONCE = 2
FIRST = {name.split(".")[0]: name for name in reversed(NAMES)}.values()
QUICK = [pytest.param(name, 2, id=f"{name}-few") for name in FIRST]  # an exercise a chapter, two wrong answers
ALL = [pytest.param(name, 99, id=f"{name}-all", marks=pytest.mark.full) for name in NAMES]


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


@pytest.mark.parametrize("name, wrong", QUICK + ALL)
def test_every_answer_is_told_what_its_master_says(name, wrong, proofs):
    result = proofs[name, wrong].result()
    assert result.returncode == 0, result.stdout + result.stderr
