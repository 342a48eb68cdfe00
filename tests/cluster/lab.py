#!/usr/bin/env python3
"""A real Slurm cluster of two nodes, or of up to nine, in namespaces of one machine.

Everything of the lab lives in one PID namespace: when its first process ends, the kernel ends the rest, so
nothing is left behind whatever happens. Each node is a PID, network, host-name and mount namespace inside it;
killing a node's first process is what a power cut is. Needs root and Debian's slurmctld, slurmd,
slurm-client, munge, iproute2.

    lab.py FOLDER [COMMAND...]     start a lab, run COMMAND (default: a shell) on its login host, take it down

With scheduler="pbs" the nodes run the MoM of pbs.py in place of slurmd: OpenPBS's environment and manners, for
scripts, without OpenPBS.
"""
import contextlib
import ctypes
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

PATIENCE = 540  # seconds, the end of a wait that a busy machine makes long
LOGIN = "login"
NETWORK = "10.213.7"
MOST_NODES = 9
ADDRESS = {LOGIN: f"{NETWORK}.1", **{f"n{i}": f"{NETWORK}.1{i}" for i in range(1, MOST_NODES + 1)}}
NEW_NAMESPACES = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc", "--net", "--uts", "--mount"]
AS_ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
PROGRAMS = {"slurm": ("slurmctld", "slurmd", "srun", "sbatch", "munged", "ip", "unshare", "nsenter"),
            "pbs": ("ip", "unshare", "nsenter")}

# cred_expire is also how long Slurm lets a requeued job wait (120 s by default).
SLURM_CONF = """
ClusterName=lab
SlurmctldHost={login}({login_address})
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket,cred_expire=5
CryptoType=crypto/munge
SlurmctldPort=16817
SlurmdPort=16818
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.%n.pid
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool.%n
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.%n.log
ProctrackType=proctrack/pgid
TaskPlugin=task/none
SwitchType=switch/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
DefMemPerCPU=1000
MpiDefault=pmix
ReturnToService=2
SlurmdTimeout={slurmd_timeout}
SlurmctldTimeout=30
KillWait=30
MinJobAge=600
InactiveLimit=0
MessageTimeout=20
SchedulerParameters=sched_interval=1,batch_sched_delay=0,bf_interval=1
SchedulerType=sched/backfill
JobRequeue=1
JobCompType=jobcomp/filetxt
JobCompLoc={folder}/completed
SlurmdParameters=config_overrides
{node_lines}
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
PartitionName=main Nodes={nodes} Default=YES MaxTime=INFINITE State=UP PriorityTier=1 GraceTime=20
PartitionName=urgent Nodes={nodes} MaxTime=INFINITE State=UP PriorityTier=10 PreemptMode=OFF
"""

def why_not(scheduler="slurm"):
    """The reason this machine cannot hold a lab, or None."""
    if os.geteuid() != 0:
        return "making namespaces needs root"
    missing = [p for p in PROGRAMS[scheduler] if not find(p)]
    if missing:
        return "not installed: " + ", ".join(missing)
    tried = subprocess.run(NEW_NAMESPACES + ["true"], capture_output=True, text=True)
    if tried.returncode:
        return "no namespaces here: " + tried.stderr.strip()
    return None


def find(program):
    return shutil.which(program, path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin")


def sh(*argv):
    subprocess.run(argv, check=True)


def die_with_parent():
    """The kernel takes the lab down when the process that started it is gone, however it went."""
    pr_set_pdeathsig = 1
    ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGKILL)


def first_child(pid, within=PATIENCE):
    """unshare --fork leaves its child as the namespace's first process; its pid as seen from here."""
    until = time.time() + within
    while time.time() < until:
        try:
            children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        except FileNotFoundError:
            break
        if children:
            return int(children[0])
        time.sleep(0.01)
    raise RuntimeError("a namespace did not start")


