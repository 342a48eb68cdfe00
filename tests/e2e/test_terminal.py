"""What a person sees on a terminal, also through mpirun: progress there, and in no file and no pipe."""

import re

import pytest
from process_kit import on_terminal
from train_kit import PIMA, sets, write_config

pytestmark = pytest.mark.about("run_folder", "cli")

PROGRESS = re.compile(r"step \d+/\d+  loss")
LOG_LINE = re.compile(r"Epoch \d+ \|")
SETS = sets(train__epochs=4, train__log_every=5, train__eval_every=60, checkpoint__every_epochs=20)


def screen_of(text):
    """The rows that a terminal shows after this text: CR, LF and 'clear to the end of the row' are obeyed, colors left out."""
    text = re.sub(r"\x1b\[\d*m", "", text)
    rows, column = [""], 0
    for token in re.findall(r"\x1b\[K|\r|\n|[^\x1b\r\n]+|\x1b", text):
        if token == "\r":
            column = 0
        elif token == "\n":
            rows.append("")
            column = 0
        elif token == "\x1b[K":
            rows[-1] = rows[-1][:column]
        else:
            rows[-1] = rows[-1][:column].ljust(column) + token + rows[-1][column + len(token):]
            column += len(token)
    return rows


@pytest.fixture
def terminal(start, tmp_path):
    """terminal(script, env, columns=80) -> what `sh -c script` writes to a terminal."""
    return lambda script, env, columns=80: on_terminal(start, "sh", "-c", script, columns=columns, env=env, cwd=tmp_path)


@pytest.fixture
def words(mpiexec, mpi, lockstep, tmp_path):
    """The words of a script as its variables: $MPIRUN $TRAIN."""
    return {"MPIRUN": " ".join([mpiexec, *mpi.quiet, "-n", "2"]),
            "TRAIN": " ".join([str(lockstep), "train", str(write_config(tmp_path, PIMA)), *SETS])}


@pytest.mark.mpi
def test_progress_moves_on_the_terminal_of_mpirun(terminal, words):
    text = terminal("exec $MPIRUN $TRAIN --set train.epochs=200 --set train.eval_every=200", words, columns=100)
    drawn = re.findall(r"\r([^\r\n\x1b]*samples/s[^\r\n\x1b]*)\x1b\[K", text)
    assert len(drawn) >= 3 and len(set(drawn)) == len(drawn)
    assert 80 < max(map(len, drawn)) < 100  # as wide as the terminal
    rows = screen_of(text)
    logged = [row for row in rows if LOG_LINE.search(row)]
    assert len(logged) == 201 and all(row.startswith("Epoch ") for row in logged)  # no line behind another
    assert not [row for row in rows if PROGRESS.search(row)]  # every drawing is gone in the end


@pytest.mark.mpi
@pytest.mark.parametrize("script", [
    "$MPIRUN $TRAIN 2>&1 | cat > err",
    "$MPIRUN sh -c 'exec $TRAIN 2> err.$$'; cat err.* > err",  # a rank's own file
    pytest.param("$MPIRUN sh -c '$TRAIN 2>&1 | cat >> err'", marks=pytest.mark.full),  # and pipe, where mpirun's output is a terminal
])
def test_no_progress_in_a_file_or_pipe_of_the_users(terminal, words, tmp_path, script):
    shown = terminal(script, words)
    written = (tmp_path / "err").read_text()
    assert "pima on 2 ranks" in written
    assert "\r" not in written and "\x1b" not in written
    assert "samples/s  " not in shown


def test_standard_output_in_a_file_holds_lines_alone(terminal, words, tmp_path):
    shown = terminal("$MPIRUN $TRAIN > out", words)
    assert PROGRESS.search(shown)
    written = (tmp_path / "out").read_text()
    assert "\x1b" not in written and "\r" not in written and len(LOG_LINE.findall(written)) == 5
    assert not [row for row in screen_of(shown) if PROGRESS.search(row)]


def test_lines_have_colour_on_a_terminal(start, lockstep, tmp_path):
    config = write_config(tmp_path, PIMA)
    words = [lockstep, "train", config, *SETS, *sets(optim__name="adam", optim__momentum=0.5)]
    text = on_terminal(start, *words, cwd=tmp_path)
    assert "\x1b[33mwarning:\x1b[0m optim.momentum" in text and "\x1b[1mEpoch 0 | Average Loss" in text
    for refused in ({"NO_COLOR": "1"}, {"TERM": "dumb"}):
        assert "\x1b[1m" not in on_terminal(start, *words, cwd=tmp_path, env=refused)
