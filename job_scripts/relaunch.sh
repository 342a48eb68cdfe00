# shellcheck shell=bash disable=SC2034,SC2153  # what is set here, the other parts read
# A run that survives its nodes: where train.as_world says how many ranks it has, whatever carries them, ranks that were
# lost are started again within the job, on the nodes that answer, from the newest checkpoint. docs/how-to/elastic.md

RELAUNCHES=0 AS_WORLD=0  # of what is no training

check_relaunch() {
  local name
  for name in LOCKSTEP_MAX_RELAUNCHES LOCKSTEP_NODE_TIMEOUT; do
    is_number "${!name:-0}" || die "$name=${!name}: a number is wanted"
  done
  MAX_RELAUNCHES=${LOCKSTEP_MAX_RELAUNCHES:-3}
  NODE_TIMEOUT=$(at_least_1 "${LOCKSTEP_NODE_TIMEOUT:-3}")
  RELAUNCHES=0 LOST=() LOST_AT='' RUN=''
}

# train.as_world as the words of a training, or a run's folder, have it; what it was where the program cannot tell.
as_world_of() {
  local text
  text=$("$LOCKSTEP_PROGRAM" config "$@" 2>/dev/null </dev/null) || { echo "$AS_WORLD"; return; }
  text=$(sed -n 's/^  as_world: \([0-9]*\).*/\1/p' <<<"$text")
  echo "${text:-0}"
}

own_file() { echo "$PWD/.lockstep-$1-${SLURM_CLUSTER_NAME:+$SLURM_CLUSTER_NAME.}$(job_id)"; }  # leftovers.sh sweeps them

# Before the first ranks start: where they say what befell them, and how soon a node that is silent counts as gone.
hear_of_losses() {
  USERS_ERRORS=${LOCKSTEP_ERRORS-} USERS_SILENCE=${LOCKSTEP_SILENCE-} AS_WORLD=0
  export LOCKSTEP_ERRORS
  # a file of the user's own will do; a descriptor reaches no rank
  OWN_ERRORS=''
  [[ ! ${LOCKSTEP_ERRORS:-0} =~ ^[0-9]+$ ]] || OWN_ERRORS=yes
  begin_attempt
  may_ever_relaunch || return 0
  AS_WORLD=$(as_world_of "$CONFIG" "${ARGUMENTS[@]}")
  [ "$AS_WORLD" -eq 0 ] || export LOCKSTEP_SILENCE="${LOCKSTEP_SILENCE:-5}"
}

may_ever_relaunch() { [ "$MAX_RELAUNCHES" -gt 0 ] && ! { in_slurm && is_heterogeneous; }; }

forget_losses() {
  local number
  for ((number = 0; number <= RELAUNCHES; ++number)); do
    rm -f "$(own_file "errors$number")" "$(own_file "silent$number")"
  done
  rm -f "$(own_file nodes)"
  LOCKSTEP_ERRORS=$USERS_ERRORS LOCKSTEP_SILENCE=$USERS_SILENCE
  [ -n "$USERS_ERRORS" ] || unset LOCKSTEP_ERRORS
  [ -n "$USERS_SILENCE" ] || unset LOCKSTEP_SILENCE
  unset LOCKSTEP_ATTEMPT
}

# All that an attempt starts has this word in its environment, on every node: so it is found, and ended. Two clusters that
# share a machine, as test labs do, may both have a job 1: the random number keeps their attempts apart.
begin_attempt() {
  export LOCKSTEP_ATTEMPT
  LOCKSTEP_ATTEMPT=$(job_id).$(scheduler_restarts).$RELAUNCHES.$RANDOM$RANDOM
  [ -z "$OWN_ERRORS" ] || LOCKSTEP_ERRORS=$(own_file "errors$RELAUNCHES")  # a lost node may write to the one before, late
  FAULTS_BEFORE=$(wc -l 2>/dev/null <"$LOCKSTEP_ERRORS")
  FAULTS_BEFORE=${FAULTS_BEFORE:-0}
}

faults() { tail -n "+$((FAULTS_BEFORE + 1))" "$LOCKSTEP_ERRORS" 2>/dev/null; }  # of this attempt

# attempt_here list | end: the ranks that it has on this node; the end of all that it has.
attempt_here() {
  local name=
  [ "$1" = end ] || name=$(basename "$LOCKSTEP_PROGRAM")
  bash "$LOCKSTEP_HOME/job_scripts/attempt.sh" "$1" "$LOCKSTEP_ATTEMPT" "$name"
}