class Lab:
    """The lab seen from outside: start it, run commands on its login host, kill a node, stop it."""

    def __init__(self, folder, scheduler="slurm", nodes=2, slurmd_timeout=10):
        """slurmd_timeout: seconds after which Slurm holds a silent node for dead; 300 by default on a real cluster."""
        self.folder = Path(folder).resolve()
        self.scheduler = scheduler
        self.nodes = tuple(f"n{i}" for i in range(1, nodes + 1))
        self.slurmd_timeout = slurmd_timeout
        self.process = None

    def start(self, within=PATIENCE):
        self.folder.mkdir(parents=True, exist_ok=True)
        self.folder.chmod(0o755)
        (self.folder / "nodes").write_text("".join(f"{node}\n" for node in self.nodes))
        log = open(self.folder / "lab.log", "w")
        self.process = subprocess.Popen(
            NEW_NAMESPACES + [sys.executable, str(Path(__file__).resolve()), "--inside", str(self.folder),
                              self.scheduler, str(self.slurmd_timeout)],
            stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True, preexec_fn=die_with_parent)
        self.init = first_child(self.process.pid)
        until = time.time() + within
        while not (self.folder / "ready").exists():
            if self.process.poll() is not None or time.time() > until:
                text = (self.folder / "lab.log").read_text()
                self.stop()
                raise RuntimeError("the lab did not start:\n" + text)
            time.sleep(0.05)
        return self

    def stop(self):
        if self.process and self.process.poll() is None:
            os.kill(self.init, signal.SIGKILL)  # the kernel ends every process of the PID namespace
            self.process.wait(PATIENCE)
        self.process = None

    __enter__ = start

    def __exit__(self, *_):
        self.stop()

    def argv(self, command, cwd):
        # what the job scripts set: with Slurm 22.05's default srun --mpi=pmix does not wait for the other nodes in MPI_Init
        fence = ["env", "SLURM_PMIX_FENCE=ring"] if command[0] in ("srun", "salloc") else []
        return ["nsenter", "--target", str(self.init), "--all", f"--wd={cwd}", *fence, *map(str, command)]

    def environment(self, extra=None):
        keep = {k: v for k, v in os.environ.items() if not k.startswith(("SLURM_", "OMPI_", "PMI", "PBS_"))}
        keep.update(AS_ROOT, **(extra or {}))
        if self.scheduler == "pbs":
            keep["PBS_LAB"] = str(self.folder)
            keep["PATH"] = f"{self.folder}/bin:{keep['PATH']}"
        else:
            keep["SLURM_CONF"] = str(self.folder / "slurm.conf")
        return keep

    def run(self, *command, cwd="/", env=None, timeout=PATIENCE, check=True):
        """Runs a command on the login host."""
        done = subprocess.run(self.argv(command, cwd), env=self.environment(env), stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, timeout=timeout)
        if check and done.returncode:
            raise RuntimeError(f"{command} left with {done.returncode}:\n{done.stdout}{done.stderr}")
        return done

    def popen(self, *command, cwd="/", env=None, **options):
        return subprocess.Popen(self.argv(command, cwd), env=self.environment(env), **options)

    def job(self, job_id):
        """What Slurm says of a job, as a dict."""
        text = self.run("scontrol", "show", "job", "--oneliner", str(job_id)).stdout
        return dict(word.split("=", 1) for word in text.split() if "=" in word)

    def submit(self, *arguments, cwd="/", env=None):
        return self.run("sbatch", "--parsable", *arguments, cwd=cwd, env=env).stdout.strip().split(";")[0]

    def wait(self, job_id, states=("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL"), within=PATIENCE):
        until = time.time() + within
        while time.time() < until:
            job = self.job(job_id)
            if job["JobState"] in states:
                return job
            time.sleep(0.25)
        raise TimeoutError(f"job {job_id} is {job['JobState']} after {within} s, wanted one of {states}")

    def node_init(self, node):
        """The pid, seen from outside, of a node's first process."""
        inside = (self.folder / f"{node}.pid").read_text().strip()
        for child in descendants(self.init):
            if pid_inside(child) == inside:
                return first_child(child)
        raise RuntimeError(f"{node} is not running")

    def processes(self, name):
        """The pids, seen from outside, of the programs of that name on all nodes."""
        return [pid for pid in descendants(self.init) if Path(f"/proc/{pid}/comm").read_text() == f"{name}\n"]

    def kill_node(self, node):
        os.kill(self.node_init(node), signal.SIGKILL)

    def cut_node(self, node):
        """Its cable is pulled: packets vanish, and nothing tells so."""
        self.run("ip", "link", "set", f"to-{node}", "nomaster")

    def boot_node(self, node):
        (self.folder / f"{node}.boot").touch()


