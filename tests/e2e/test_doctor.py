"""`lockstep doctor`: each fault that it names is made here, and it ends whatever is broken."""

import json
import os
import pathlib
import pwd
import shutil
import socket
import subprocess

import pytest
from conftest import OPEN_MPI
from process_kit import ends_of, shared_library

pytestmark = pytest.mark.about("doctor")

QUICK = {"LOCKSTEP_JOIN_TIMEOUT": 2}


def findings(result, check, verdict=None):
    """What a check said, in a run with --json; with a verdict, the one finding of that verdict."""
    report = json.loads(result.stdout)
    told = [f for f in report["findings"] if f["check"] == check]
    assert told, (check, result.output)
    if verdict is None:
        return told
    told = [f for f in told if f["verdict"] == verdict]
    assert len(told) == 1, (verdict, told)
    assert verdict == "ok" or told[0]["remedy"], "says what to do"
    assert result.returncode == (1 if report["verdict"] == "failure" else 0), result.output
    return told[0]["says"]


@pytest.fixture
def doctor(run, lockstep):
    """doctor(ARG..., before=[], env={}) -> the Result of one process, with --json."""
    return lambda *args, before=(), **how: run(*before, lockstep, "doctor", "--json", *args, **how)


@pytest.fixture
def ranks(mpirun, lockstep):
    """ranks(N, script) -> the Result of `exec "$@"` by a shell of that script in each of N ranks, with --json."""
    def begin(n, script="", *args, **how):
        return mpirun(n, "sh", "-c", f'{script}\nexec "$@"', "sh", lockstep, "doctor", "--json", *args, **how)
    return begin


@pytest.fixture
def by_hand(start, free_port, lockstep):
    """by_hand({words before rank 0}, ...) -> the ends of ranks that know each other by RANK and WORLD_SIZE."""
    def begin(*before, **env):
        base = dict(WORLD_SIZE=len(before), MASTER_ADDR="127.0.0.1", MASTER_PORT=free_port(), **QUICK)
        return ends_of([start(*words, lockstep, "doctor", "--json", stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              text=True, env={**base, "RANK": rank, "LOCAL_RANK": rank, **env})
                        for rank, words in enumerate(before)])
    return begin


def inside(script, *spaces):
    """What runs the rest with mounts (or a host name) of its own; skips where that may not be."""
    words = ["unshare", *(spaces or ["--mount"]), "sh", "-c", f'{script} || exit 77; exec "$@"', "sh"]
    if not shutil.which("unshare") or subprocess.run([*words, "true"], capture_output=True).returncode:
        pytest.skip("no namespaces of its own here")
    return words


# --- one process ---

def test_a_line_a_check_and_exit_0_where_nothing_failed(run, lockstep):
    result = run(lockstep, "doctor", check=True)
    lines = [line for line in result.stdout.splitlines() if not line.startswith(" ")]
    assert lines[0].startswith("1 rank on 1 node") and "ok, " in lines[-1]
    assert all(line.split()[0] in ("ok", "warning", "failure") for line in lines[1:-1])
    assert result.stderr == ""


def test_every_check_is_told_of_on_its_page(doctor, source_dir):
    page = (source_dir / "docs/doctor.md").read_text()
    names = {finding["check"] for finding in json.loads(doctor().stdout)["findings"]}
    assert len(names) > 12
    assert not [name for name in {*names, "meeting", "facts"} if f"| `{name}` |" not in page]


def test_a_phantom_is_a_failure_with_its_remedy(doctor):
    result = doctor(env={"SLURM_JOB_ID": 1, "SLURM_NTASKS": 4, "PATH": "/usr/bin:/bin"})
    assert "given 4 tasks (SLURM_NTASKS=4)" in findings(result, "launcher", "failure")
    assert "srun" in findings(result, "launcher")[0]["remedy"]


def test_half_a_pair_of_variables_is_a_failure_and_the_node_is_looked_at(doctor):
    result = doctor(env={"RANK": 0})
    assert "RANK=0 is set but WORLD_SIZE is not" in findings(result, "launcher", "failure")
    assert findings(result, "memory")


def test_one_of_many_that_mpi_calls_0_of_1_is_a_failure(doctor, mpi):
    if mpi is not OPEN_MPI:
        pytest.skip("Open MPI's variables")
    result = doctor(env={"OMPI_COMM_WORLD_RANK": 1, "OMPI_COMM_WORLD_SIZE": 2})
    assert "but MPI says" in findings(result, "launcher", "failure")


