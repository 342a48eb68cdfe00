"""What docs/troubleshooting.md shows of faults that come from outside is what the program says."""

import re
import shutil
import signal
import subprocess

import pytest

from conftest import SOURCE
from process_kit import PATIENCE, wait_for
from test_provoke import PAGE, VARIES
from train_kit import PIMA, sets, write_config

pytestmark = pytest.mark.about("docs", "base")


def messages(section):
    """The messages in a section, in order, as patterns."""
    text = PAGE.read_text().split(f"\n## {section}\n")[1].split("\n## ")[0]
    for block in re.findall(r"```\n((?:error|warning):.*?)```", text, re.S):
        pattern = re.escape(block.strip())
        for varies, instead in (*VARIES, (r"within\\ \d+\\ s", r"within\\ [\\d.]+\\ s"), (r"memory:\\ \d+", r"memory:\\ \\d+")):
            pattern = re.sub(varies, lambda _, to=instead: to.replace("\\\\", "\\"), pattern)
        yield pattern


def table():
    """The rows of the page's first table: the words that are seen, and the doctor's checks."""
    text = PAGE.read_text().split("| you see |")[1].split("\n\n")[0]
    for cells in (line.strip("| ").split(" | ") for line in text.splitlines()[2:]):
        assert len(cells) in (3, 4), cells
        yield cells[0], re.findall(r"`(\w+)`", "".join(cells[3:]))


def test_the_doctor_has_the_checks_that_the_page_names():
    code = "".join((SOURCE / "src/tools/doctor" / name).read_text() for name in ("node/checks.cpp", "job/active.cpp", "examine.cpp"))
    prose = " ".join(re.findall(r"\*\*The doctor\*\*(?:.+\n)+|check `\w+`", PAGE.read_text()))
    named = {check for _, checks in table() for check in checks} | set(re.findall(r"`(\w+)`", prose))
    assert len(named) > 10 and not [check for check in named if f'"{check}"' not in code], named


def test_a_check_that_an_error_names_is_one_of_the_doctors():
    code = (SOURCE / "src/lockstep/launch/process/doctor_hint.cpp").read_text()
    checks = re.findall(r'\{Code::\w+, "(\w+)"\}', code)
    assert len(checks) > 5 and not [check for check in checks if f"| `{check}` |" not in (SOURCE / "docs/doctor.md").read_text()]


@pytest.fixture
def two(start, lockstep, tmp_path, free_port):
    """two(ranks=(0, 1), WORD...): those of a job of two, as torchrun would start them."""
    config = write_config(tmp_path, PIMA)

    def begin(*words, ranks=(0, 1)):
        common = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2"}
        return [start(lockstep, "train", config, *sets(train__epochs=100000, launch__timeout="2s"), *words, cwd=tmp_path,
                      env={**common, "RANK": str(rank), "LOCAL_RANK": str(rank)}, stdout=subprocess.DEVNULL,
                      stderr=subprocess.PIPE, text=True) for rank in ranks]
    return begin


def is_training(folder):
    return any(path.stat().st_size for path in folder.glob("runs/*/metrics.jsonl"))


@pytest.mark.parametrize("sent, which", [(signal.SIGKILL, 0), (signal.SIGSTOP, 1)])
def test_a_rank_that_goes_is_named_as_on_the_page(sent, which, two, tmp_path):
    first, second = two()
    wait_for(lambda: is_training(tmp_path), what="training")
    second.send_signal(sent)
    said = first.communicate(timeout=PATIENCE)[1]
    pattern = list(messages("A missing rank"))[which]
    assert first.returncode == 1 and re.search(pattern, said), (pattern, said)


def test_a_rank_that_never_comes_is_named_as_on_the_page(two):
    only, = two(*sets(launch__join_timeout="1s"), ranks=(0,))
    said = only.communicate(timeout=PATIENCE)[1]
    pattern = list(messages("A missing rank"))[2]
    assert only.returncode == 1 and re.search(pattern, said), (pattern, said)


def test_a_small_dev_shm_is_said_as_on_the_page(run, mpiexec, lockstep, tmp_path):
    """In mounts of its own, where this may be done."""
    words = "mount -t tmpfs -o size=64k tmpfs /dev/shm && exec \"$@\""
    inside = ["unshare", "--mount", "bash", "-c", words, "small"]
    if not shutil.which("unshare") or run(*inside, "true").returncode:
        pytest.skip("no mounts of its own here")
    result = run(*inside, mpiexec, "-n", 2, lockstep, "train", write_config(tmp_path, PIMA), cwd=tmp_path)
    pattern, = messages("A small /dev/shm")
    assert result.returncode == 0 and re.search(pattern, result.stderr), (pattern, result.stderr)