def nodes_of(folder):
    return (folder / "nodes").read_text().split()


def descendants(pid):
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except (FileNotFoundError, ProcessLookupError):  # it has ended, perhaps while its file was read
        return
    for child in map(int, children):
        yield child
        yield from descendants(child)


def pid_inside(pid):
    """The pid that a process of the lab's namespace has inside it."""
    try:
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("NSpid:"):
                numbers = line.split()[1:]
                return numbers[1] if len(numbers) == 2 else None
    except (FileNotFoundError, ProcessLookupError):
        pass
    return None


# ---- what runs inside ------------------------------------------------------------------------------------


def private_mounts(folder, host):
    sh("mount", "--make-rprivate", "/")
    sh("mount", "--bind", str(folder / "hosts"), "/etc/hosts")
    sh("mount", "-t", "tmpfs", "tmpfs", "/dev/shm")
    subprocess.run(["hostname", host], check=True)
    sh("ip", "link", "set", "lo", "up")


def private_tmp():
    """A /tmp of the node's own, as on a real node, but for the folders that lie there now: a test's, a checkout's."""
    kept = [path for path in Path("/tmp").iterdir()
            if path.is_dir() and not path.is_symlink() and not path.name.startswith(("ompi.", "spmix_", "pmix"))]
    handles = {}
    for path in kept:
        with contextlib.suppress(FileNotFoundError):  # another test's, removed meanwhile
            handles[path] = os.open(path, os.O_PATH)
    sh("mount", "-t", "tmpfs", "tmpfs", "/tmp")
    os.chmod("/tmp", 0o1777)
    sh("mount", "-t", "tmpfs", "tmpfs", "/var/tmp")
    for path, handle in handles.items():
        path.mkdir()
        bound = subprocess.run(["mount", "--no-canonicalize", "--rbind", f"/proc/self/fd/{handle}", path],
                               pass_fds=[handle], capture_output=True, text=True)
        if bound.returncode and os.fstat(handle).st_nlink:  # without a link it was removed since it was opened
            sys.exit(f"{path}: {bound.stderr}")
        os.close(handle)


def node_main(folder, node, scheduler):
    """The first process of a node: names it, waits for its cable, starts slurmd, and reaps."""
    private_mounts(folder, node)
    private_tmp()
    until = time.time() + PATIENCE
    while subprocess.run(["ip", "link", "show", "eth0"], capture_output=True).returncode:
        if time.time() > until:
            sys.exit(f"{node}: no network came")
        time.sleep(0.02)
    sh("ip", "address", "add", f"{ADDRESS[node]}/24", "dev", "eth0")
    sh("ip", "link", "set", "eth0", "up")
    # a node without a disk starts empty: the PMIx socket of a step that the power cut ended would be in the way
    shutil.rmtree(folder / f"spool.{node}", ignore_errors=True)
    (folder / f"spool.{node}").mkdir()
    if scheduler == "pbs":
        os.environ["PBS_LAB"] = str(folder)
        os.execv(sys.executable, [sys.executable, str(Path(__file__).with_name("pbs.py")), "mom", str(folder), node])
    subprocess.Popen([find("slurmd"), "-D", "-N", node, "-f", str(folder / "slurm.conf")],
                     env={**os.environ, "SLURM_CONF": str(folder / "slurm.conf")})
    reap_for_ever()


def reap_for_ever(every=None):
    signal.signal(signal.SIGCHLD, lambda *_: None)
    while True:
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            pass
        if every:
            every()
        signal.sigtimedwait([signal.SIGCHLD], 0.2)


def boot(folder, node, scheduler):
    process = subprocess.Popen(NEW_NAMESPACES + [sys.executable, __file__, "--node", str(folder), node, scheduler])
    first = first_child(process.pid)
    (folder / f"{node}.pid").write_text(str(process.pid))
    subprocess.run(["ip", "link", "delete", f"to-{node}"], capture_output=True)
    sh("ip", "link", "add", f"to-{node}", "type", "veth", "peer", "name", "eth0", "netns", str(first))
    sh("ip", "link", "set", f"to-{node}", "master", "lan", "up")