def test_low_limits_are_named(doctor):
    result = doctor(before=["sh", "-c", 'ulimit -n 100; exec "$@"', "sh"])
    assert "a process may open 100 files" in findings(result, "limits", "failure")
    result = doctor(before=["sh", "-c", 'ulimit -v 30000000; exec "$@"', "sh"])
    assert "address space" in findings(result, "limits", "warning")


def test_blocked_signals_are_named(doctor):
    assert "SIGTERM is blocked" in findings(doctor(before=["env", "--block-signal=TERM"]), "signals", "failure")


def test_a_full_dev_shm_and_a_small_one_are_named(doctor):
    small = "mount -t tmpfs -o size=32m tmpfs /dev/shm"
    assert "/dev/shm has 32.0 MiB free" in findings(doctor(before=inside(small)), "shm", "warning")
    full = inside(f"{small} && head -c 32M /dev/zero >/dev/shm/full")
    assert "No space left" in findings(doctor(before=full), "shm", "failure")


def test_a_host_name_that_does_not_resolve_is_named(doctor):
    result = doctor(before=inside("hostname nowhere.invalid", "--uts"))
    assert "nowhere.invalid does not resolve" in findings(result, "host", "warning")


def test_a_container_without_the_gpus_driver_is_named(doctor):
    hidden = inside("mount -t tmpfs tmpfs /proc/driver && mkdir /proc/driver/nvidia && echo 1 >/proc/driver/nvidia/version")
    result = doctor(before=hidden, env={"APPTAINER_CONTAINER": "image.sif"})
    if json.loads(result.stdout)["ranks"][0]["walls"]["cuda_library"]:
        pytest.skip("a driver is here")
    assert "Apptainer container lacks" in findings(result, "container", "warning")


def test_odd_variables_are_named(doctor):
    result = doctor(env={"NCCL_P2P_DISABLE": 1, "OMP_PROC_BIND": "close", "TMPDIR": "/nowhere", "NCCL_IB_DISABLE": 0})
    said = findings(result, "variables", "warning")
    assert "NCCL_P2P_DISABLE=1" in said and "OMP_PROC_BIND=close" in said and "TMPDIR=/nowhere" in said
    assert "NCCL_IB_DISABLE" not in said


def test_numa_nodes_are_drawn_and_a_made_up_machine_is_named(doctor):
    result = doctor(env={"HWLOC_SYNTHETIC": "pack:2 [numa] core:2 pu:1"})
    assert "2 NUMA nodes" in findings(result, "locality")[0]["says"]
    assert "NUMA 1  CPUs 2-3" in findings(result, "locality")[0]["drawing"]
    assert "HWLOC_SYNTHETIC" in findings(result, "variables", "warning")


def test_the_jobs_end_is_told_and_one_that_is_near_is_a_warning(doctor, tmp_path):
    squeue = tmp_path / "squeue"
    squeue.write_text("#!/bin/sh\ndate -u -d '+5 minutes' +%Y-%m-%dT%H:%M:%S\n")
    squeue.chmod(0o755)
    job = {"SLURM_JOB_ID": 42, "SLURM_NTASKS": 1, "TZ": "UTC"}
    result = doctor(env={**job, "PATH": f"{tmp_path}:/usr/bin:/bin"})
    assert "SIGTERM" in findings(result, "deadline", "warning") and "min" in findings(result, "deadline", "warning")
    squeue.write_text("#!/bin/sh\nexit 1\n")
    shutil.copy(squeue, tmp_path / "scontrol")
    result = doctor(env={**job, "PATH": f"{tmp_path}:/usr/bin:/bin"})
    assert "nobody tells when" in findings(result, "deadline", "warning")


def test_a_gpu_that_was_asked_for_and_is_not_there(doctor):
    result = doctor("--device", "cuda", env={"CUDA_VISIBLE_DEVICES": ""})
    assert "sees no GPU" in findings(result, "gpus", "failure")


def test_a_driver_that_hangs_is_named_in_time_and_what_was_found_is_told(doctor, tmp_path):
    shared_library(tmp_path, "libcuda.so.1", "#include <unistd.h>\nint cuInit(unsigned f) { for (;;) pause(); }\n"
                   "int cuDeviceGetCount(int *n) { return *n = 0; }\n")
    result = doctor(env={**QUICK, "LD_LIBRARY_PATH": tmp_path})
    assert "GPUs did not end within 2 s" in findings(result, "facts", "failure")


# --- several ranks ---

