# shellcheck shell=bash
# The ranks while they run: what signals the script gets is handed to them.

hear_signals() {
  GOT='' PENDING='' LAUNCHER_PID='' TERM_AT=''
  trap 'forward USR1' USR1
  trap 'forward USR2' USR2
  trap 'forward TERM' TERM
  [ "${EARLY_SIGNAL:-}" != USR1 ] || forward USR1  # the signal arrived before this trap was set
}

forward() {  # the signal $1, to the launcher, which hands it to the ranks
  if [ "$1" = USR1 ] && in_slurm && is_early_warning; then
    say "SIGUSR1, with time left: this job is shorter than the lead of its --signal, so it goes on for $EARLY_BY s; a second one counts"
    { sleep "$EARLY_BY" && kill -s USR1 $$; } &
    return
  fi
  GOT=$1  # the last one
  ! in_pbs || [ "$1" != TERM ] || TERM_AT=${TERM_AT:-$(seconds_of_pbs_job)}
  [ "$1" != TERM ] || say "SIGTERM: the job is being cancelled, pre-empted, or out of time"
  if in_pbs && [ -n "$LAUNCHER_PID" ]; then
    # PBS signals every process of a job; a second SIGTERM would have mpirun leave without its ranks
    say "got SIG$1, as the ranks have"
    return
  fi
  say "got SIG$1, telling the ranks"
  PENDING=$1
  [ -z "$LAUNCHER_PID" ] || deliver
}

started_by_srun() { [ "${START[0]}" = srun ]; }

launcher_lives() { kill -0 "$LAUNCHER_PID" 2>/dev/null; }

end_launcher() {  # WHY; once it has been waited for, its number may be another process's
  [ "$(ps -o ppid= -p "$LAUNCHER_PID" | tr -d " ")" = $$ ] || return
  say "$1: sending SIGKILL to ${START[0]} (process $LAUNCHER_PID)"
  kill -s KILL "$LAUNCHER_PID" 2>/dev/null
}

# An mpirun or a rank that is only just starting would die of SIGUSR1: it is told once the run has its folder, and a
# moment later. In Slurm SIGUSR1 stands for SIGTERM too: of one srun kills its ranks, and of the two of a scancel mpirun
# leaves without them. Of one it tells them 5 s later; one rank that knows is enough.
deliver() {
  local name=$PENDING
  [ -n "$name" ] || return 0
  PENDING=
  ! in_slurm || [ -z "${LOCKSTEP_RUN_FILE:-}" ] || [ "$name" != TERM ] || name=USR1  # an eval has nothing to save
  if [ "$name" != TERM ] && [ -n "${LOCKSTEP_RUN_FILE:-}" ] && [ ! -s "$LOCKSTEP_RUN_FILE" ]; then
    until [ -s "$LOCKSTEP_RUN_FILE" ] || ! launcher_lives; do sleep 0.2; done
    sleep 1
  fi
  kill -s "$name" "$LAUNCHER_PID" 2>/dev/null
  ! in_slurm || started_by_srun || ranks_here | xargs -r kill -s "$name" 2>/dev/null
}

ranks_here() {  # their numbers, in this job's session; mpirun leaves those that have ended as zombies
  ps -o stat=,pid=,comm= --sid "$(ps -o sid= -p $$ | tr -d " ")" |
    awk -v name="$(basename "$LOCKSTEP_PROGRAM" | cut -c 1-15)" '$1 !~ /^Z/ && $3 == name { print $2 }'
}

nothing_is_left() {  # the run is over, and no rank is here
  [ -s "${LOCKSTEP_RUN_FILE:-}" ] && [ -z "$(attempt_here list)" ] || return
  run_status >/dev/null 2>&1
  case $? in 0 | 1 | 4 | 75) return 0 ;; *) return 1 ;; esac
}

# After a SIGTERM mpirun takes 10 s, whatever its ranks do, and the scheduler may kill the job by then: it is ended once
# nothing is left.
end_with_ranks() {
  while launcher_lives; do
    if nothing_is_left; then end_launcher "the run is over, and no rank is here"; return; fi
    sleep 0.2
  done
}

# mpirun waits minutes for a node that is cut off, after its ranks here have ended, and so may srun after a
# heterogeneous job: two looks in a row that find nothing left end it. Until its standard input is closed, and with no
# program of its own for PBS to wait for.
BETWEEN_LOOKS=10
end_a_launcher_that_stays() {
  local found=0
  trap '' TERM USR1 USR2
  while read -r -t "$BETWEEN_LOOKS"; [ $? -gt 128 ] && launcher_lives; do
    if nothing_is_left; then found=$((found + 1)); else found=0; fi
    if [ "$found" -ge 2 ]; then
      end_launcher "the run is over, and no rank is here"
      return
    fi
  done
}

# What the launcher has said last, before what we say of it; one that it left behind may hold the pipe open, as who is on a
# node that is lost does when the launcher was killed.
wait_for_errors() {
  local looks most=25
  [ "$1" -ne 137 ] || most=5
  for ((looks = 0; looks < most; ++looks)); do
    kill -0 "$FILTER_PID" 2>/dev/null || return 0
    sleep 0.2
  done
}

# Runs "$@" on every rank; returns its status. Signals reach the ranks while it waits.
run_ranks() {
  local status errors watch='' kills
  kills=$(mktemp) || kills=/dev/null
  exec {errors}> >(without_banner "$kills" >&2)
  FILTER_PID=$!
  "${START[@]}" "$@" 2>&"$errors" {errors}>&- &
  LAUNCHER_PID=$!
  export -n LOCKSTEP_ATTEMPT  # what this shell starts from now on is no part of it
  exec {errors}>&-
  if [ "$AS_WORLD" -gt 0 ]; then exec {watch}> >(end_a_launcher_of_lost_ranks)
  else exec {watch}> >(end_a_launcher_that_stays); fi
  deliver  # what came before there was anybody to tell
  while :; do
    wait "$LAUNCHER_PID" 2>/dev/null  # bash would tell of the one that we kill
    status=$?
    launcher_lives || break  # a wait that a signal broke off is begun again
    if ! started_by_srun && [ "$GOT" = TERM ] && [ -n "${LOCKSTEP_RUN_FILE:-}" ]; then end_with_ranks; fi
  done
  LAUNCHER_PID=
  [ -z "$watch" ] || exec {watch}>&-
  wait_for_errors "$status"
  say_memory_kills "$kills"
  [ ! -f "$kills" ] || rm -f "$kills"
  return "$status"
}
