#!/usr/bin/env python3
"""What a user and a job script see of OpenPBS 23.06, on the two nodes of lab.py: a stand-in, not a scheduler.

As strict as the real one where a script can tell, tried side by side: directives, -v, -l and -N as qsub reads and
refuses them, routing queues, quotes of -v's values turned into backslashes, the script spooled and started as a copy,
qstat -f with its wrapped lines. pbs_mom.py is the other half. Jobs start at once: nothing is queued but dependencies.

Called by the names of its commands, and as `pbs.py mom FOLDER NODE`.
"""
import contextlib
import copy
import os
import re
import shlex
import socket
import sys
import time
from pathlib import Path

from pbs_mom import ask, end_job, mom, pbs_o, signal_job
from pbs_record import FROM_ROUTE_ONLY, NODE_CPUS, QUEUES, SERVER, chunks, lab, load, next_id, nodes, output_path, save

MOM_PORT = 15003

# resources of a chunk, which may not stand beside select
OF_A_CHUNK = {"ncpus", "mem", "vmem", "mpiprocs", "ompthreads", "ngpus", "nodes", "host", "arch", "vnode"}
FIELDS = {"N": "name", "q": "queue", "P": "project", "A": "account", "j": "join", "o": "output", "e": "error", "r": "rerunable",
          "k": "keep", "J": "array", "m": "mail_points", "M": "mail_users", "S": "shell", "p": "priority", "C": "prefix"}
QUOTED = r""" "[^"]*" | '[^']*' """


def refuse(text, status=1):
    print(f"qsub: {text}", file=sys.stderr)
    sys.exit(status)


# ---- qsub's options ---------------------------------------------------------------------------------------


def split_commas(text):
    """-v's list: commas separate, quotes protect them and go."""
    words = re.findall(rf"(?x) ( (?: {QUOTED} | \\, | [^,] )+ )", text)
    return [re.sub(r"""['"]|\\(?=,)""", "", word) for word in words]


def mangled(value):
    """What a job gets of a -v value: backslashes double, then each of two quotes is a backslash; one alone is refused."""
    if re.search("['\"]", re.sub(f"(?x){QUOTED}", "", value)):
        refuse("cannot send environment with the job")
    return re.sub("['\"]", r"\\", value.replace("\\", "\\\\"))


def read_options(words, job):
    """Applies -l -N -j ... to the job; returns what is left."""
    rest, i = [], 0
    while i < len(words):
        word = words[i]
        i += 1
        if not re.match(r"-[a-zA-Z]", word) or rest:
            rest.append(word)
        elif word[1] in "Vzh":
            job["export_all"] = job.get("export_all") or word[1] == "V"
        elif len(word) > 2:
            apply_option(job, word[1], word[2:])
        elif i == len(words):
            refuse(f"option requires an argument -- '{word[1]}'")
        else:
            apply_option(job, word[1], words[i])
            i += 1
    return rest


def apply_option(job, flag, value):
    if flag == "l":
        # place=... and select=... hold colons, commas part resources
        job["resources"].update(resource.split("=", 1) for resource in value.split(","))
    elif flag == "v":
        mangled(value)
        for item in split_commas(value):
            name, has_value, text = item.partition("=")
            if not has_value and name not in os.environ:
                refuse("cannot send environment with the job")
            job["variables"][name] = mangled(text if has_value else os.environ[name])
    elif flag == "W":
        job.update(item.split("=", 1) for item in value.split(","))
    elif flag == "N" and not re.fullmatch(r"[A-Za-z0-9.+_-]{1,230}", value):
        refuse("illegal -N value")
    elif flag in FIELDS:
        job[FIELDS[flag]] = value
    else:
        refuse(f"illegal option -- {flag}")


def directives(text, prefix):
    """Words of the #PBS lines, up to the first line that is no comment."""
    for line in text.splitlines():
        if prefix and line.startswith(prefix):
            yield shlex.split(line[len(prefix):])
        elif line.strip() and not line.startswith("#"):
            return


def check(job):
    asked = job["resources"]
    wrong = [name for name in asked if name in OF_A_CHUNK]
    if wrong and ("select" in asked or "place" in asked):
        refuse(f'"-lresource=" cannot be used with "select" or "place", resource is: {wrong[0]}')
    if "place" in asked and "select" not in asked:
        refuse('Cannot have "place" without "select"', 7)
    if job["queue"] not in QUEUES:
        refuse("Unknown queue")
    if job["queue"] in FROM_ROUTE_ONLY:
        refuse("Access to queue is denied")


