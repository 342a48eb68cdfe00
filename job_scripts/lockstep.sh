# shellcheck shell=bash
# What every job script shares: where lockstep is, how this site starts ranks, what to do when a run stops early.
# Sourced by the scripts beside it, after they have set LOCKSTEP_SCRIPT to their own name.
#
# Settings, all optional (sbatch --export=ALL,NAME=... or qsub -v NAME=...):
#   LOCKSTEP_PROGRAM         the program                      (found beside this folder, then on PATH)
#   LOCKSTEP_START           srun | mpirun | mpiexec          (chosen from what is there)
#   LOCKSTEP_SRUN_MPI        the value of srun --mpi          (the site's own default)
#   LOCKSTEP_RANKS_PER_NODE  ranks on each node               (GPUs, else tasks asked for, else cores)
#   LOCKSTEP_CPUS_PER_RANK   cores of a rank                  (what the job was given)
#   LOCKSTEP_MAX_RESTARTS    how often an early stop goes on  (10; 0 = never)
#   LOCKSTEP_CHAIN           set by chain.sh: an early stop ends this link, the next one goes on
#   LOCKSTEP_RUN_FILE        a file that will hold the run's folder, for a job that comes after

say() { printf 'lockstep job: %s\n' "$*"; }
die() { printf 'lockstep job: %s\n' "$*" >&2; exit 2; }

in_slurm() { [ -n "${SLURM_JOB_ID:-}" ]; }
is_number() { [[ $1 =~ ^[0-9]+$ ]]; }
job_id() { printf '%s' "${SLURM_JOB_ID:-${PBS_JOBID:-$$}}"; }

# ---- where is the program ---------------------------------------------------------------------------------

find_program() {
  local there
  if [ -n "${LOCKSTEP_PROGRAM:-}" ]; then
    [ -x "$LOCKSTEP_PROGRAM" ] || die "LOCKSTEP_PROGRAM=$LOCKSTEP_PROGRAM: no such program"
    return 0
  fi
  for there in "$LOCKSTEP_HOME/build/release/bin/lockstep" \
    "$LOCKSTEP_HOME/../../bin/lockstep" "$(command -v lockstep)"; do
    [ -n "$there" ] && [ -x "$there" ] && { LOCKSTEP_PROGRAM=$there; return; }
  done
  die "no program: build it (cd $LOCKSTEP_HOME && scripts/bootstrap), or set LOCKSTEP_PROGRAM"
}

# ---- what was the job given -------------------------------------------------------------------------------

pbs_command() { command -v "$1" || echo "${PBS_EXEC:-/opt/pbs}/bin/$1"; }  # often off the PATH of a job

# The value of NAME in PBS's select=2:ncpus=8:mpiprocs=2:ngpus=1, of its first chunk; nothing where it was not asked for.
asked_of_pbs() { field_of_pbs_job Resource_List.select | tr ':+' '\n' | sed -n "s/^$1=//p" | head -n 1; }

count_gpus() {  # of this job on this node: what the node has is not what the job may use
  local list=${SLURM_JOB_GPUS:-${CUDA_VISIBLE_DEVICES:-}}
  if [ -n "${SLURM_GPUS_ON_NODE:-}" ]; then
    printf '%s' "$SLURM_GPUS_ON_NODE"
  elif in_slurm && [ -z "$list" ]; then
    printf 0
  elif [ -n "$list" ] && [ "$list" != NoDevFiles ]; then
    tr ',' '\n' <<<"$list" | grep -c .
  else
    list=$(asked_of_pbs ngpus)
    printf '%s' "${list:-0}"
  fi
}

