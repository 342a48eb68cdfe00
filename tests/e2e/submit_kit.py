"""What the tests of lockstep submit share: stand-ins for a scheduler's commands, and submits in a lab."""

import subprocess

import pytest
from cluster_kit import SOURCE, folder_of_submission, waiting_program
from process_kit import executable

# of a user's own environment, what sbatch is told of it and what it is not
HEARD = {"SBATCH_CONSTRAINT": "a100", "SBATCH_RESERVATION": "r", "SLURM_CONF": "/etc/slurm.conf",
         "SLURM_CLUSTERS": "c", "SBATCH_EXPORT": "ALL", "SLURM_CPU_BIND": "none", "SLURM_MEM_BIND": "local"}
UNHEARD = {"SBATCH_OUTPUT": "x", "SBATCH_ERROR": "x", "SBATCH_JOB_NAME": "x", "SBATCH_ACCOUNT": "a00", "SBATCH_PARTITION": "p", "SBATCH_QOS": "q", "SBATCH_TIMELIMIT": "1", "SBATCH_WAIT": "1",
           "SBATCH_OPEN_MODE": "truncate", "SBATCH_SIGNAL": "INT@1", "SBATCH_NO_REQUEUE": "1", "SBATCH_ARRAY_INX": "0-3",
           "SLURM_RESTART_COUNT": "9", "SLURM_ARRAY_TASK_ID": "3", "SLURM_JOB_ID": "5", "SLURM_MEM_PER_CPU": "1",
           "LOCKSTEP_RESTART": "9", "SQUEUE_STATES": "PENDING"}

PIPES = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}


def fake(folder, **programs):
    """A PATH whose first folder holds these programs, each a text for sh; without those of a scheduler that is installed."""
    bin_folder = folder / "bin"
    bin_folder.mkdir(exist_ok=True)
    for name, text in programs.items():
        executable(bin_folder / name, "#!/bin/sh\n" + text)
    plain = folder / "plain"
    plain.mkdir(exist_ok=True)
    for name in ("cat", "sh", "sleep", "touch"):
        if not (plain / name).exists():
            (plain / name).symlink_to(f"/bin/{name}")
    return {"PATH": f"{bin_folder}:{plain}", "PBS_EXEC": "/nowhere"}


@pytest.fixture
def work(tmp_path):
    folder = folder_of_submission(tmp_path)
    (folder / "runs").mkdir()
    return folder


@pytest.fixture
def submit(lab, work, lockstep, site, wait_at_step):
    """submit(WORDS..., env={}) -> a submit --wait of waiting_program that has begun in the lab, with its site by default."""
    lasting = f"directives: [-S {SOURCE}/job_scripts/pbs_shell.sh]" if lab.scheduler == "pbs" else ""  # outlives qsig
    (work / "lab.yaml").write_text(f"scheduler: {lab.scheduler}\n{lasting}\n")
    program = waiting_program(work, lockstep, wait_at_step)
    settings = {"LOCKSTEP_HOME": str(SOURCE), "LOCKSTEP_PROGRAM": str(program), "LOCKSTEP_THREADS_PER_CORE": "1", **site}

    def begin(*words, env=None):
        where = [] if "--site" in words else ["--site", "./lab.yaml"]
        started.append(lab.popen(lockstep, "submit", "quick.yaml", *where, *words, "--wait", cwd=work,
                                 env={**settings, **(env or {})}, stdin=subprocess.DEVNULL, **PIPES))
        return started[-1]
    started = []
    yield begin
    for process in started:
        with process:  # closes its pipes: what is left of it goes with the lab
            process.kill()
