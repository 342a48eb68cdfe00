"""How a job's ranks are laid out: the arithmetic of the job scripts, over environments that Slurm has given."""

import os

import pytest

from conftest import JOB_LIBRARY

pytestmark = pytest.mark.about("job_scripts")

ASK = f"""
{JOB_LIBRARY}
CPU_FOLDER=$TREE
scontrol() {{ echo "   CPUAlloc=2 CPUEfctv=$CPUS CPUTot=$CPUS CPULoad=0.07"; }}
srun() {{ :; }}
read_allocation
choose_start
sh -c 'echo "fence=$SLURM_PMIX_FENCE"'
echo "$NODES $RANKS $CPUS_PER_RANK"
echo "${{START[*]}}"
"""


@pytest.fixture
def machine(tmp_path):
    """machine(cores, threads) -> the folder in which its kernel lists CPUs."""
    def build(cores, threads):
        for cpu in range(cores * threads):
            folder = tmp_path / f"{cores}x{threads}/cpu{cpu}/topology"
            folder.mkdir(parents=True, exist_ok=True)
            siblings = [str(cpu % cores + cores * thread) for thread in range(threads)]
            (folder / "thread_siblings_list").write_text(",".join(siblings) + "\n")
        return tmp_path / f"{cores}x{threads}"
    return build


@pytest.fixture
def layout(run, machine):
    """layout(cores=, threads=, cpus=, NAME=value...) -> the script's words: nodes ranks cores-of-a-rank, the start."""
    def ask(cores=64, threads=1, cpus=None, check=True, **variables):
        slurm = {"SLURM_JOB_ID": "7", "SLURMD_NODENAME": "n1", **variables}
        return run("bash", "-c", ASK, env={"TREE": machine(cores, threads), "CPUS": cpus or cores * threads, **slurm},
                   check=check)
    return ask


def given(nodes=1, cpus="2", tasks="2", asked=None, **more):
    """What Slurm 22.05 sets: the tasks' layout always, their number only where it was asked for."""
    first = cpus.split("(")[0].split(",")[0]
    return {"SLURM_JOB_NUM_NODES": nodes, "SLURM_JOB_CPUS_PER_NODE": cpus, "SLURM_CPUS_ON_NODE": first,
            "SLURM_TASKS_PER_NODE": tasks, "SLURM_NTASKS": asked, **{f"SLURM_{k}": v for k, v in more.items()}}


LAYOUTS = {
    "tasks and cores": (given(cpus="12", tasks="3", asked=3, CPUS_PER_TASK=4), "1 3 4",
                        "--cpus-per-task=4 --ntasks=3 --ntasks-per-node=3"),
    "whole nodes": (given(2, "32(x2)", "32(x2)"), "2 64 1", "--ntasks=64 --ntasks-per-node=32"),
    "whole nodes, wide ranks": (given(2, "32(x2)", "4(x2)", CPUS_PER_TASK=8), "2 8 8",
                                "--cpus-per-task=8 --ntasks=8 --ntasks-per-node=4"),
    "tasks on whole nodes": (given(2, "32(x2)", "4(x2)", 8), "2 8 8", "--cpus-per-task=8 --ntasks=8"),
    "uneven tasks": (given(2, "32(x2)", "3,2", 5), "2 5 10", "srun --kill-on-bad-exit=1 --cpus-per-task=10"),
    "uneven nodes": (given(2, "32,8", "32,8"), "2 16 1", "--ntasks=16 --ntasks-per-node=8"),
    "GPUs": (given(2, "32(x2)", "32(x2)", GPUS_ON_NODE=4, CPUS_PER_GPU=8), "2 8 8",
             "--cpus-per-task=8 --ntasks=8 --ntasks-per-node=4"),
    "one task for four GPUs": (given(cpus="32", tasks="1", asked=1, CPUS_PER_TASK=32, GPUS_ON_NODE=4), "1 4 8",
                               "--cpus-per-task=8 --ntasks=4 --ntasks-per-node=4"),
    "an outer job's tasks": (given(tasks="2", asked=7), "1 2 1", "--ntasks=2"),
    "more ranks than cores, as told": (given() | {"LOCKSTEP_RANKS_PER_NODE": 4}, "1 4 1", "--ntasks=4 --ntasks-per-node=4 --overcommit"),
    "Slurm counts hardware threads": (given(cpus="16", tasks="16") | {"threads": 2, "cpus": 128}, "1 8 1", "--cpus-per-task=2 "),
    "Slurm counts cores": (given(cpus="16", tasks="16") | {"threads": 2, "cpus": 64}, "1 16 1", "--cpus-per-task=1 "),
    "a rank on each thread, as told": (given(cpus="16", tasks="16") | {"threads": 2, "LOCKSTEP_THREADS_PER_CORE": "1"}, "1 16 1",
                                       "--cpus-per-task=1 "),
    "threads asked for as cpus": (given(cpus="16", tasks="2", asked=2, CPUS_PER_TASK=8) | {"threads": 2}, "1 2 4", "--cpus-per-task=8 "),
    "a kernel that lists no siblings": (given(cpus="4", tasks="4") | {"cores": 0, "cpus": 4}, "1 4 1", ""),
}