@pytest.mark.mpi
def test_ranks_that_are_well_are_told_once(ranks):
    result = ranks(2, check=True)
    report = json.loads(result.stdout)
    assert report["complete"] and report["world"] == 2 and len(report["ranks"]) == 2
    assert report["verdict"] != "failure"
    assert "2 ranks on 1 machine" in findings(result, "ranks")[0]["says"]


@pytest.mark.mpi
def test_a_rank_that_never_starts_is_named_in_time(ranks, mpi):
    result = ranks(2, f'[ "${mpi.rank}" = 1 ] && exec sleep 3600', env=QUICK, quiet=True)
    assert "MPI_Init did not end within 2 s" in findings(result, "meeting", "failure")
    assert findings(result, "memory"), "the node is looked at"
    assert result.left_behind == []


STOP = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
int CALL(const void *a, int b, void *c, int d, int e, void *f, void *g) {
  const char *rank = getenv("RANK_VARIABLE");
  if (rank && !strcmp(rank, "STOPPED")) raise(SIGSTOP);
  return ((int (*)(const void *, int, void *, int, int, void *, void *))dlsym(RTLD_NEXT, "CALL"))(a, b, c, d, e, f, g);
}
"""


@pytest.mark.parametrize("stopped, call", [("1", "MPI_Isend"), ("0", "MPI_Irecv")])
def test_a_stopped_rank_is_named_in_time(ranks, mpi, tmp_path, stopped, call):
    if mpi is not OPEN_MPI:
        pytest.skip("its arguments are of Open MPI's types")
    source = STOP.replace("RANK_VARIABLE", mpi.rank).replace("STOPPED", stopped).replace("CALL", call)
    shim = shared_library(tmp_path, "stop.so", source)
    result = ranks(3, env={**QUICK, "LD_PRELOAD": shim}, quiet=True)
    assert f"rank {stopped} did not come" in findings(result, "meeting", "failure")
    assert json.loads(result.stdout)["complete"] is False
    assert result.left_behind == []


def test_ranks_by_hand_that_cannot_meet_each_tell(start, lockstep, free_port):
    env = dict(RANK=0, WORLD_SIZE=2, LOCAL_RANK=0, MASTER_ADDR="127.0.0.1", MASTER_PORT=free_port(), **QUICK)
    (status, out, err), = ends_of([start(lockstep, "doctor", env=env, stdout=subprocess.PIPE, text=True)])
    lines = out.splitlines()
    assert status == 1 and all(line.startswith("[rank 0] ") for line in lines[:-1])
    assert "failure  meeting     rank 1 did not come" in out


@pytest.mark.mpi
def test_two_ranks_on_one_core_are_named(ranks, mpi):
    binding = {"OMPI_MCA_hwloc_base_binding_policy": "none", "HYDRA_BINDING": "none"}
    core = min(os.sched_getaffinity(0))
    result = ranks(2, f'exec taskset -c {core} "$@"', env=binding)
    assert f"ranks 0 and 1 have 1 CPU to share ({core})" in findings(result, "cores", "warning")


@pytest.mark.mpi
def test_more_threads_than_cores_and_variables_of_one_rank_are_named(ranks, mpi):
    script = f'[ "${mpi.rank}" = 1 ] && export OMP_NUM_THREADS=4096 NCCL_ALGO=Ring ATEN_CPU_CAPABILITY=default'
    result = ranks(2, script)
    assert "rank 1: OMP_NUM_THREADS=4096 is more than" in findings(result, "threads", "warning")
    assert "NCCL_ALGO is not set on rank 0, Ring on rank 1" in findings(result, "variables", "warning")
    said = [finding["says"] for finding in findings(result, "libtorch")]
    if "avx2" in json.loads(result.stdout)["ranks"][0]["cpu_flags"]:
        assert any("computes differently on the ranks" in text for text in said), said


@pytest.mark.mpi
def test_two_ranks_on_the_threads_of_one_core_are_named(ranks, mpi):
    cpus = sorted(os.sched_getaffinity(0))
    if cpus[:2] != [0, 1]:
        pytest.skip("CPUs 0 and 1 are not ours")
    env = {"HWLOC_SYNTHETIC": "core:1 pu:2", "HWLOC_THISSYSTEM": 1, "OMPI_MCA_hwloc_base_binding_policy": "none",
           "HYDRA_BINDING": "none"}
    result = ranks(2, f'exec taskset -c ${mpi.rank} "$@"', env=env)
    said = findings(result, "cores", "warning")
    assert "ranks 0 and 1 are bound to hardware threads of the same cores (0 and 1)" in said


def test_a_tmpdir_that_one_node_lacks_is_named(by_hand, tmp_path):
    (tmp_path / "there/mine").mkdir(parents=True)
    there = tmp_path / "there"
    (status, out, err), _ = by_hand([], inside(f"mount -t tmpfs tmpfs '{there}'"), TMPDIR=there / "mine")
    said = [f["says"] for f in json.loads(out)["findings"] if f["check"] == "variables"]
    assert any(text.startswith(f"rank 1: TMPDIR={there}/mine is no folder on ") for text in said), said


@pytest.mark.mpi
def test_one_rank_left_behind_for_all_is_refused_and_told(mpirun, lockstep, free_port):
    left = {"RANK": 0, "WORLD_SIZE": 2, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": free_port(), **QUICK}
    refused = mpirun(2, lockstep, "whoami", env=left, quiet=True)
    assert refused.returncode != 0
    assert "RANK=0 says which of 2 ranks this is, but " in refused.stderr
    assert "unset RANK and WORLD_SIZE" in refused.stderr
    # the one that believes RANK waits for the other, which may need long to start and to say this
    result = mpirun(2, lockstep, "doctor", env={**left, "LOCKSTEP_JOIN_TIMEOUT": 30}, quiet=True)
    assert "RANK=0 says which of 2 ranks this is, but " in result.stdout, result.output
    assert "unset RANK and WORLD_SIZE" in result.stdout


GPUS = """
int cuInit(unsigned flags) { return 0; }
int cuDeviceGetCount(int *count) { *count = %d; return 0; }
int cuDeviceGet(int *device, int index) { *device = index; return 0; }
int cuDeviceGetUuid_v2(unsigned char *uuid, int device) {
  for (int i = 0; i < 16; ++i) uuid[i] = i + device;
  return 0;
}
"""


@pytest.mark.mpi
def test_ranks_that_share_a_gpu_or_have_too_few_are_named(ranks, tmp_path):
    for gpus, world, words in ((1, 2, "ranks 0 and 1 take one GPU (GPU-0001"), (2, 3, "too few GPUs: rank 2")):
        folder = tmp_path / str(gpus)
        folder.mkdir()
        shared_library(folder, "libcuda.so.1", GPUS % gpus)
        assert words in findings(ranks(world, env={"LD_LIBRARY_PATH": folder}), "gpus", "failure")


def other_build(lockstep, folder):
    """The program of another commit: ours with the commit's letters changed."""
    shown = subprocess.run([lockstep, "--version"], capture_output=True, text=True, check=True).stdout
    commit = next(line.split()[1] for line in shown.splitlines() if line.startswith("commit"))
    (folder / "bin").mkdir()
    (folder / "lib").symlink_to(lockstep.parent.parent / "lib")
    content = lockstep.read_bytes()
    assert commit.encode() in content
    other = folder / "bin/lockstep"
    other.write_bytes(content.replace(commit.encode(), b"f" * len(commit)))
    other.chmod(0o755)
    return other, commit