# Sets NODES, RANKS_PER_NODE (empty = as the scheduler laid the tasks out), RANKS, CPUS_PER_RANK.
read_allocation() {
  local gpus cores tasks hosts name
  for name in LOCKSTEP_RANKS_PER_NODE LOCKSTEP_CPUS_PER_RANK; do
    [ -z "${!name:-}" ] || { is_number "${!name}" && [ "${!name}" -gt 0 ]; } || die "$name=${!name}: a number from 1 up is wanted"
  done
  gpus=$(count_gpus)
  CPUS_PER_RANK=${LOCKSTEP_CPUS_PER_RANK:-${SLURM_CPUS_PER_TASK:-}}
  if in_slurm; then
    NODES=${SLURM_JOB_NUM_NODES:-1}
    tasks=${SLURM_NTASKS:-}
    cores=${SLURM_CPUS_ON_NODE:-1}
    [ -n "${SLURM_GPUS_PER_TASK:-}" ] && gpus=0  # Slurm has already matched tasks and GPUs
  elif [ -n "${PBS_NODEFILE:-}" ]; then
    hosts=$(sort -u "$PBS_NODEFILE" | grep -c .)
    tasks=$(grep -c . "$PBS_NODEFILE")
    NODES=$hosts
    cores=${NCPUS:-1}
    # one line a host: 1 rank was asked for, or nothing was said
    [ "$tasks" -gt "$hosts" ] || [ -n "$(asked_of_pbs mpiprocs)" ] || tasks=
    if [ -n "$tasks" ] && [ $((tasks % hosts)) = 0 ]; then  # the same on each host: mapped with all its cores
      LOCKSTEP_RANKS_PER_NODE=${LOCKSTEP_RANKS_PER_NODE:-$([ "$gpus" -gt 0 ] || echo $((tasks / hosts)))}
    fi
  else
    die "no job: neither SLURM_JOB_ID nor PBS_NODEFILE is set; submit this script with sbatch or qsub"
  fi
  RANKS_PER_NODE=
  if [ -n "${LOCKSTEP_RANKS_PER_NODE:-}" ]; then
    RANKS_PER_NODE=$LOCKSTEP_RANKS_PER_NODE
  elif [ "$gpus" -gt 0 ]; then
    RANKS_PER_NODE=$gpus
  elif [ -z "$tasks" ]; then
    RANKS_PER_NODE=$((cores / ${CPUS_PER_RANK:-1}))
    [ "$RANKS_PER_NODE" -gt 0 ] || RANKS_PER_NODE=1
  fi
  if [ -n "$RANKS_PER_NODE" ]; then
    RANKS=$((NODES * RANKS_PER_NODE))
    [ -n "$CPUS_PER_RANK" ] || CPUS_PER_RANK=$((cores / RANKS_PER_NODE))
    [ "$CPUS_PER_RANK" -gt 0 ] || CPUS_PER_RANK=1
  else
    RANKS=$tasks
    [ -n "$CPUS_PER_RANK" ] || CPUS_PER_RANK=1
  fi
  # PBS presets it to the whole node's cores; a rank's share is what is meant
  export OMP_NUM_THREADS=$CPUS_PER_RANK
}

# ---- how are ranks started here ---------------------------------------------------------------------------

mpi_family() {  # of the command $1
  local text
  text=$("$1" --version 2>&1 </dev/null | head -n 3)
  case $text in
    *"Open MPI"* | *OpenRTE* | *PRRTE* | *prte*) echo openmpi ;;
    *PALS*) echo pals ;;
    *HYDRA* | *Intel* | *MPICH*) echo hydra ;;
    *) echo unknown ;;
  esac
}

openmpi_has() { ompi_info --parsable 2>/dev/null | grep -q "^mca:[a-z]*:$1:"; }

# Fills the array START with the command that starts RANKS copies of what follows it.
choose_start() {
  local kind=${LOCKSTEP_START:-}
  if [ -z "$kind" ]; then
    if in_slurm && command -v srun >/dev/null; then kind=srun
    elif command -v mpirun >/dev/null && [ "$(mpi_family mpirun)" = openmpi ]; then kind=mpirun
    elif command -v mpiexec >/dev/null; then kind=mpiexec
    elif command -v mpirun >/dev/null; then kind=mpirun
    else die "no srun, mpirun or mpiexec on PATH; load the MPI module that lockstep was built with"; fi
  fi
  command -v "$kind" >/dev/null || die "LOCKSTEP_START=$kind: no such command on PATH"
  case $kind in
    srun) start_with_srun ;;
    mpirun | mpiexec)
      case $(mpi_family "$kind") in
        openmpi) start_with_openmpi "$kind" ;;
        pals) START=("$kind" -n "$RANKS" --ppn "$(ranks_on_a_node)") ;;
        *) start_with_hydra "$kind" ;;
      esac ;;
    *) die "LOCKSTEP_START=$kind: choose srun, mpirun or mpiexec" ;;
  esac
}

ranks_on_a_node() { echo $(((RANKS + NODES - 1) / NODES)); }

