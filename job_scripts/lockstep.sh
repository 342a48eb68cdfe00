# shellcheck shell=bash
# What every job script shares: where lockstep is, how this site starts ranks, what to do when a run stops early.
# Sourced by the scripts beside it, after they have set LOCKSTEP_SCRIPT to their own name.
#
# Settings, all optional (sbatch --export=ALL,NAME=... or qsub -v NAME=...):
#   LOCKSTEP_SETUP            a file that is sourced first     (module load ..., export ...)
#   LOCKSTEP_PROGRAM          the program                      (found beside this folder, then on PATH)
#   LOCKSTEP_START            srun | mpirun | mpiexec          (chosen from what is there)
#   LOCKSTEP_SRUN_MPI         the value of srun --mpi          (the site's own default)
#   LOCKSTEP_RANKS_PER_NODE   ranks on each node               (GPUs, else tasks asked for, else cores)
#   LOCKSTEP_CPUS_PER_RANK    cores of a rank                  (what the job was given)
#   LOCKSTEP_THREADS_PER_CORE hardware threads of a core       (counted on the node; 1 = a thread is a core)
#   LOCKSTEP_MAX_RESTARTS     how often an early stop goes on  (10; 0 = never)
#   LOCKSTEP_MAX_RELAUNCHES   how often lost ranks are started again within a job, with train.as_world (3; 0 = never)
#   LOCKSTEP_NODE_TIMEOUT     seconds without an answer from a node's kernel after which it counts as lost (3)
#   LOCKSTEP_ON_TERM         stop | resubmit, on PBS: what follows a SIGTERM before the walltime is over (stop: a qdel is one)
#   LOCKSTEP_CHAIN            set by chain.sh and lockstep submit: an early stop ends this link, the next one goes on
#   LOCKSTEP_REPORT           leave | mail:ADDRESS: report.html in the run's folder when it ends, and by mail (none)
#   LOCKSTEP_RUN_FILE         a file that will hold the run's folder, for a job that comes after
#   LOCKSTEP_RECORD           set by lockstep submit: a file that gets a line for each thing that becomes of the job

say() { printf 'lockstep job: %s\n' "$*"; }
die() { printf 'lockstep job: %s\n' "$*" >&2; exit 2; }

in_slurm() { [ -n "${SLURM_JOB_ID:-}" ]; }
in_pbs() { ! in_slurm && [ -n "${PBS_JOBID:-}" ]; }
is_number() { [[ $1 =~ ^[0-9]+$ ]]; }
job_id() { printf '%s' "${SLURM_JOB_ID:-${PBS_JOBID:-$$}}"; }

for part in layout start signals memory leftovers record rerun relaunch carry slurm pbs pbs_resubmit report; do
  # shellcheck source=/dev/null
  . "$LOCKSTEP_HOME/job_scripts/$part.sh" || die "job_scripts/$part.sh is not beside lockstep.sh"
done