@pytest.mark.mpi
def test_another_build_on_one_rank_is_named(mpirun, mpi, lockstep, tmp_path):
    other, commit = other_build(lockstep, tmp_path)
    script = f'[ "${mpi.rank}" = 1 ] && exec "$2" doctor --json; exec "$1" doctor --json'
    result = mpirun(2, "sh", "-c", script, "sh", lockstep, other)
    said = findings(result, "versions", "failure")
    assert f"commit is {commit} on rank 0, " in said and "fff" in said and "on rank 1" in said


def test_ranks_of_one_machine_with_a_dev_shm_each_are_named(by_hand):
    (status, out, err), _ = by_hand([], inside("mount -t tmpfs tmpfs /dev/shm"))
    said = [f for f in json.loads(out)["findings"] if f["check"] == "shm"]
    assert status == 1 and said[0]["verdict"] == "failure" and "different /dev/shm" in said[0]["says"]


# --- the report ---

@pytest.mark.mpi
def test_a_report_has_nothing_private_in_it(mpirun, lockstep, tmp_path):
    folder = tmp_path / "secret place"
    folder.mkdir()
    private = {"SLURM_JOB_ID": "8123479", "SLURM_JOB_ACCOUNT": "xy77", "SLURM_JOB_PARTITION": "normalbw", "USER": "annabel",
               "SLURM_SUBMIT_HOST": "login-03.site.example", "NCCL_TOPO_FILE": "/scratch/xy77/annabel/topo.xml",
               "GLOO_SOCKET_IFNAME": "lo", "NCCL_HOSTID": "10.11.12.13", "TMPDIR": str(folder), "SLURM_NTASKS": "2",
               "PATH": "/usr/bin:/bin"}
    report = folder / "report.json"
    result = mpirun(2, lockstep, "doctor", "--report", report, env=private, cwd=folder)
    assert result.returncode == 0, result.output
    text = report.read_text()
    told = json.loads(text)
    assert told["world"] == 2 and len(told["ranks"]) == 2 and told["findings"]
    assert told["ranks"][0]["job"]["host"] == "node0" == told["ranks"][1]["job"]["host"]
    host, user = socket.gethostname(), pwd.getpwuid(os.geteuid()).pw_name
    for secret in ("8123479", "xy77", "normalbw", "annabel", "login-03", "site.example", "/scratch", "10.11.12.13",
                   "secret", "place/", str(tmp_path), str(pathlib.Path.home())):
        assert secret not in text, secret
    for word in (host, user):
        assert f'"{word}"' not in text and f" {word} " not in text and f"/{word}" not in text, word
    assert told["ranks"][0]["variables"]["SLURM_NTASKS"] == "2"