start_with_srun() {
  # srun does not inherit sbatch's --cpus-per-task; -K1 ends the step when one rank fails
  START=(srun --kill-on-bad-exit=1 --cpus-per-task="$CPUS_PER_RANK")
  [ -n "$RANKS_PER_NODE" ] && START+=(--ntasks="$RANKS" --ntasks-per-node="$RANKS_PER_NODE")
  [ -n "$RANKS_PER_NODE" ] && [ $((RANKS_PER_NODE * CPUS_PER_RANK)) -gt "${SLURM_CPUS_ON_NODE:-1}" ] && START+=(--overcommit)
  [ -n "${LOCKSTEP_SRUN_MPI:-}" ] && START+=(--mpi="$LOCKSTEP_SRUN_MPI")
  return 0
}

start_with_openmpi() {
  # -q: no banner under our own error
  START=("$1" -q -n "$RANKS")
  # A dying job gets twice 5 s, not 2, to write its checkpoint. mpirun takes that time after every status but 0,
  # even with nobody left to kill, so it is told to pass over statuses: the run's folder knows how it ended.
  [ -n "${LOCKSTEP_RUN_FILE:-}" ] && START+=(--mca odls_base_sigkill_timeout 5 --mca orte_abort_on_non_zero_status 0)
  if [ -n "$RANKS_PER_NODE" ]; then
    START+=(--map-by "ppr:$RANKS_PER_NODE:node:PE=$CPUS_PER_RANK" --bind-to core:overload-allowed --oversubscribe)
  fi
  [ "$(id -u)" = 0 ] && START+=(--allow-run-as-root)
  if ! in_slurm && ! openmpi_has tm; then
    START+=(--hostfile "$PBS_NODEFILE")
    if [ "$NODES" -gt 1 ]; then
      START+=(--mca plm_rsh_agent "$LOCKSTEP_HOME/job_scripts/pbs_agent.sh")
      # a task that TM starts gets a fresh environment: what the ranks need travels by name
      local name
      for name in PATH LD_LIBRARY_PATH $(compgen -e | grep -E '^(LOCKSTEP_|PBS_|OMP_|GLOO_|NCCL_|TORCH_|CUDA_|NCPUS$|TMPDIR$)'); do
        [ -n "${!name+set}" ] && START+=(-x "$name")
      done
    fi
  fi
  return 0
}

start_with_hydra() {
  START=("$1" -n "$RANKS" -ppn "$(ranks_on_a_node)")
  in_slurm && return
  START+=(-f "$PBS_NODEFILE")
  # hydra seldom knows tm, and would need ssh between the nodes; what the site has set stays
  if [ "$NODES" -gt 1 ] && [ -z "${HYDRA_LAUNCHER:-}${HYDRA_LAUNCHER_EXEC:-}${HYDRA_BOOTSTRAP:-}" ] &&
    [ -x "$(pbs_command pbs_tmrsh)" ]; then
    export HYDRA_LAUNCHER=rsh HYDRA_LAUNCHER_EXEC=$LOCKSTEP_HOME/job_scripts/pbs_agent.sh
  fi
  return 0
}

# ---- stop early, go on ------------------------------------------------------------------------------------

field_of_pbs_job() {  # a field of qstat -f, long lines joined
  "$(pbs_command qstat)" -f "$PBS_JOBID" 2>/dev/null | awk -v key="$1" '
    /^\t/ { if (hit) value = value substr($0, 2); next }
    { hit = 0 }
    index($0, "    " key " = ") == 1 { hit = 1; value = substr($0, length(key) + 8) }
    END { print value }'
}

# The names that a new submission passes on with their values: what the first one passed, and ours. -v NAME without a
# value takes it from this environment, so commas and quotes survive.
names_to_pass() {
  { field_of_pbs_job Variable_List | tr ',' '\n' | sed -n 's/^\([A-Za-z_][A-Za-z0-9_]*\)=.*/\1/p' | grep -vE '^(PBS_|LOCKSTEP_RUN_FILE$)'
    compgen -e | grep -E '^(LOCKSTEP_|CONFIG$|SET$)' | grep -v '^LOCKSTEP_RUN_FILE$'
    [ -z "$KEPT_RUN_FILE" ] || echo LOCKSTEP_RUN_FILE; } | sort -u | while read -r name; do
    [ -n "${!name+set}" ] && echo "$name"
  done | paste -sd,
}