# Ranks have been lost, and none is on this node any more: a launcher may wait for the lost ones for minutes. A rank that
# has said its error, or has heard of one, has 5 s to leave.
LOOK_FOR_LOSSES=0.5
end_a_launcher_of_lost_ranks() {
  local since='' looks=0
  trap '' TERM USR1 USR2
  while read -r -t "$LOOK_FOR_LOSSES"; [ $? -gt 128 ] && launcher_lives; do
    looks=$((looks + 1))
    losses_were_said || { [ $((looks % 10)) -eq 0 ] && ranks_are_gone; } || continue
    [ -n "$since" ] || note_silent_nodes &
    since=${since:-$SECONDS}
    if [ -n "$(attempt_here list)" ] && [ $((SECONDS - since)) -lt 5 ]; then continue; fi
    attempt_here end
    end_launcher "ranks were lost, and it has not left"
    return
  done
}

losses_were_said() { [ -s "$LOCKSTEP_ERRORS" ] && [ -n "$(faults)" ]; }

ranks_are_gone() {  # without a word; its run has failed
  [ -s "$LOCKSTEP_RUN_FILE" ] && [ -z "$(attempt_here list)" ] || return
  run_status >/dev/null 2>&1
  [ $? -eq 1 ]
}

# A launcher may leave before its ranks.
end_lost_attempt_here() { [ "$AS_WORLD" -eq 0 ] || ! losses_were_said || attempt_here end; }

# Were ranks or nodes lost, and nothing else? Without a line from any rank, all have ended without an error message; before
# there is a run, a start that fails so has another reason.
only_ranks_were_lost() {
  local code
  [ -n "$RUN" ] || [ ${#LOST[@]} -gt 0 ] || losses_were_said || return
  while read -r code; do
    case $code in
      rank-lost | rank-late | not-joined | no-memory) ;;
      failed | nccl | network) [ ${#LOST[@]} -gt 0 ] || return ;;  # what a node's end looks like to who meets it first
      *) return 1 ;;
    esac
  done < <(faults | sed -n 's/^{"code":"\([a-z-]*\)".*/\1/p')
}

ranks_at_fault() {  # "rank 3 was lost"
  local ranks
  mapfile -t ranks < <(faults | sed -n 's/^{"code":"rank-[a-z]*","ranks":\[\([0-9,]*\)\].*/\1/p' | head -n 1 | tr ',' '\n')
  case ${#ranks[@]} in
    0) echo "the ranks were lost" ;;
    1) echo "rank ${ranks[0]} was lost" ;;
    *) echo "ranks $(list_of "${ranks[@]}") were lost" ;;
  esac
}

list_of() { local IFS=,; printf '%s' "$*" | sed 's/,/, /g'; }

last_step() {  # that the run has logged
  tail -n 100 "${RUN:-$RESUME}/metrics.jsonl" 2>/dev/null | sed -n 's/^{"event":"step","step":\([0-9]*\),.*/\1/p' | tail -n 1
}

