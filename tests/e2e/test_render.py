"""`lockstep render`: scripts that run as they are on both schedulers, and in which no text is ever more than a text."""

import itertools
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
        done = call(lockstep, "render", scheduler, *words, cwd=folder, LOCKSTEP_HOME=home)
        assert done.returncode == 0, done.stderr.decode()
        return done.stdout
    render.folder = folder
    return render


def words_of(script, scheduler, folder, tmp_path, **variables):
    """What lockstep_train is called with when a shell runs the script; nothing else may come of it."""
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
    home = recording_home(tmp_path / "home")
    if scheduler == "slurm":  # which may send its warning at once
        library = home / "job_scripts/lockstep.sh"
        library.write_text("kill -s USR1 $$\n" + library.read_text())
    script = rendered(scheduler, "c.yaml", *sets, home=home)
    assert words_of(script, scheduler, rendered.folder, tmp_path) == ["c.yaml", *sets]
    mark = SCHEDULERS[scheduler][0]
    assert directives(script, mark) == directives(rendered(scheduler, "c.yaml", home=home), mark)


@pytest.mark.parametrize("every", [6, pytest.param(1, marks=pytest.mark.full)])
def test_no_name_of_a_config_or_folder_is_more_than_a_name(every, rendered, tmp_path):
    plain = {}
    for number, (text, scheduler) in enumerate(zip(NASTY[::every], itertools.cycle(SCHEDULERS))):
        name = text.replace("/", "|")[:60] + ".yaml"
        (rendered.folder / name).write_text(QUICK)
        home = recording_home(tmp_path / "homes" / str(number) / text.replace("/", "|")[:60])
        script = rendered(scheduler, "--", name, home=home)  # behind it a name with a dash in front is no option
        wanted = "./" + name if name.startswith("-") else name
        assert words_of(script, scheduler, rendered.folder, tmp_path) == [wanted]
        assert (tmp_path / "record.home").read_bytes().decode() == f"{home}\0"
        seen = directives(script, SCHEDULERS[scheduler][0])
        assert seen == plain.setdefault(scheduler, seen) and len(seen) > 4
        os.remove(rendered.folder / name)


@pytest.mark.parametrize("option", ["--name", "--account", "--queue", "--storage"])
def test_directives_take_words_alone(option, lockstep, tmp_path):
    """Every byte is tried in tests/cluster/job_script_test.cpp; here, that the program says so."""
    (tmp_path / "c.yaml").write_text(QUICK)
    (tmp_path / "mine.yaml").write_text("scheduler: pbs\nstorage_flag: storage\n")
    for text in ["x\n#PBS -l walltime=99:00:00", "-W %j"]:
        done = call(lockstep, "render", "pbs", "c.yaml", "--site", "mine.yaml", f"{option}={text}", cwd=tmp_path)
        said = done.stderr.decode()
        assert (done.returncode, done.stdout) == (2, b"") and f"error: {option}: '" in said and said.count("\n") == 2, said


def test_no_text_of_a_site_is_run(lockstep, rendered, tmp_path):
    texts = [text for text in NASTY if all(c.isprintable() for c in text)]
    (tmp_path / "site.yaml").write_text(f"scheduler: slurm\nmodules: {json.dumps(texts, ensure_ascii=False)}\n")
    home = recording_home(tmp_path / "home")
    with open(home / "job_scripts/lockstep.sh", "a") as file:
        file.write('trap \'printf "%s\\0" "${LOADED[@]}" >"$RECORD.modules"\' EXIT\n')
    (tmp_path / "stand-in").write_text('module() { LOADED+=("$2"); }\n')
    script = rendered("slurm", "c.yaml", "--site", tmp_path / "site.yaml", home=home)
    assert words_of(script, "slurm", rendered.folder, tmp_path, BASH_ENV=tmp_path / "stand-in") == ["c.yaml"]
    assert (tmp_path / "record.modules").read_bytes().decode().split("\0")[:-1] == texts


@pytest.mark.parametrize("key, value", [("directives", "[\"-l wd\\n#PBS -l x=1\"]"), ("scratch", "'}; touch pwned; ${A'"),
                                        ("queue", "'a b'"), ("chunk", "'x -l y'"), ("start", "'srun; touch pwned'")])
def test_a_site_file_says_what_it_may(key, value, lockstep, tmp_path):
    (tmp_path / "bad.yaml").write_text(f"scheduler: pbs\n{key}: {value}\n")
    (tmp_path / "c.yaml").write_text(QUICK)
    done = call(lockstep, "render", "pbs", "c.yaml", "--site", "bad.yaml", cwd=tmp_path)
    assert done.returncode == 2 and f"error: {key} must be" in done.stderr.decode() and "bad.yaml:2:" in done.stderr.decode()


def test_a_wrong_config_and_a_file_that_is_there_are_refused(run, lockstep, tmp_path):
    (tmp_path / "c.yaml").write_text(QUICK.replace("max_steps", "max_stpes"))
    done = run(lockstep, "render", "slurm", "c.yaml", cwd=tmp_path)
    assert done.returncode == 2 and "did you mean train.max_steps?" in done.stderr and done.stdout == ""
    (tmp_path / "c.yaml").write_text(QUICK)
    assert run(lockstep, "render", "slurm", "c.yaml", "--out", "job", cwd=tmp_path).returncode == 0
    (tmp_path / "job").write_text("mine")
    done = run(lockstep, "render", "slurm", "c.yaml", "--out", "job", cwd=tmp_path)
    assert done.returncode == 2 and "already" in done.stderr and (tmp_path / "job").read_text() == "mine"


def test_the_home_is_found_from_any_folder_and_a_lost_script_is_said(lockstep, tmp_path):
    (tmp_path / "c.yaml").write_text(QUICK)
    home = recording_home(tmp_path / "home")
    done = call(lockstep, "render", "slurm", "c.yaml", cwd=tmp_path, LOCKSTEP_HOME="home")
    assert f"export LOCKSTEP_HOME={home}\n" in done.stdout.decode()
    with open("/dev/full", "w") as full:
        lost = subprocess.run([lockstep, "render", "slurm", "c.yaml"], cwd=tmp_path, env=clean_environment(), stdout=full,
                              stderr=subprocess.PIPE)
    assert lost.returncode == 1 and b"cannot be written" in lost.stderr


def test_what_only_a_job_knows_may_stand_in_a_config(rendered):
    (rendered.folder / "c.yaml").write_text(QUICK.replace("workers: 0", "workers: 0, stage: '${LOCKSTEP_SCRATCH}/mine'"))
    script = rendered("pbs", "c.yaml", "--site", "gadi", "--account", "a00").decode()
    assert "export LOCKSTEP_SCRATCH=${PBS_JOBFS:-${TMPDIR:-/tmp}}\n" in script


@pytest.mark.parametrize("site_file", sorted((SOURCE / "job_scripts/sites").glob("*.yaml")), ids=lambda path: path.stem)
def test_every_site_has_a_script_that_bash_reads(site_file, rendered, tmp_path):
    scheduler = re.search(r"^scheduler: (\w+)", site_file.read_text(), re.M).group(1)
    account = ("--account", "a00") if "account: required" in site_file.read_text() else ()
    script = rendered(scheduler, "c.yaml", "--site", site_file.stem, *account, home=recording_home(tmp_path / "home"))
    assert words_of(script, scheduler, rendered.folder, tmp_path) == ["c.yaml"]