def complete(job):
    """What the server adds: a select from old-style resources, sums over the chunks, the queue behind a route."""
    asked = job["resources"]
    if "select" not in asked:
        old = "".join(f":{name}={asked[name]}" for name in ("ncpus", "mem", "mpiprocs", "ngpus") if name in asked)
        asked["select"] = "1" + (old or ":ncpus=1")
    asked.setdefault("place", "pack" if asked["select"].startswith("1:") else "free")
    parts = chunks(job)
    asked["nodect"] = str(len(parts))
    for name in ("ncpus", "ngpus", "mpiprocs"):
        if total := sum(int(wanted.get(name, 0)) for _, wanted in parts):
            asked[name] = str(total)
    if memory := [wanted["mem"] for _, wanted in parts if "mem" in wanted]:
        asked["mem"] = memory[0]
    job["submitted_to"] = job["queue"]
    job["queue"] = QUEUES[job["queue"]] or job["queue"]


# ---- qsub -------------------------------------------------------------------------------------------------


def qsub(arguments):
    folder = lab()
    job = {"resources": {}, "variables": {}, "queue": "workq", "state": "Q", "join": "n",
           "project": "_pbs_project_default", "submit_arguments": " ".join(arguments), "workdir": os.getcwd()}
    from_line = copy.deepcopy(job)
    rest = read_options(arguments, from_line)
    if len(rest) > 1:
        refuse("takes no script arguments")
    script = Path(rest[0]) if rest and rest[0] != "-" else None
    if script and not script.is_file():
        refuse("script file:: No such file or directory")
    text = script.read_text() if script else sys.stdin.read()
    job["name"] = script.name if script else "STDIN"
    for words in directives(text, from_line.get("prefix", "#PBS")):
        read_options(words, job)
    read_options(arguments, job)  # the command line overrides the directives
    check(job)
    complete(job)
    job["submitter"] = {k: os.environ[k] for k in ("HOME", "PATH", "SHELL", "LANG", "USER", "LOGNAME") if k in os.environ}
    if job.get("export_all"):
        job["variables"] = {**{k: mangled(v) for k, v in os.environ.items()}, **job["variables"]}
    number = next_id(folder)
    if job.get("array"):
        low, high = map(int, job["array"].split("-"))
        for index in range(low, high + 1):
            spool(folder, dict(job, array_index=index), f"{number}[{index}].{SERVER}", text)
        save(folder, dict(job, state="B"), id=f"{number}[].{SERVER}")
        print(f"{number}[].{SERVER}")
    else:
        spool(folder, job, f"{number}.{SERVER}", text)
        print(f"{number}.{SERVER}", flush=True)
        while job.get("block") == "true":
            time.sleep(0.1)
            if (known := load(folder, f"{number}.{SERVER}"))["state"] == "F":
                sys.exit(known["exit_status"])


def spool(folder, job, job_id, text):
    job = dict(job, id=job_id, spooled=str(folder / "jobs" / f"{job_id}.SC"))
    Path(job["spooled"]).write_text(text)
    os.chmod(job["spooled"], 0o700)
    save(folder, job)
    ask(folder, nodes()[0], {"start": job_id})


# ---- the small commands -----------------------------------------------------------------------------------


def wrapped(line):
    """qstat -f breaks long lines and begins what follows with a tab."""
    return "\n\t".join([line[:79], *re.findall(".{1,71}", line[79:])])


def exec_host(job):
    index = dict.fromkeys(nodes(), -1)
    out = []
    for host, wanted in chunks(job):
        index[host] += 1
        out.append(f"{host}/{index[host]}" + (f"*{wanted['ncpus']}" if wanted["ncpus"] != "1" else ""))
    return "+".join(out)


def exec_vnode(job):
    return "+".join("(" + ":".join([host] + [f"{k}={v}" for k, v in wanted.items() if k in ("ncpus", "ngpus", "mem")]) + ")"
                    for host, wanted in chunks(job))


def fields_of(job):
    """qstat -f's lines, in its order."""
    fields = {"Job_Name": job["name"], "Job_Owner": "root@login", "job_state": job["state"], "queue": job["queue"],
              "server": SERVER, "Error_Path": f"login:{output_path(job, 'error')}"}
    if job["state"] == "R":
        fields |= {"exec_host": exec_host(job), "exec_vnode": exec_vnode(job)}
    fields |= {"Hold_Types": "n", "Join_Path": job["join"], "Keep_Files": job.get("keep", "n"),
               "Mail_Points": job.get("mail_points", "a"), "Output_Path": f"login:{output_path(job)}",
               "Priority": job.get("priority", "0"),
               "Rerunable": "False" if job.get("rerunable") == "n" else "True"}
    fields |= {f"Resource_List.{k}": v for k, v in sorted(job["resources"].items())}
    if "started" in job:
        fields |= {"stime": time.ctime(job["started"]), "run_count": job["run_count"],
                   "resources_used.walltime": time.strftime("%H:%M:%S", time.gmtime(time.time() - job["started"]))}
    for key, name in (("mail_users", "Mail_Users"), ("shell", "Shell_Path_List"), ("account", "Account_Name"),
                      ("group_list", "group_list"), ("umask", "umask"), ("exit_status", "Exit_status"),
                      ("comment", "comment")):
        if key in job:
            fields[name] = job[key]
    variables = {**pbs_o(job), **job["variables"]}
    fields["Variable_List"] = ",".join(f"{k}={v}".replace(",", "\\,") for k, v in variables.items())
    fields["substate"] = "60" if job.get("end") == "rerun" else "42"
    if "array_index" not in job:
        fields["Submit_arguments"] = job["submit_arguments"]
    return fields | {"project": job["project"]}