saved_step() {  # of the newest checkpoint
  local files=("${RUN:-$RESUME}"/checkpoints/step-*.pt) number
  number=${files[-1]##*/step-}
  number=${number%.pt}
  is_number "$number" && echo $((10#$number))
}

job_nodes() { if in_slurm; then nodes_of_slurm; else nodes_of_pbs; fi; }
is_this_node() { [ "$1" = "${SLURMD_NODENAME:-}" ] || [ "${1%%.*}" = "$(hostname -s)" ]; }

# Does the kernel of the node $1 answer at all? A connection that is refused is an answer. Asked at a port of the
# scheduler's own, which no firewall closes. A name that nobody knows says nothing.
kernel_answers() {
  local said port
  port=$(if in_slurm; then slurmd_port; else echo 15003; fi)  # MoM's
  # shellcheck disable=SC2016  # the words are that shell's
  said=$(LC_ALL=C timeout -s KILL "$NODE_TIMEOUT" bash -c ': >"/dev/tcp/$1/$2"' - "$1" "$port" 2>&1) ||
    [[ $said == *refused* || $said == *resolution* || $said == *"not known"* ]]
}

is_silent() { ! is_this_node "$1" && ! kernel_answers "$1"; }

# While the ranks that are left say their last words.
note_silent_nodes() {
  local file all
  file=$(own_file "silent$RELAUNCHES")
  mapfile -t all < <(job_nodes)
  each_node is_silent "${all[@]}" >"$file.new" && mv "$file.new" "$file"
}

was_silent() {
  local file
  file=$(own_file "silent$RELAUNCHES")
  if [ -e "$file" ]; then grep -qxF "$1" "$file"; else is_silent "$1"; fi
}

# Asks a node, which ends what is left of the attempt there. A scheduler may be slow, a kernel is not.
STEP_TIMEOUT=30
node_answers() {
  local words=(/bin/bash "$LOCKSTEP_HOME/job_scripts/attempt.sh" end "$LOCKSTEP_ATTEMPT" '')
  if is_this_node "$1"; then
    "${words[@]}"
    return 0
  fi
  ! was_silent "$1" || return
  if in_slurm; then ask_slurm_node "$1" "${words[@]}"; else ask_pbs_node "$1" "${words[@]}"; fi
} 3>&2 2>/dev/null >&3 </dev/null  # a node says which processes it ends

ASK_AT_ONCE=64
each_node() {  # CHECK NODE...: the nodes that pass
  local node asked=0
  for node in "${@:2}"; do
    { "$1" "$node" && echo "$node"; } &
    asked=$((asked + 1))
    [ $((asked % ASK_AT_ONCE)) -ne 0 ] || wait
  done
  wait
}

# Sets LEFT and LOST, the nodes of the job in their order.
ask_all_nodes() {
  local node answered all
  mapfile -t all < <(job_nodes)
  answered=" $(each_node node_answers "${all[@]}" | tr '\n' ' ')"
  LEFT=() LOST=()
  for node in "${all[@]}"; do
    if [[ $answered == *" $node "* ]]; then LEFT+=("$node"); else LOST+=("$node"); fi
  done
}

# After an attempt that left with status $1: may the ranks be started again in this job? Then it is laid out for them.
relaunch() {
  [ "$1" -eq 1 ] || [ "$1" -eq 3 ] || return
  [ -z "$GOT" ] && may_ever_relaunch || return
  LOST=()
  [ -z "$RUN" ] || AS_WORLD=$(as_world_of "$RUN")
  [ "$AS_WORLD" -gt 0 ] || { say_what_would_help; return 1; }
  ask_all_nodes
  only_ranks_were_lost && [ -z "$GOT" ] && ! is_enough || return
  RELAUNCHES=$((RELAUNCHES + 1))
  say_relaunch
  lay_out_again
}

say_what_would_help() {
  [ "$RANKS" -eq 1 ] || [ -n "${OUT_OF_MEMORY:-}" ] || ! only_ranks_were_lost ||
    say "$(ranks_at_fault): with train.as_world the ranks would have been started again on the nodes that are left (docs/how-to/elastic.md)"
}

what_is_lost() { if [ ${#LOST[@]} -gt 0 ]; then nodes_that_are_lost; else ranks_at_fault; fi; }

# A step that ends a rank each time it comes does so on any node.
is_enough() {
  local what step at=$LOST_AT
  what=$(what_is_lost) step=$(last_step) LOST_AT=''
  # an attempt whose ranks never began (srun could not create the step) reports no losses and does not count
  [ ${#LOST[@]} -gt 0 ] || { [ ! -s "$LOCKSTEP_RUN_FILE" ] && ! losses_were_said; } || LOST_AT=step-${step:-0}
  if [ "$RELAUNCHES" -ge "$MAX_RELAUNCHES" ]; then
    say "$what, and $RELAUNCHES relaunches are enough (LOCKSTEP_MAX_RELAUNCHES=$MAX_RELAUNCHES); submit again to go on"
  elif [ -n "$LOST_AT" ] && [ "$LOST_AT" = "$at" ]; then
    say "${what/ lost/ lost twice} after step ${step:-0}, and no node: the same would come again, and the run ends here"
  else
    return 1
  fi
}

say_relaunch() {
  local nodes="${#LEFT[@]} nodes" from
  [ ${#LEFT[@]} -gt 1 ] || nodes="1 node"
  [ ${#LOST[@]} -gt 0 ] || nodes="the same $nodes"
  from=$(saved_step)
  say "$(what_is_lost); going on with $nodes ${from:+after step }${from:-from the first step} (relaunch $RELAUNCHES of at most $MAX_RELAUNCHES)"
  record relaunch "$RELAUNCHES${LOST[*]:+ without ${LOST[*]}}"
}

nodes_that_are_lost() {
  if [ ${#LOST[@]} -eq 1 ]; then echo "node ${LOST[0]} does not answer"; else echo "nodes $(list_of "${LOST[@]}") do not answer"; fi
}

# Each node that is left gets the ranks that it had.
lay_out_again() {
  if in_slurm; then keep_slurm_nodes; else keep_pbs_nodes; fi
  read_allocation
  begin_attempt
  choose_start
  say "start: ${START[*]}"
}