def test_ranks_from_what_slurm_gave(layout):
    wrong = {}
    for name, (environment, ranks, start) in LAYOUTS.items():
        lines = layout(**environment).stdout.splitlines()
        if lines[-2] != ranks or start not in lines[-1]:
            wrong[name] = lines
    assert not wrong


def test_every_node_waits_for_the_others_in_mpi_init(layout):
    for own, ranks_have in (({}, "ring"), ({"SLURM_PMIX_FENCE": "tree"}, "tree")):
        assert f"fence={ranks_have}" in layout(**given(2, "2(x2)", "2(x2)"), **own).stdout.splitlines()


def test_a_layout_that_wastes_cores_is_said_and_no_other(layout):
    wasted = given(2, "32(x2)", "32(x2)") | {"LOCKSTEP_RANKS_PER_NODE": 2, "LOCKSTEP_CPUS_PER_RANK": 1}
    assert "4 of the job's 64 cores are used, by 4 ranks of 1" in layout(**wasted).stdout
    assert "4 ranks share 2 core(s) of a node" in layout(**given(2, "2(x2)", "2(x2)", GPUS_ON_NODE=4)).stdout
    assert "warning" not in layout(**given(2, "32(x2)", "32(x2)")).output


def test_gpus_that_lie_unevenly_are_refused(layout):
    refused = layout(check=False, **given(2, "2(x2)", "2(x2)", GPUS_ON_NODE=4, GPUS=6))
    assert refused.returncode == 2 and "6 GPUs do not lie evenly on 2 nodes" in refused.stderr


START = f"""
{JOB_LIBRARY}
DEVICE_FOLDER=$DEVICES
qstat() {{ :; }}
scontrol() {{ :; }}
prepare
printf '%s\\n' "${{START[@]}}"
"""

OPEN_MPI_5 = """
case $* in
  --version) echo "mpirun (Open MPI) 5.0.11" ;;
  *KNOWN=0*) exit 0 ;;
  *) exit 213 ;;
esac"""


@pytest.fixture
def site(run, tmp_path):
    """site(NAME=program text..., env={}) -> how the ranks would be started where those programs are."""
    def ask(env=None, check=True, **programs):
        tools = tmp_path / "tools"
        tools.mkdir(exist_ok=True)
        for name, text in programs.items():
            (tools / name).write_text("#!/bin/bash\n" + text + "\n")
            (tools / name).chmod(0o755)
        (tmp_path / "nodes").write_text("n1\nn1\nn2\nn2\n")
        job = {"PBS_JOBID": "7.server", "PBS_NODEFILE": tmp_path / "nodes", "NCPUS": 8}
        return run("bash", "-c", START, cwd=tmp_path, check=check,
                   env={**job, "PATH": f"{tools}:{os.environ['PATH']}", "DEVICES": tmp_path / "dev",
                        "LOCKSTEP_PROGRAM": "/bin/true", **(env or {})})
    return ask


def words(result):
    return result.stdout.split("lockstep job: start: ")[1].split("\n", 1)[1].splitlines()


