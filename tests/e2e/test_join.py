"""How ranks that nobody started as a job find each other: worlds set by hand, in shells, on nodes of their own."""

import json
import os
import socket
import subprocess

import pytest
from process_kit import ends_of, shared_library
from train_kit import PIMA, sets, write_config

pytestmark = pytest.mark.about("comm/rendezvous")


@pytest.fixture
def by_hand(start, free_port):
    """by_hand(args of rank 0, args of rank 1, ...) -> the ends of ranks with the exports that everybody writes."""
    def begin(*commands):
        base = dict(WORLD_SIZE=len(commands), MASTER_ADDR="127.0.0.1", MASTER_PORT=free_port())
        return ends_of([start(*args, env={**base, "RANK": rank, "LOCAL_RANK": rank}, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              text=True) for rank, args in enumerate(commands)])
    return begin


# Two nodes: a network, a loopback, a host name, a home and a temporary folder of their own each, and a cable between.
TWO_NODES = """
ip link set lo up && hostname node0 || exit 77
unshare --net --uts sleep 3600 & other=$!
until [ "$(readlink /proc/$other/ns/net)" != "$(readlink /proc/$$/ns/net)" ]; do sleep 0.02; done
ip link add eth0 type veth peer name eth0 netns $other || exit 77
ip addr add 10.99.0.1/24 dev eth0 && ip link set eth0 up || exit 77
far=$(mktemp -d)
there() { nsenter --target $other --net --uts env HOME=$far TMPDIR=$far "$@"; }
there sh -c 'ip link set lo up; hostname node1; ip addr add 10.99.0.2/24 dev eth0; ip link set eth0 up' || exit 77
export MASTER_ADDR=10.99.0.1 GLOO_SOCKET_IFNAME=eth0 WORLD_SIZE=3
"""
END = """
for job in "${jobs[@]}"; do wait $job || status=1; done
kill $other
rmdir $far
exit ${status:-0}
"""