def test_a_report_names_nothing_of_a_config(run, lockstep, tmp_path):
    config = tmp_path / "falcon9.yaml"
    config.write_text("run: {name: merlin}\ntask: {name: pima}\n"
                      "model: {name: mlp, hidden: [4], options: {turbopump: 7, injector: pintle}}\n")
    broken = tmp_path / "raptor2.yaml"
    broken.write_text("task: {name: pima}\nmodel: {name: mlp, options: {turbopump: &a pintle}}\n")
    for file in (config, broken):
        result = run(lockstep, "doctor", "--report", "sent.json", file.name, cwd=tmp_path)
        text = (tmp_path / "sent.json").read_text()
        assert result.stdout.count("folders") and '"check": "folders"' in text
        for secret in ("falcon9", "raptor2", "merlin", "turbopump", "injector", "pintle"):
            assert secret not in text, (secret, text[text.index(secret) - 80:][:200])


def test_processes_that_do_not_know_each_other_write_reports_of_their_own(start, lockstep, tmp_path):
    (tmp_path / "report.json").write_text("an older one")
    os.utime(tmp_path / "report.json", (1, 1))  # a process's beginning is known to a hundredth of a second
    ends = ends_of([start(lockstep, "doctor", "--report", "report.json", cwd=tmp_path, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True) for _ in range(3)], 60)
    reports = sorted(path.name for path in tmp_path.glob("report*.json"))
    assert len(reports) == 3 and "report.json" in reports
    assert all(json.loads((tmp_path / name).read_text())["world"] == 1 for name in reports)
    told = [name for name in reports if any(f"report is in {name}:" in err for _, _, err in ends)]
    assert told == [name for name in reports if name != "report.json"], "who writes elsewhere says where"


def test_a_report_that_cannot_be_written_is_said_before_the_work(run, lockstep, tmp_path):
    result = run(lockstep, "doctor", "--report", tmp_path / "none/report.json")
    assert result.returncode == 2 and "--report" in result.stderr and result.stdout == ""


# --- errors of a run's start name the check ---

def test_a_run_that_fails_to_start_names_the_check_that_would_have_told(run, mpirun, mpi, lockstep, tmp_path):
    phantom = run(lockstep, "whoami", env={"SLURM_JOB_ID": 1, "SLURM_NTASKS": 4, "PATH": "/usr/bin:/bin"})
    assert phantom.returncode == 2 and "lockstep doctor, started the same way (its check: launcher)" in phantom.stderr
    shared_library(tmp_path, "libcuda.so.1", GPUS % 1)
    shared = mpirun(2, lockstep, "whoami", env={"LD_LIBRARY_PATH": tmp_path})
    assert "share one GPU" in shared.stderr and "(its check: gpus)" in shared.stderr
    missing = mpirun(2, "sh", "-c", f'[ "${mpi.rank}" = 1 ] && exec sleep 3600; exec "$0" whoami', lockstep, env=QUICK)
    assert missing.returncode != 0 and "(its check: meeting)" in missing.stderr
    usual = run(lockstep, "whoami", "--launcher", "nobody")
    assert usual.returncode == 2 and "doctor" not in usual.stderr