def test_pals_gives_a_rank_its_cores(site):
    start = " ".join(words(site(mpiexec="echo PALS 1.2.5", env={"LOCKSTEP_START": "mpiexec"})))
    assert "-n 4 --ppn 2 --depth 4 --cpu-bind depth" in start


def test_open_mpi_5_gets_its_own_words(site):
    for known in ("error-nonzero-status", "abort-nonzero-status"):
        start = words(site(mpirun=OPEN_MPI_5.replace("KNOWN", known),
                           env={"LOCKSTEP_START": "mpirun", "LOCKSTEP_RUN_FILE": "run"}))
        assert f"{known}=0" in start and "plm_ssh_agent" in start
        assert not {"-q", "--mca", "--oversubscribe"} & set(start), "words that its mpirun refuses or does not know"


def test_open_mpi_5_shares_cores_without_binding(site):
    start = words(site(mpirun=OPEN_MPI_5, env={"LOCKSTEP_START": "mpirun", "LOCKSTEP_RANKS_PER_NODE": "16"}))
    assert start[start.index("--map-by") + 1] == "ppr:16:node:oversubscribe"
    assert start[start.index("--bind-to") + 1] == "none"


def test_what_tunes_the_ranks_travels_to_other_nodes(site):
    tuning = {"UCX_TLS": "tcp", "FI_PROVIDER": "cxi", "MKL_CBWR": "AVX2", "KMP_AFFINITY": "compact", "OMPI_MCA_pml": "ob1"}
    start = words(site(mpirun="echo 'mpirun (Open MPI) 4.1.4'", env={"LOCKSTEP_START": "mpirun", **tuning}))
    assert tuning.keys() <= {word for before, word in zip(start, start[1:]) if before == "-x"}


def test_a_setup_file_is_sourced_before_anything_is_looked_for(site, tmp_path):
    (tmp_path / "modules.sh").write_text("set -eu\nset -- lost\nexport LOCKSTEP_PROGRAM=/bin/echo LOCKSTEP_START=mpiexec\n")
    result = site(mpiexec="echo PALS 1.2.5", env={"LOCKSTEP_SETUP": "modules.sh", "LOCKSTEP_PROGRAM": None})
    assert "program /bin/echo" in result.stdout and words(result)[0] == "mpiexec"
    refused = site(env={"LOCKSTEP_SETUP": "nowhere.sh"}, check=False)
    assert refused.returncode == 2 and "LOCKSTEP_SETUP=nowhere.sh: no such file" in refused.stderr


def test_amd_gpus_are_said_and_not_counted(site, tmp_path):
    (tmp_path / "dev").mkdir()
    for device, env, seen in ((None, {"ROCR_VISIBLE_DEVICES": "0,1"}, True), ("kfd", {}, False),
                              (None, {"CUDA_VISIBLE_DEVICES": "0,1,2,3"}, True),
                              ("nvidiactl", {"CUDA_VISIBLE_DEVICES": "0,1"}, False)):
        if device:
            (tmp_path / "dev" / device).touch()
        result = site(mpiexec="echo PALS 1.2.5", env={"LOCKSTEP_START": "mpiexec", **env})
        assert ("GPUs are AMD's, which lockstep cannot use: it trains on the CPU" in result.stdout) == seen, (device, env)
        assert "4 ranks on 2 node(s)" in result.stdout, "two tasks a node were asked for, and no NVIDIA GPU more"


def test_on_one_node_open_mpi_stays_off_the_network(run):
    ask = JOB_LIBRARY + 'NODES=$N; keep_mpi_off_the_network; echo "$OMPI_MCA_btl"'
    told = [run("bash", "-c", ask, env={"N": nodes, "OMPI_MCA_btl": own}, check=True).stdout.strip()
            for nodes, own in ((1, None), (1, "self,sm"), (2, None))]
    assert told == ["^tcp,ofi,openib,uct", "self,sm", ""]


PBS = """
qstat() { cat "$RECORD"; }
pbsnodes() { echo "     resources_available.ncpus = $CPUS"; }
"""


