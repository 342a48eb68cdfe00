# shellcheck shell=bash
# The ranks while they run: what signals the script gets is handed to them.

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