def inside(folder, scheduler, slurmd_timeout):
    """The first process of the lab: login host and controller; boots the nodes."""
    (folder / "hosts").write_text("127.0.0.1 localhost\n" +
                                  "".join(f"{address} {host}\n" for host, address in ADDRESS.items()))
    private_mounts(folder, LOGIN)
    # without an address of its own it takes a port's, and another one when that port goes: nobody would reach the login host
    sh("ip", "link", "add", "lan", "address", "02:00:0a:d5:07:01", "type", "bridge")
    sh("ip", "address", "add", f"{ADDRESS[LOGIN]}/24", "dev", "lan")
    sh("ip", "link", "set", "lan", "up")
    all_up = start_pbs(folder) if scheduler == "pbs" else start_slurm(folder, slurmd_timeout)
    for node in nodes_of(folder):
        boot(folder, node, scheduler)
    until = time.time() + PATIENCE
    while not all_up():
        if time.time() > until:
            sys.exit("the nodes did not come up")
        time.sleep(0.1)
    (folder / "ready").touch()

    def boot_the_asked():
        for node in nodes_of(folder):
            if (folder / f"{node}.boot").exists():
                (folder / f"{node}.boot").unlink()
                boot(folder, node, scheduler)

    reap_for_ever(boot_the_asked)


def start_slurm(folder, slurmd_timeout):
    nodes = nodes_of(folder)
    lines = [f"NodeName={node} NodeAddr={ADDRESS[node]} CPUs=32 Sockets=1 CoresPerSocket=32 ThreadsPerCore=1 RealMemory=32000 State=UNKNOWN"
             for node in nodes]
    (folder / "slurm.conf").write_text(SLURM_CONF.format(
        folder=folder, login=LOGIN, login_address=ADDRESS[LOGIN], slurmd_timeout=slurmd_timeout, nodes=",".join(nodes),
        node_lines="\n".join(lines)))
    (folder / "state").mkdir(exist_ok=True)
    (folder / "munge.key").write_bytes(os.urandom(128))
    (folder / "munge.key").chmod(0o600)
    munge = [f"--{name}={folder}/munge.{name.split('-')[0]}" for name in ("key-file", "pid-file", "seed-file")]
    sh(find("munged"), "--force", f"--socket={folder}/munge.socket", f"--log-file={folder}/munge.log", *munge)
    environment = {**os.environ, "SLURM_CONF": str(folder / "slurm.conf")}
    subprocess.Popen([find("slurmctld"), "-D", "-f", str(folder / "slurm.conf")], env=environment)

    def all_up():
        idle = subprocess.run(["sinfo", "-h", "-N", "-t", "idle", "-o", "%N"], capture_output=True, text=True,
                              env=environment)
        return set(idle.stdout.split()) == set(nodes)

    return all_up


def start_pbs(folder):
    commands = folder / "bin"
    commands.mkdir()
    (folder / "jobs").mkdir()
    (folder / "home").mkdir()
    # a job begins with a login shell: this is what the site's profile does
    (folder / "home/.bash_profile").write_text(f'export PATH="{commands}:$LAB_PATH"\n')
    for name in ("qsub", "qstat", "qdel", "qsig", "qrerun", "pbs_tmrsh", "pbsnodes"):
        (commands / name).symlink_to(Path(__file__).resolve().with_name("pbs.py"))
    return lambda: all((folder / f"mom.{node}").exists() for node in nodes_of(folder))


def main():
    if sys.argv[1:2] == ["--inside"]:
        inside(Path(sys.argv[2]), sys.argv[3], sys.argv[4])
    elif sys.argv[1:2] == ["--node"]:
        node_main(Path(sys.argv[2]), sys.argv[3], sys.argv[4])
    elif len(sys.argv) < 2 or sys.argv[1].startswith("-"):
        sys.exit(__doc__)
    else:
        reason = why_not()
        if reason:
            sys.exit("no lab here: " + reason)
        with Lab(sys.argv[1]) as lab:
            command = sys.argv[2:] or ["bash", "-i"]
            sys.exit(subprocess.call(lab.argv(command, os.getcwd()), env=lab.environment()))


if __name__ == "__main__":
    main()