@pytest.fixture
def pbs_layout(run, machine, tmp_path):
    """pbs_layout(select, hosts, exec_host, exec_vnode) -> nodes ranks cores-of-a-rank; hosts as the node file has them."""
    def ask(select, hosts, exec_host, exec_vnode, cores=64, threads=1, **variables):
        (tmp_path / "nodes").write_text("".join(f"{host}.site.org\n" for host in hosts.split()))
        (tmp_path / "record").write_text(f"Job Id: 1.x\n    exec_host = {exec_host}\n    exec_vnode = {exec_vnode[:20]}\n"
                                         f"\t{exec_vnode[20:]}\n    Resource_List.select = {select}\n")
        pbs = {"PBS_JOBID": "1.x", "PBS_NODEFILE": tmp_path / "nodes", "NCPUS": "2", "RECORD": tmp_path / "record",
               "LOCKSTEP_START": "mpirun", **variables}
        words = PBS + ASK.replace("scontrol", "unused")
        return run("bash", "-c", words, env={"TREE": machine(cores, threads), "CPUS": cores * threads, **pbs},
                   check=True).stdout.splitlines()[-2]
    return ask


PBS_LAYOUTS = {
    "ranks on a node": ("1:ncpus=8:mpiprocs=2", "a a", "a/0*8", "(a:ncpus=8)", "1 2 4"),
    "nothing said of ranks": ("1:ncpus=8", "a", "a/0*8", "(a:ncpus=8)", "1 8 1"),
    "chunks on one host": ("2:ncpus=2", "a a", "a/0*2+a/1*2", "(a:ncpus=2)+(a:ncpus=2)", "1 2 2"),
    "chunks on two hosts": ("2:ncpus=2", "a b", "a/0*2+b/0*2", "(a:ncpus=2)+(b:ncpus=2)", "2 4 1"),
    "GPUs of chunks on one host": ("2:ncpus=8:ngpus=4", "a a", "a/0*8+a/1*8",
                                   "(a:ncpus=8:ngpus=4)+(a:ncpus=8:ngpus=4)", "1 8 2"),
    "a chunk over a host's vnodes": ("2:ncpus=8:ngpus=2", "a b", "a/0*8+b/0*8",
                                     "(a[0]:ncpus=4:ngpus=1:mem=1.5gb+a[1]:ncpus=4:ngpus=1)+(b[0]:ncpus=8:ngpus=2)", "2 4 4"),
    "uneven chunks": ("1:ncpus=8:mpiprocs=2+1:ncpus=2:mpiprocs=1", "a a b", "a/0*8+b/0*2", "(a:ncpus=8)+(b:ncpus=2)", "2 3 2"),
    "uneven chunks of GPUs": ("1:ncpus=8:ngpus=4+1:ncpus=2:ngpus=2", "a b", "a/0*8+b/0*2",
                              "(a:ncpus=8:ngpus=4)+(b:ncpus=2:ngpus=2)", "2 4 1"),
    "no record": ("", "a a", "", "", "1 2 1"),
}


def test_ranks_from_what_pbs_gave(pbs_layout):
    found = {name: pbs_layout(*job) for name, (*job, _) in PBS_LAYOUTS.items()}
    assert found == {name: ranks for name, (*_, ranks) in PBS_LAYOUTS.items()}
    job = ("1:ncpus=16:mpiprocs=2", "a a", "a/0*16", "(a:ncpus=16)")
    assert pbs_layout(*job, threads=2, CPUS=128) == "1 2 4", "PBS counts hardware threads"
    assert pbs_layout(*job, threads=2, CPUS=64) == "1 2 8", "PBS counts cores"


def test_a_signal_before_the_ranks_start_is_not_lost(run):
    """It came while the script was looking at files: prepare has set the traps, and nobody was there to tell."""
    early = f"""
{JOB_LIBRARY}
find_program() {{ :; }}
prepare
kill -s TERM $$
START=(sleep)
run_ranks 60
"""
    result = run("bash", "-c", early, env={"TREE": "/nowhere", **given()} | {"SLURM_JOB_ID": "7"})
    assert result.returncode == 128 + 15
    assert "got SIGTERM, telling the ranks" in result.stdout
