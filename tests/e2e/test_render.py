"""`lockstep render`: scripts that run as they are on both schedulers, and in which no text is ever more than a text."""

import json
import os
import re
import subprocess

import pytest
from cluster_kit import QUICK, SOURCE
from conftest import clean_environment
from hostile import NASTY, recording_home

pytestmark = pytest.mark.about("cluster")

SCHEDULERS = {"slurm": ("#SBATCH ", "SLURM_SUBMIT_DIR"), "pbs": ("#PBS ", "PBS_O_WORKDIR")}


def call(*words, cwd=None, **variables):
    return subprocess.run([str(word) for word in words], cwd=cwd, env=clean_environment(**variables), capture_output=True,
                          stdin=subprocess.DEVNULL)


@pytest.fixture
def rendered(lockstep, tmp_path):
    """rendered(scheduler, words..., home=...) -> the script's bytes; in the folder of submission, which it returns too."""
    folder = tmp_path / "submission"
    folder.mkdir()
    (folder / "c.yaml").write_text(QUICK)

    def render(scheduler, *words, home=SOURCE):
        done = call(lockstep, "render", scheduler, *words, cwd=folder, LOCKSTEP_HOME=home, LOCKSTEP_PROGRAM=f"{home}/program")
        assert done.returncode == 0, done.stderr.decode()
        return done.stdout
    render.folder = folder
    return render


def words_of(script, scheduler, folder, tmp_path, **variables):
    """What lockstep job train is called with when a shell runs the script; nothing else may come of it."""
    (tmp_path / "job").write_bytes(script)
    before = sorted(os.listdir(folder))
    variables[SCHEDULERS[scheduler][1]] = folder
    done = call("bash", tmp_path / "job", cwd=folder, RECORD=tmp_path / "record", **variables)
    assert done.returncode == 0 and done.stderr == b"", done.stderr.decode(errors="replace")
    assert sorted(os.listdir(folder)) == before
    return (tmp_path / "record").read_bytes().decode(errors="surrogateescape").split("\0")[:-1]


def directives(script, mark):
    """Those that a scheduler could see anywhere in the script, whatever it takes for a line's end."""
    lines = re.split(rb"[\r\n\v\f\x1c-\x1e]|\xc2\x85|\xe2\x80[\xa8\xa9]", script)
    return [line for line in lines if line.strip().startswith(mark.strip().encode())]


@pytest.mark.parametrize("scheduler", SCHEDULERS)
def test_settings_arrive_as_they_were_given(scheduler, rendered, tmp_path):
    sets = [word for text in NASTY for word in ("--set", f"task.label={text}")]
    home = recording_home(tmp_path / "it's a\n#PBS -V home $(touch pwned)")
    script = rendered(scheduler, "c.yaml", *sets, home=home)
    assert words_of(script, scheduler, rendered.folder, tmp_path) == ["c.yaml", *sets]
    assert (tmp_path / "record.home").read_text() == f"{home}\0"
    mark = SCHEDULERS[scheduler][0]
    assert directives(script, mark) == directives(rendered(scheduler, "c.yaml", home=recording_home(tmp_path / "home")), mark)


def test_no_text_of_a_site_is_run(lockstep, rendered, tmp_path):
    texts = [text for text in NASTY if all(c.isprintable() for c in text)]
    (tmp_path / "site.yaml").write_text(f"scheduler: slurm\nmodules: {json.dumps(texts, ensure_ascii=False)}\n")
    home = recording_home(tmp_path / "home")
    (tmp_path / "stand-in").write_text('module() { printf "%s\\0" "$2" >>"$RECORD.modules"; }\n')
    script = rendered("slurm", "c.yaml", "--site", tmp_path / "site.yaml", home=home)
    assert words_of(script, "slurm", rendered.folder, tmp_path, BASH_ENV=tmp_path / "stand-in") == ["c.yaml"]
    assert (tmp_path / "record.modules").read_bytes().decode().split("\0")[:-1] == texts


def test_the_home_is_found_from_any_folder(lockstep, tmp_path):
    (tmp_path / "c.yaml").write_text(QUICK)
    home = recording_home(tmp_path / "home")
    done = call(lockstep, "render", "slurm", "c.yaml", cwd=tmp_path, LOCKSTEP_HOME="home")
    assert f"export LOCKSTEP_HOME={home}\n" in done.stdout.decode()


def test_every_site_has_a_script_that_bash_reads(rendered, tmp_path):
    home = recording_home(tmp_path / "home")
    for site_file in (SOURCE / "job_scripts/sites").glob("*.yaml"):
        scheduler = re.search(r"^scheduler: (\w+)", site_file.read_text(), re.M).group(1)
        account = ("--account", "a00") if "account: required" in site_file.read_text() else ()
        script = rendered(scheduler, "c.yaml", "--site", site_file.stem, *account, home=home)
        assert words_of(script, scheduler, rendered.folder, tmp_path) == ["c.yaml"], site_file