def on_two_nodes(start, script, *args, **env):
    job = start("unshare", "--net", "--uts", "bash", "-c", TWO_NODES + script + END, "ranks", *args, env=env,
                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    (status, out, err), = ends_of([job])
    if status == 77 or "unshare" in err:
        pytest.skip(f"no namespaces or veth pair here: {err.strip()[-200:]}")
    return status, out, err


@pytest.mark.parametrize("exports", [
    "LOCAL_RANK={local} NODE_RANK={node}",   # as Lightning's users do
    "",                                      # RANK and WORLD_SIZE alone
], ids=["lightning", "bare"])
def test_exports_by_hand_join_across_uneven_nodes(start, lockstep, peer, free_port, exports):
    """Two ranks and one: the layout that nobody told is found when they meet, and the sum goes over the cable."""
    first, second, third = (exports.format(local=local, node=node) for local, node in ((0, 0), (1, 0), (0, 1)))
    script = f"""
run() {{
  {{ there env RANK=2 {third} "$@"; }} & jobs=($!)   # they try to connect before rank 0 listens
  env RANK=1 {second} "$@" & jobs+=($!)
  env RANK=0 {first} "$@" & jobs+=($!)
}}
run "$1" whoami --json; wait "${{jobs[@]}}"
MASTER_PORT=$3
run "$2" gloo 10000 10000 2
"""
    status, out, err = on_two_nodes(start, script, lockstep, peer, free_port(), MASTER_PORT=free_port())
    assert status == 0, err
    report, _ = json.JSONDecoder().raw_decode(out)
    assert report["complete"] is True and report["nodes"] == 2
    places = [(rank["local_rank"], rank["local_world"], rank["node_rank"], rank["host"]) for rank in report["ranks"]]
    assert places == [(0, 2, 0, "node0"), (1, 2, 0, "node0"), (0, 1, 1, "node1")]
    assert not any(rank["warnings"] for rank in report["ranks"]), "what was found is no guess"
    for rank in range(3):
        assert f"done {rank}" in out


def test_exports_by_hand_on_one_node_listen_on_the_loopback_alone(start, peer, free_port, tmp_path):
    """MASTER_ADDR names the host as others reach it: rank 0 listens there until it knows that nobody needs to."""
    (tmp_path / f"lockstep-{os.getuid()}").mkdir(0o755)  # as another user could make it, to have a store on a port
    env = dict(WORLD_SIZE=2, MASTER_ADDR=socket.gethostname(), MASTER_PORT=free_port(), TMPDIR=tmp_path)
    ranks = [start(peer, "gloo", 20_000, 20_000, 2, env={**env, "RANK": rank}, stdout=subprocess.PIPE,
                   stderr=subprocess.PIPE, text=True) for rank in range(2)]
    for status, out, err in ends_of(ranks):
        assert status == 0, err
        gloo, = (line for line in out.splitlines() if line.startswith("listening"))
        assert gloo.startswith("listening 0100007F:")


@pytest.mark.mpi
def test_an_mpirun_that_only_wraps(mpirun, mpi, lockstep, free_port):
    script = (f"export RANK=${mpi.rank} WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT={free_port()}; "
              f"exec {lockstep} whoami --json")
    report = json.loads(mpirun(2, "bash", "-c", script, check=True).stdout)
    assert report["launcher"] == "torchrun" and report["complete"] is True
    assert [(rank["local_rank"], rank["local_world"]) for rank in report["ranks"]] == [(0, 2), (1, 2)]


def pima(source_dir, lockstep, *settings):
    more = [word for setting in settings for word in ("--set", setting)]
    return [lockstep, "train", source_dir / "configs/pima.yaml", *sets(train__max_steps=2, train__eval_every=0), *more]


def test_ranks_that_were_told_different_things_do_not_train(by_hand, lockstep, source_dir, tmp_path):
    place = f"run.dir={tmp_path}"
    ends = by_hand(pima(source_dir, lockstep, place), pima(source_dir, lockstep, place),
                   pima(source_dir, lockstep, place, "optim.lr=0.5", "data.batch_size=7"))
    assert [status for status, _, _ in ends] == [2] * 3, ends
    said = "".join(err for _, _, err in ends)  # one may speak for all
    assert "optim.lr is 0.01 on rank 0, 0.5 on rank 2" in said, said
    assert "data.batch_size is " in said and "7 on rank 2" in said and "hint:" in said
    assert not list(tmp_path.iterdir()), "nothing was trained"


def test_without_rank_zero_the_wait_ends(run, peer, tmp_path):
    """Of a step of srun's, whose ranks meet by a file."""
    step = dict(SLURM_JOB_ID=77, SLURM_STEP_ID=0, SLURM_STEP_NUM_TASKS=2, SLURM_NODEID=0, SLURM_STEP_NUM_NODES=1,
                SLURM_STEP_TASKS_PER_NODE="2", SLURM_NTASKS=2, SLURM_PROCID=1, SLURM_LOCALID=1, TMPDIR=tmp_path)
    done = run(peer, "gloo", 20_000, 1000, 2, env=step)
    assert done.returncode == 1 and "rank 0 did not join within 1 s" in done.stderr, done.output


def test_the_configs_launcher_overrides_the_environment(run, lockstep, tmp_path):
    config = write_config(tmp_path, PIMA + "launch: {launcher: none}\n")
    args = [lockstep, "train", config, *sets(train__max_steps=1, train__eval_every=0, run__dir=tmp_path / "runs")]
    # as an sbatch script without srun, and with exports whose other rank never comes
    for env in (dict(SLURM_JOB_ID=1, SLURM_NTASKS=4, SLURM_PROCID=0), dict(RANK=0, WORLD_SIZE=2)):
        result = run(*args, env={**env, "PATH": "/usr/bin:/bin"})
        assert result.returncode == 0, result.output
        assert "on 1 rank" in result.output
    result = run(*args, "--launcher", "torchrun", env={})
    assert result.returncode == 2 and "'torchrun' was chosen" in result.stderr, "--launcher comes first"


STOP = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
static int calls;
static int reach(const char *call) {
  const char *rank = getenv("RANK_VARIABLE"), *where = getenv("STOP_AT");
  char here[40];
  snprintf(here, sizeof here, "%s %d", call, ++calls);
  if (!rank || strcmp(rank, "1")) return 0;
  if (!where) fprintf(stderr, "reached %s\\n", here);
  if (where && !strcmp(where, here)) raise(SIGSTOP);
  return 0;
}
int MPI_Isend(void *a, long b, void *c, long d, long e, void *f, void *g) {
  reach("MPI_Isend");
  return ((int (*)(void *, long, void *, long, long, void *, void *))dlsym(RTLD_NEXT, "MPI_Isend"))(a, b, c, d, e, f, g);
}
int MPI_Finalize(void) {
  reach("MPI_Finalize");
  return ((int (*)(void))dlsym(RTLD_NEXT, "MPI_Finalize"))();
}
"""


@pytest.mark.mpi
def test_a_rank_that_is_stopped_anywhere_holds_nobody(mpirun, mpi, lockstep, tmp_path):
    shim = shared_library(tmp_path, "stop.so", STOP.replace("RANK_VARIABLE", mpi.rank))
    env = {"LD_PRELOAD": shim}
    passed = mpirun(2, lockstep, "whoami", env=env, check=True).stderr
    places = [line.removeprefix("reached ") for line in passed.splitlines() if line.startswith("reached ")]
    assert len(places) > 2 and places[-1].startswith("MPI_Finalize"), passed
    for place, words, limit in ((places[0], "rank 1 did not join the group", {"LOCKSTEP_JOIN_TIMEOUT": 3}),
                                (places[-2], "rank 1 did not reach the end of the job", {"LOCKSTEP_LEAVE_TIMEOUT": 1}),
                                (places[-1], "MPI_Finalize did not end", {"LOCKSTEP_LEAVE_TIMEOUT": 1})):
        result = mpirun(2, lockstep, "whoami", env={**env, **limit, "STOP_AT": place})
        assert result.returncode != 0
        assert words in result.stderr, f"{place}: {result.output}"
        assert result.left_behind == []


ONE_GPU = """
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
int cuInit(unsigned flags) { return 0; }
int cuDeviceGetCount(int *count) { *count = 1; return 0; }
int cuDeviceGet(int *device, int index) { *device = index; return 0; }
int cuDeviceGetUuid_v2(unsigned char *uuid, int device) {
  for (int i = 0; i < 16; ++i) uuid[i] = i + device;
  if (getenv("SLICES")) *(int *)uuid = getpid();
  return 0;
}
int cuDeviceGetPCIBusId(char *bus, int length, int device) { return snprintf(bus, length, "0000:17:%02d.0", device) < 0; }
"""


@pytest.mark.mpi
def test_ranks_that_share_a_gpu_are_refused_early(mpirun, lockstep, source_dir, tmp_path):
    shared_library(tmp_path, "libcuda.so.1", ONE_GPU)
    uuid = "GPU-000102030405060708090a0b0c0d0e0f"
    env = {"LD_LIBRARY_PATH": tmp_path}
    result = mpirun(3, *pima(source_dir, lockstep, f"run.dir={tmp_path}/runs"), env=env)
    assert result.returncode == 2, result.output
    assert f"ranks 0, 1 and 2 share one GPU ({uuid}" in result.stderr and "hint:" in result.stderr
    table = mpirun(2, lockstep, "whoami", env=env)
    assert table.returncode == 2 and "ranks 0 and 1 share one GPU" in table.stderr
    assert "cuda:0" in table.stdout, "the table comes first"
    mpirun(2, lockstep, "whoami", env={**env, "NCCL_MULTI_RANK_GPU_ENABLE": "1"}, check=True)
    # their UUIDs differ, and their bus does not: NCCL takes them for one GPU
    slices = mpirun(2, lockstep, "whoami", env={**env, "SLICES": "1"})
    assert slices.returncode == 2 and "ranks 0 and 1 use parts (MIG) of one GPU" in slices.stderr, slices.output


def test_torchruns_own_store_carries_the_meeting(start, lockstep, source_dir, tmp_path):
    """Its agent listens at MASTER_PORT, so rank 0 must not."""
    python = source_dir / ".deps/python/bin/python3"
    if not python.exists():
        pytest.skip("no Python with torch")
    script = ('"$0" whoami --json >"$1/seats.$RANK" && '
              '{ [ "$RANK" = 1 ] && other="--set optim.lr=0.5"; exec "$0" train "$2" --set run.dir="$1/runs" '
              '--set train.max_steps=1 $other; }')
    job = start(python, "-m", "torch.distributed.run", "--no-python", "--standalone", "--nproc-per-node=2", "bash", "-c",
                script, lockstep, tmp_path, source_dir / "configs/pima.yaml", stdout=subprocess.PIPE,
                stderr=subprocess.PIPE, text=True)
    (status, out, err), = ends_of([job])
    report = json.loads((tmp_path / "seats.0").read_text())
    assert report["complete"] is True and [rank["local_rank"] for rank in report["ranks"]] == [0, 1]
    assert status != 0 and "optim.lr is 0.01 on rank 0, 0.5 on rank 1" in err, err
    assert not (tmp_path / "runs").exists()


DEAD_NAME_SERVICE = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <netdb.h>
#include <string.h>
#include <unistd.h>
typedef int ask(const char *, const char *, const struct addrinfo *, struct addrinfo **);
int getaddrinfo(const char *host, const char *port, const struct addrinfo *hints, struct addrinfo **found) {
  if (host && !strcmp(host, "nobody.example") && !(hints && hints->ai_flags & AI_NUMERICHOST)) {
    sleep(600);
    return EAI_AGAIN;
  }
  return ((ask *)dlsym(RTLD_NEXT, "getaddrinfo"))(host, port, hints, found);
}
"""


def test_a_dead_name_service_does_not_outlast_the_time_to_join(run, lockstep, source_dir, tmp_path, free_port):
    shim = shared_library(tmp_path, "names.so", DEAD_NAME_SERVICE)
    env = {"LD_PRELOAD": shim, "RANK": 1, "WORLD_SIZE": 2, "LOCAL_RANK": 0, "LOCAL_WORLD_SIZE": 1, "GROUP_RANK": 1,
           "MASTER_ADDR": "nobody.example", "MASTER_PORT": free_port()}
    result = run(lockstep, "train", source_dir / "configs/pima.yaml", "--set", "launch.join_timeout=2s", env=env, cwd=tmp_path)
    assert result.returncode == 1, result.output
    assert "nobody.example" in result.stderr, result.output
