# shellcheck shell=bash
# What becomes of a job, for who waits for it: LOCKSTEP_RECORD names a file that gets a line a fact. Schedulers forget jobs,
# mangle their statuses, and many keep no accounts.
#   begin JOB         the script runs
#   file JOB PATH     where the run's folder will be named
#   again JOB         asked the scheduler to start it again, and so it will
#   relaunch JOB N [without NODE...]    lost ranks were started again, for the Nth time, within the job
#   next JOB OTHER    OTHER was submitted in its place
#   end JOB STATUS FOLDER

# An array's tasks have a file each.
record_path() {
  printf '%s' "$LOCKSTEP_RECORD"
  [ -z "${LOCKSTEP_RECORD_TASKS:-}" ] || printf '.%s' "${SLURM_ARRAY_TASK_ID:-${PBS_ARRAY_INDEX:-0}}"
}

# record FACT [WORDS]; a full disk is no reason to stop.
record() {
  [ -n "${LOCKSTEP_RECORD:-}" ] || return 0
  local words=${2:-}
  { printf '%s %s%s\n' "$1" "$(job_id)" "${words:+ ${words//$'\n'/ }}" >>"$(record_path)"; } 2>/dev/null || return 0
}

record_begin() {
  RECORDED_FOLDER=${RECORDED_FOLDER:-}
  [ -n "${LOCKSTEP_RECORD:-}" ] && [ -z "${RECORD_BEGUN:-}" ] || return 0
  RECORD_BEGUN=yes
  record begin
  trap record_end EXIT
  # bash runs the EXIT trap when a signal ends it, with the status of the command before: no end of ours (until signals.sh)
  trap 'trap - EXIT; exit 143' TERM
  trap EARLY_SIGNAL=USR1 USR1  # hear_signals forwards it
  trap 'trap - EXIT; exit 140' USR2
}

# The run's folder, before the file that names it is forgotten.
record_folder() {
  [ -z "${LOCKSTEP_RECORD:-}" ] || [ ! -s "${LOCKSTEP_RUN_FILE:-}" ] || RECORDED_FOLDER=$(realpath "$(cat "$LOCKSTEP_RUN_FILE")")
}

record_end() {
  local status=$?
  record_folder
  record end "$status $RECORDED_FOLDER"
}

# The job is to be started again: its script's end is not the job's.
record_again() {
  record again
  RECORD_BEGUN=
  trap - EXIT
}