def queues_and_server(flags):
    """qstat -Q -f and qstat -B -f, as a login node has them."""
    if "B" in flags:
        print(f"Server: {SERVER}\n    server_state = Active\n    server_host = login\n    default_queue = workq\n")
        return
    for name, behind in QUEUES.items():
        more = "    from_route_only = True\n" if name in FROM_ROUTE_ONLY else ""
        kind = f"Route\n    route_destinations = {behind}" if behind else "Execution"
        print(f"Queue: {name}\n    queue_type = {kind}\n    total_jobs = 0\n    resources_max.walltime = 48:00:00\n{more}"
              "    enabled = True\n    started = True\n")


def pbsnodes(arguments):
    for name in nodes() if arguments == ["-a"] else arguments:
        print(f"{name}\n     Mom = {name}\n     ntype = PBS\n     state = free\n     pcpus = {NODE_CPUS}\n"
              f"     resources_available.arch = linux\n     resources_available.host = {name}\n"
              f"     resources_available.mem = 16384000kb\n     resources_available.ncpus = {NODE_CPUS}\n"
              f"     resources_available.vnode = {name}\n     resv_enable = True\n     sharing = default_shared\n")


def qstat(arguments):
    if asked := {"Q", "B"} & {letter for a in arguments if a.startswith("-") for letter in a[1:]}:
        return queues_and_server(asked)
    flags = {letter for a in arguments if a.startswith("-") for letter in a[1:]}
    for job_id in (a for a in arguments if not a.startswith("-")):
        job = load(lab(), job_id)
        if job["state"] == "F" and "x" not in flags:
            print(f"qstat: {job['id']} Job has finished, use -x or -H to obtain historical job information", file=sys.stderr)
            sys.exit(35)
        if "f" not in flags:
            print(job["id"], job["name"], job["state"], job["queue"])
            continue
        print(f"Job Id: {job['id']}")
        for key, value in fields_of(job).items():
            print(wrapped(f"    {key} = {value}"))
        print()


def qsig(arguments):
    name = "TERM"
    if arguments[:1] == ["-s"]:
        name, arguments = arguments[1], arguments[2:]
    sys.exit(max(signal_job(lab(), load(lab(), job_id)["id"], name) for job_id in arguments))


def qdel(arguments):
    sys.exit(max(end_job(lab(), load(lab(), job_id)["id"], "deleted") for job_id in arguments))


def qrerun(arguments):
    for job_id in arguments:
        job = load(lab(), job_id)
        if job["state"] != "R" or job.get("rerunable") == "n":
            sys.exit(f"qrerun: Request invalid for state of job {job_id}")
        end_job(lab(), job["id"], "rerun")


def reach(host):
    """The stand-in's MoMs talk past the network; a real one is reached by it, or waited for."""
    if os.uname().nodename != "login":
        with contextlib.suppress(ConnectionRefusedError), socket.socket() as probe:
            probe.connect((host, MOM_PORT))


def pbs_tmrsh(arguments):
    host, command = arguments[0], arguments[1:]
    named, own = (Path(file).read_text().split() for file in (os.environ["PBS_NODEFILE"], lab() / f"jobs/{os.environ['PBS_JOBID']}.nodes"))
    if host not in named or not (lab() / f"mom.{host}").exists():
        sys.exit(f"pbs_tmrsh: {host}: not a node of this job")
    host = own[named.index(host)]  # OpenPBS 23.06 takes a host's line as the number of its node in the job
    reach(host)
    answer = ask(lab(), host, {"task": command, "job": os.environ["PBS_JOBID"]}, fds=(0, 1, 2))
    sys.exit(min(255, answer["status"] % 256))


def main():
    name = Path(sys.argv[0]).name
    if name == "pbs.py" and sys.argv[1:2] == ["mom"]:
        mom(*sys.argv[2:4])
    commands = (qsub, qstat, qdel, qsig, qrerun, pbs_tmrsh, pbsnodes)
    {each.__name__: each for each in commands}[name](sys.argv[1:])


if __name__ == "__main__":
    main()