# The same job again: every word is an argument of its own, nothing passes through a shell. A copy of a script says in
# LOCKSTEP_SCRIPT where it lies; a task of an array goes on as a job of its own.
resubmit_pbs() {
  local resources=() value name script=$LOCKSTEP_SCRIPT
  for name in select place walltime; do
    value=$(field_of_pbs_job "Resource_List.$name")
    [ -n "$value" ] && resources+=(-l "$name=$value")
  done
  for name in "Job_Name -N" "queue -q" "project -P" "Account_Name -A"; do
    value=$(field_of_pbs_job "${name% *}")
    [ -n "$value" ] && [ "$value" != _pbs_project_default ] && resources+=("${name#* }" "$value")
  done
  export LOCKSTEP_RESTART=$((${LOCKSTEP_RESTART:-0} + 1))
  if [ -n "${PBS_ARRAY_INDEX:-}" ]; then
    export CONFIG
    SET=$(printf '%s\n' "${AS_SET[@]}")
    export SET
    script=ddp.pbs
  fi
  case $script in /*) ;; *) script=$LOCKSTEP_HOME/job_scripts/$script ;; esac
  (cd "${PBS_O_WORKDIR:-.}" && "$(pbs_command qsub)" "${resources[@]}" -v "$(names_to_pass)" "$script")
}

go_on() {
  local done_so_far=${SLURM_RESTART_COUNT:-${LOCKSTEP_RESTART:-0}} most=${LOCKSTEP_MAX_RESTARTS:-10}
  if [ -n "${LOCKSTEP_CHAIN:-}" ]; then
    say "stopped early; the next link of the chain goes on"
    exit 75
  elif [ "$done_so_far" -ge "$most" ]; then
    say "stopped early, and $done_so_far restarts are enough (LOCKSTEP_MAX_RESTARTS=$most); submit again to go on"
    exit 75
  fi
  say "stopped early; restart $((done_so_far + 1)) of at most $most"
  if in_slurm; then
    # a task of an array by its own name: the last one's job id is the array's
    scontrol requeue "${SLURM_ARRAY_JOB_ID:+${SLURM_ARRAY_JOB_ID}_}${SLURM_ARRAY_TASK_ID:-$SLURM_JOB_ID}" && exit 0  # Slurm ends this script when it requeues the job
  else
    resubmit_pbs && exit 75  # not 0: a job that waits for this one's success must not start yet
  fi
  say "this site does not let a job submit a job; use job_scripts/chain.sh, or submit again to go on"
  exit 75
}

forward() {  # the signal $1, to the launcher, which hands it to the ranks
  say "got SIG$1, telling the ranks"
  PENDING=$1
}

launcher_lives() { kill -0 "$LAUNCHER_PID" 2>/dev/null; }

# An mpirun or a rank that is only just starting would die of SIGUSR1: it is told once the run has its folder, and a
# moment later.
deliver() {
  local name=$PENDING
  [ -n "$name" ] || return 0
  PENDING=
  if [ "$name" != TERM ] && [ -n "${LOCKSTEP_RUN_FILE:-}" ] && [ ! -s "$LOCKSTEP_RUN_FILE" ]; then
    until [ -s "$LOCKSTEP_RUN_FILE" ] || ! launcher_lives; do sleep 0.2; done
    sleep 1
  fi
  kill -s "$name" "$LAUNCHER_PID" 2>/dev/null
}

# Runs "$@" on every rank; returns its status. Signals reach the ranks while it waits.
run_ranks() {
  local status
  PENDING=
  "${START[@]}" "$@" &
  LAUNCHER_PID=$!
  while :; do
    wait "$LAUNCHER_PID"
    status=$?
    launcher_lives || break  # a wait that a signal broke off is begun again
    deliver
  done
  LAUNCHER_PID=
  return "$status"
}

prepare() {
  find_program
  read_allocation
  choose_start
  trap 'forward USR1' USR1
  trap 'forward USR2' USR2
  trap 'forward TERM' TERM
  export LOCKSTEP_HOME
  say "job $(job_id), $RANKS ranks on $NODES node(s), $CPUS_PER_RANK core(s) a rank, restart ${SLURM_RESTART_COUNT:-${LOCKSTEP_RESTART:-0}}"
  say "home $LOCKSTEP_HOME, program $LOCKSTEP_PROGRAM"
  say "start: ${START[*]}"
}

# SET="a=1 b='x y'" becomes --set a=1 --set 'b=x y'; xargs splits words and runs nothing of them.
settings_of() {
  local word
  xargs -r true <<<"$1" 2>/dev/null || die "SET=$1: a quote is not closed"
  while IFS= read -r -d '' word; do SETTINGS+=(--set "$word"); done < <(xargs -r printf '%s\0' <<<"$1")
}

# Splits [CONFIG] [arguments...] into CONFIG and ARGUMENTS, and adds what qsub -v SET=... asks for.
read_arguments() {
  CONFIG=${CONFIG:-configs/mnist.yaml}
  case ${1:-} in "" | -*) ;; *) CONFIG=$1; shift ;; esac
  SETTINGS=()
  [ -n "${SET:-}" ] && settings_of "$SET"
  ARGUMENTS=("${SETTINGS[@]}" "$@")
  # the same as words of SET, for a submission that takes no arguments
  AS_SET=()
  local word
  for word in "${ARGUMENTS[@]}"; do
    [ "$word" = --set ] || AS_SET+=("\"${word//\"/\"\\\"\"}\"")
  done
}

run_status() { "$LOCKSTEP_PROGRAM" status "$(cat "$LOCKSTEP_RUN_FILE")"; }

# lockstep_train [CONFIG] [arguments...]: train with what the scheduler gave, resume, requeue when stopped early.
lockstep_train() {
  local status
  read_arguments "$@"
  is_number "${LOCKSTEP_MAX_RESTARTS:-10}" || die "LOCKSTEP_MAX_RESTARTS=$LOCKSTEP_MAX_RESTARTS: a number is wanted"
  KEPT_RUN_FILE=${LOCKSTEP_RUN_FILE:-}
  [ -n "${LOCKSTEP_CHAIN:-}" ] && KEPT_RUN_FILE=$PWD/.lockstep-chain-$LOCKSTEP_CHAIN
  LOCKSTEP_RUN_FILE=${KEPT_RUN_FILE:-$PWD/.lockstep-run-$(job_id)}
  export LOCKSTEP_RUN_FILE
  prepare
  [ -n "${LOCKSTEP_CHAIN:-}" ] && [ -e "$LOCKSTEP_RUN_FILE" ] && leave_chain_if_over
  : >"$LOCKSTEP_RUN_FILE"  # what it says afterwards is of this attempt
  run_ranks "$LOCKSTEP_PROGRAM" train "$CONFIG" --resume auto "${ARGUMENTS[@]}"
  status=$?
  # launchers mangle exit statuses: the run's folder knows what became of it
  if [ -s "$LOCKSTEP_RUN_FILE" ]; then
    run_status
    status=$?
  elif [ "$status" -eq 75 ]; then
    status=1
  elif [ "$status" -eq 0 ]; then
    status=2  # no run came of it: what all ranks refuse before there is one is bad input
  fi
  [ -n "$KEPT_RUN_FILE" ] || rm -f "$LOCKSTEP_RUN_FILE"
  [ "$status" -eq 75 ] && go_on
  exit "$status"
}

# A link whose run has ended has nothing to do; one whose run failed does not try again.
leave_chain_if_over() {
  [ -s "$LOCKSTEP_RUN_FILE" ] || { say "the link before came to no run: this link does not try again"; exit 1; }
  run_status
  case $? in
    0) say "the run is done: nothing left for this link"; exit 0 ;;
    75) ;;
    *) say "the run failed: this link does not try it again"; exit 1 ;;
  esac
}

# lockstep_eval [RUN_FOLDER] [arguments...]: the metrics of a run's newest checkpoint, on every rank that was given.
lockstep_eval() {
  local run=${1:-}
  [ $# -gt 0 ] && shift
  [ -n "$run" ] || run=$(cat "${LOCKSTEP_RUN_FILE:-/dev/null}")
  [ -n "$run" ] || die "which run? give its folder, or LOCKSTEP_RUN_FILE as train_then_eval.sh does"
  unset LOCKSTEP_RUN_FILE
  prepare
  run_ranks "$LOCKSTEP_PROGRAM" eval "$run/config.yaml" --checkpoint "$run" "$@"
  exit $?
}
