# shellcheck shell=bash disable=SC2034  # what is set here, the other parts read
# The same job started again by its scheduler: a node died, the job was pre-empted, qrerun. Its own record says in which
# folder it was.

scheduler_restarts() {  # how often that has been
  local count
  in_slurm && { echo "${SLURM_RESTART_COUNT:-0}"; return; }
  count=$(field_of_pbs_job run_count)
  echo $((${count:-1} - 1))
}

# PBS may have been told to, when all that the job hears is a SIGTERM: the record stays.
may_start_again() { in_pbs && [ "$GOT" = TERM ] && [ "$(field_of_pbs_job Rerunable)" != False ]; }

# Names the job that was submitted in the place of this one.
next_file() { echo "$PWD/.lockstep-next-$(job_id)"; }

take_up_own_run() {
  local next status
  next=$(cat "$(next_file)" 2>/dev/null)
  if [ -n "$next" ] && ! job_is_gone "$next"; then
    say "job $next goes on with the run of this one: nothing to do here"
    exit 75
  fi
  rm -f "$(next_file)"
  [ -s "$LOCKSTEP_RUN_FILE" ] && [ -d "$(cat "$LOCKSTEP_RUN_FILE")" ] || return 0
  run_status >/dev/null 2>&1
  status=$?
  [ "$status" -ne 0 ] || { say "the run is done: nothing left to do"; exit 0; }
  [ "$status" -ne 4 ] || { say "the run was stopped on request: it stays stopped; submit again to go on"; exit 4; }
  RESUME=$(cat "$LOCKSTEP_RUN_FILE")
}