read_setup() {
  [ -n "${LOCKSTEP_SETUP:-}" ] || return 0
  if [ ! -f "$LOCKSTEP_SETUP" ] || [ ! -r "$LOCKSTEP_SETUP" ]; then
    die "LOCKSTEP_SETUP=$LOCKSTEP_SETUP: no such file, or not readable, seen from $PWD"
  fi
  case $LOCKSTEP_SETUP in */*) ;; *) LOCKSTEP_SETUP=./$LOCKSTEP_SETUP ;; esac  # a bare name is looked for on PATH
  # shellcheck source=/dev/null
  . "$LOCKSTEP_SETUP" || say "warning: LOCKSTEP_SETUP=$LOCKSTEP_SETUP left with status $?"
  set +eu
}

# Open MPI's ranks on one node have no need of a network, on which each would listen on every interface.
keep_mpi_off_the_network() { [ "$NODES" -gt 1 ] || export OMPI_MCA_btl="${OMPI_MCA_btl:-^tcp,ofi,openib,uct}"; }

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

cancelled() { if in_slurm; then cancelled_in_slurm; else cancelled_in_pbs; fi; }

go_on() {
  local done_so_far=${SLURM_RESTART_COUNT:-${LOCKSTEP_RESTART:-0}} most=${LOCKSTEP_MAX_RESTARTS:-10}
  if starts_again_in_slurm; then
    record_again
    say "stopped early; Slurm starts this job again by itself"
    exit 75
  elif cancelled; then
    [ -z "${LOCKSTEP_CHAIN:-}" ] || forget_run_file
    if may_start_again; then
      say "told to end, with a checkpoint: after a qdel it stays stopped (submit again to go on); after a qrerun PBS starts it again by itself"
    else
      say "cancelled, with a checkpoint: it stays stopped; submit again to go on"
    fi
    exit 75
  elif [ -n "${LOCKSTEP_CHAIN:-}" ]; then
    say "stopped early; the next link of the chain goes on"
    exit 75
  elif [ "$done_so_far" -ge "$most" ]; then
    say "stopped early, and $done_so_far restarts are enough (LOCKSTEP_MAX_RESTARTS=$most); submit again to go on"
    exit 75
  fi
  say "stopped early; restart $((done_so_far + 1)) of at most $most"
  if in_slurm; then
    record_again
    trap : TERM USR1 USR2  # Slurm's answer, if it comes before the command's end
    { requeue_slurm || starts_again_in_slurm; } && exit 0  # Slurm ends this script when it requeues the job
    record_begin
  else
    resubmit_pbs && exit 75  # not 0: a job that waits for this one's success must not start yet
  fi
  say "this site does not let a job submit a job; use job_scripts/chain.sh, or submit again to go on"
  exit 75
}

prepare() {  # with a command to run before the start is chosen
  read_setup
  find_program
  read_allocation
  keep_mpi_off_the_network
  "${@:-true}"
  choose_start
  hear_signals
  export LOCKSTEP_HOME
  say "job $(job_id), $RANKS ranks on $NODES node(s), $CPUS_PER_RANK core(s) a rank, restart ${SLURM_RESTART_COUNT:-${LOCKSTEP_RESTART:-0}}"
  say "home $LOCKSTEP_HOME, program $LOCKSTEP_PROGRAM"
  say "start: ${START[*]}"
}

# SET="a=1 b='x y'" becomes --set a=1 --set 'b=x y'; xargs splits words and runs nothing of them. SET=@FILE: a setting a
# line, as it stands.
settings_of() {
  local word words=$1
  if [ "${words#@}" != "$words" ]; then
    [ -r "${words#@}" ] || die "SET=$words: no such file in $PWD"
    while IFS= read -r word || [ -n "$word" ]; do
      case $word in "" | "#"*) ;; *) SETTINGS+=(--set "$word") ;; esac
    done <"${words#@}"
    return
  fi
  if in_pbs && [ -z "${LOCKSTEP_CARRIED:-}" ] && [[ $words == *\\* ]]; then
    die "SET=$words: qsub -v turns quotes into backslashes; write a setting a line into a file, and pass SET=@FILE"
  fi
  xargs -r true <<<"$words" 2>/dev/null || die "SET=$words: a quote is not closed"
  while IFS= read -r -d '' word; do SETTINGS+=(--set "$word"); done < <(xargs -r printf '%s\0' <<<"$words")
}

# Splits [CONFIG] [arguments...] into CONFIG and ARGUMENTS, and adds what qsub -v SET=... asks for.
read_arguments() {
  CONFIG=${CONFIG:-configs/mnist.yaml}
  case ${1:-} in "" | -*) ;; *) CONFIG=$1; shift ;; esac
  SETTINGS=()
  [ -n "${SET:-}" ] && settings_of "$SET"
  ARGUMENTS=("${SETTINGS[@]}" "$@")
}

forget_run_file() { record_folder; rm -f "$LOCKSTEP_RUN_FILE" "$LOCKSTEP_RUN_FILE.jobs"; }

run_status() { "$LOCKSTEP_PROGRAM" status "$(cat "$LOCKSTEP_RUN_FILE")"; }

# Once the run is over: a launcher may leave before its ranks.
last_run_status() {
  local until=$((SECONDS + 10)) said status
  while :; do
    said=$(run_status)
    status=$?
    if [ "$status" -ne 3 ] || [ "$SECONDS" -ge "$until" ]; then break; fi
    sleep 0.2
  done
  [ -z "$said" ] || printf '%s\n' "$said"
  return "$status"
}

# Once with these ranks; leaves with what became of the run.
train_attempt() {
  local status
  : >"$LOCKSTEP_RUN_FILE"  # what it says afterwards is of this attempt
  run_ranks "$LOCKSTEP_PROGRAM" train "$CONFIG" --resume "$RESUME" "${ARGUMENTS[@]}"
  status=$?
  # launchers mangle exit statuses: the run's folder knows how it ended
  if [ -s "$LOCKSTEP_RUN_FILE" ]; then
    RUN=$(cat "$LOCKSTEP_RUN_FILE")
    end_lost_attempt_here
    last_run_status
    return
  fi
  # no run came of it: what all ranks refuse before there is one is bad input
  case $status in 0 | 2) return 2 ;; *) return 1 ;; esac
}

# lockstep_train [CONFIG] [arguments...]: train with what the scheduler gave, resume, requeue when stopped early.
lockstep_train() {
  local status
  record_begin
  read_arguments "$@"
  [[ ${LOCKSTEP_ON_TERM:-stop} =~ ^(stop|resubmit)$ ]] || die "LOCKSTEP_ON_TERM=$LOCKSTEP_ON_TERM: stop or resubmit is wanted"
  check_report
  is_number "${LOCKSTEP_MAX_RESTARTS:-10}" || die "LOCKSTEP_MAX_RESTARTS=$LOCKSTEP_MAX_RESTARTS: a number is wanted"
  check_relaunch
  KEPT_RUN_FILE=${LOCKSTEP_RUN_FILE:-}
  case ${LOCKSTEP_CHAIN:-} in
    "") ;;
    /*) KEPT_RUN_FILE=$LOCKSTEP_CHAIN ;;  # of lockstep submit: it lasts
    *) KEPT_RUN_FILE=$PWD/.lockstep-chain-$LOCKSTEP_CHAIN ;;
  esac
  LOCKSTEP_RUN_FILE=${KEPT_RUN_FILE:-$(own_run_file)}
  export LOCKSTEP_RUN_FILE
  record file "$LOCKSTEP_RUN_FILE"
  prepare hear_of_losses
  sweep_leftovers
  RESUME=auto
  if [ "$(scheduler_restarts)" -gt 0 ]; then
    take_up_own_run
  elif [ -n "${LOCKSTEP_CHAIN:-}" ]; then
    leave_chain_if_over
  fi
  # a job that PBS was given afresh is not in it
  [ ! -e "$LOCKSTEP_RUN_FILE.jobs" ] || printf '%s\n' "$(job_id)" >>"$LOCKSTEP_RUN_FILE.jobs"
  train_attempt
  status=$?
  while relaunch "$status"; do
    RESUME=${RUN:-$RESUME}
    train_attempt
    status=$?
  done
  forget_losses
  [ ! -s "$LOCKSTEP_RUN_FILE" ] || [ "$status" -eq 3 ] || make_report "$(cat "$LOCKSTEP_RUN_FILE")" "$status"
  if ! may_start_again && { [ -z "$KEPT_RUN_FILE" ] || { [ -n "${LOCKSTEP_CHAIN:-}" ] && [ "$status" -ne 75 ] && [[ $LOCKSTEP_CHAIN != /* ]]; }; }; then
    forget_run_file
  fi
  [ "$status" -ne 3 ] || say "the launcher has left, and its run says that it is still running: look after its processes"
  [ "$status" -ne 4 ] || say "stopped on request: it stays stopped; submit again to go on"
  [ "$status" -eq 75 ] && go_on
  exit "$status"
}

# A link whose run has ended has nothing to do; one whose run failed does not try again. The file goes when the run is
# over: the first link alone starts without one.
leave_chain_if_over() {
  if [ ! -e "$LOCKSTEP_RUN_FILE" ]; then
    [ "${LOCKSTEP_LINK:-1}" = 1 ] && return
    say "the chain is over: a link before was done, failed or was cancelled"
    exit 1
  fi
  [ -s "$LOCKSTEP_RUN_FILE" ] || { say "the link before came to no run: this link does not try again"; exit 1; }
  run_status
  case $? in
    0) say "the run is done: nothing left for this link"; exit 0 ;;
    75) ;;
    3) say "the run is still running: this link does not take it over"; exit 1 ;;
    4) say "the run was stopped on request: this link does not go on"; exit 1 ;;
    *) say "the run failed: this link does not try it again"; exit 1 ;;
  esac
}

# lockstep_eval [RUN_FOLDER] [arguments...]: the metrics of a run's best checkpoint, on every rank that was given.
lockstep_eval() {
  local run=${1:-}
  [ $# -gt 0 ] && shift
  [ -n "$run" ] || run=$(cat "${LOCKSTEP_RUN_FILE:-/dev/null}")
  [ -n "$run" ] || die "which run? give its folder, or LOCKSTEP_RUN_FILE as train_then_eval.sh does"
  [ -e "$run/config.yaml" ] || [ -e "$LOCKSTEP_HOME/$run/config.yaml" ] || die "$run: no run's folder, seen from $PWD (no config.yaml in it)"
  local told=${LOCKSTEP_RUN_FILE:-} status
  unset LOCKSTEP_RUN_FILE
  prepare
  run_ranks "$LOCKSTEP_PROGRAM" eval "$run/config.yaml" --checkpoint "$run" "$@"
  status=$?
  if [ "$status" -eq 0 ] && [ -e "$told.jobs" ]; then rm -f "$told" "$told.jobs"; fi  # train_then_eval.sh's own
  exit "$status"
}

# find_own_program NAME [arguments...]: sets OWN_PROGRAM, where it is not set, to the one of that name that a learner has built;
# empty where there is none, or where arguments, CONFIG or SET are meant for lockstep train.
find_own_program() {
  local place
  OWN_PROGRAM=${OWN_PROGRAM:-}
  if [ -n "$OWN_PROGRAM${CONFIG:-}${SET:-}" ] || [ $# -gt 1 ]; then return; fi
  for place in "$PWD" "${PWD%/*}"; do
    [ ! -x "$place/build/$1" ] || { OWN_PROGRAM=$place/build/$1; return; }
  done
}

# lockstep_own PROGRAM [arguments...]: a program of your own on every rank that was given.
lockstep_own() {
  if [ ! -f "$1" ] || [ ! -x "$1" ]; then die "OWN_PROGRAM=$1: no such program, seen from $PWD"; fi
  unset LOCKSTEP_RUN_FILE  # another run's, which says nothing of this program
  prepare
  say "your program: $1"
  run_ranks "$(realpath "$1")" "${@:2}"
  exit $?
}

# lockstep_bench [NAME] [arguments...]: a bench on every rank that was given, dp-vs-ddp on this node; without words those
# of BENCH.
lockstep_bench() {
  local word words=()
  unset LOCKSTEP_RUN_FILE
  if [ $# -eq 0 ]; then
    xargs -r true <<<"${BENCH:-allreduce}" 2>/dev/null || die "BENCH=$BENCH: a quote is not closed"
    while IFS= read -r -d '' word; do words+=("$word"); done < <(xargs -r printf '%s\0' <<<"${BENCH:-allreduce}")
    set -- "${words[@]}"
  fi
  prepare
  [ "${1:-}" != dp-vs-ddp ] || START=(env)  # it starts its own ranks, here
  run_ranks "$LOCKSTEP_PROGRAM" bench "$@"
  exit $?
}

# lockstep_check [EXERCISE]: an exercise of the course in the folder of submission, on this node; it starts its own ranks.
lockstep_check() {
  read_setup
  find_program
  export LOCKSTEP_HOME
  say "job $(job_id) on $(uname -n), program $LOCKSTEP_PROGRAM"
  exec "$LOCKSTEP_PROGRAM" check "$@"
}
