# shellcheck shell=bash disable=SC2034,SC2153  # what is set here, the other parts read
# What is Slurm's own: what it gave the job, how srun starts the ranks, how the job goes on.

slurm_gpus() {  # of this job on this node: what the node has is not what the job may use
  if [ -n "${SLURM_GPUS_ON_NODE:-}" ]; then
    printf '%s' "$SLURM_GPUS_ON_NODE"
  else
    gpus_in "${SLURM_JOB_GPUS:-${CUDA_VISIBLE_DEVICES:-}}"
  fi
}

slurm_list() {  # 4(x2),1 becomes 4 4 1, a line each
  local word
  for word in ${1//,/ }; do
    if [[ $word =~ ^([0-9]+)\(x([0-9]+)\)$ ]]; then
      printf "${BASH_REMATCH[1]}\n%.0s" $(seq "${BASH_REMATCH[2]}")
    else
      echo "$word"
    fi
  done
}

cpus_of_this_node() { scontrol show node "${SLURMD_NODENAME:-}" 2>/dev/null | sed -n 's/.*CPUTot=\([0-9]*\).*/\1/p'; }

is_heterogeneous() { [ "${SLURM_HET_SIZE:-1}" -gt 1 ]; }

# The variable $1, or $2; of a heterogeneous job those of all its components, with commas.
of_all_components() {
  local component name list=
  is_heterogeneous || { echo "${!1:-$2}"; return; }
  for ((component = 0; component < SLURM_HET_SIZE; ++component)); do
    name=$1_HET_GROUP_$component
    list+=,${!name:-$2}
  done
  echo "${list#,}"
}

# CPUs are what Slurm counts, cores or hardware threads; THREADS of them are a core.
slurm_allocation() {
  local cpus laid nodes
  export SLURM_EXPORT_ENV=ALL  # sbatch --export is for this script: its ranks need what it sets
  mapfile -t cpus < <(slurm_list "$(of_all_components SLURM_JOB_CPUS_PER_NODE "${SLURM_CPUS_ON_NODE:-1}")")
  mapfile -t laid < <(slurm_list "$(of_all_components SLURM_TASKS_PER_NODE 1)")
  mapfile -t nodes < <(slurm_list "$(of_all_components SLURM_JOB_NUM_NODES 1)")
  NODES=$(sum "${nodes[@]}")
  THREADS=$(threads_per_core "$(cpus_of_this_node)")
  CPUS_OF_A_NODE=$(least "${cpus[@]}")
  cores=$(at_least_1 $((CPUS_OF_A_NODE / THREADS)))
  given=$(($(sum "${cpus[@]}") / THREADS))
  gpus=$(slurm_gpus)
  # SLURM_NTASKS is set only where tasks were asked for, or where it is an outer job's: then the tasks do not add up
  tasks=${SLURM_NTASKS:-}
  [ "$tasks" = "$(sum "${laid[@]}")" ] || tasks=
  [ -z "$tasks" ] || [ "$(printf '%s\n' "${laid[@]}" | sort -u | wc -l)" != 1 ] || tasks_per_node=${laid[0]}
  ! is_heterogeneous || tasks_of_components
  cores_per_task=$(cores_of_a_task)
  check_gpus
}

# One srun starts the tasks of all components as Slurm laid them out; one number for each node it cannot be told.
tasks_of_components() {
  [ -z "${LOCKSTEP_RANKS_PER_NODE:-}" ] ||
    die "LOCKSTEP_RANKS_PER_NODE does not go with a heterogeneous job: say --ntasks-per-node of each component"
  tasks=$(sum "${laid[@]}") tasks_per_node='' SLURM_GPUS_PER_TASK=${SLURM_GPUS_PER_TASK:-laid}
}

cores_of_a_task() {  # asked for, else the least share of the cores; nothing where neither is known
  local share=${SLURM_CPUS_PER_TASK:-} i
  ! is_heterogeneous || share=  # the first component's
  if [ -z "$share" ] && [ -n "$tasks" ]; then
    share=$(least "$(for i in "${!laid[@]}"; do echo $((cpus[i] / laid[i])); done)")
  fi
  [ -z "$share" ] || at_least_1 $((share / THREADS))
}

check_gpus() {
  if [ -n "${SLURM_GPUS_PER_TASK:-}" ]; then
    gpus=0  # Slurm has already matched tasks and GPUs
  elif [ "$gpus" -gt 0 ] && is_number "${SLURM_GPUS:-}" && [ "$SLURM_GPUS" != $((NODES * gpus)) ]; then
    die "$SLURM_GPUS GPUs do not lie evenly on $NODES nodes; ask with --gpus-per-node"
  fi
}

start_with_srun() {
  local width=$((CPUS_PER_RANK * THREADS))
  if [ -n "$RANKS_PER_NODE" ] && [ $((RANKS_PER_NODE * width)) -gt "$CPUS_OF_A_NODE" ]; then
    width=$(at_least_1 $((CPUS_OF_A_NODE / RANKS_PER_NODE)))
  fi
  # srun does not inherit sbatch's --cpus-per-task; -K1 ends the step when one rank fails
  START=(srun --kill-on-bad-exit=1 --cpus-per-task="$width")
  ! is_heterogeneous || START+=(--het-group="0-$((SLURM_HET_SIZE - 1))")
  [ -n "$RANKS_PER_NODE" ] && START+=(--ntasks="$RANKS" --ntasks-per-node="$RANKS_PER_NODE")
  [ -n "$RANKS_PER_NODE" ] && [ "$RANKS_PER_NODE" -gt "$CPUS_OF_A_NODE" ] && START+=(--overcommit)
  [ -n "${LOCKSTEP_SRUN_MPI:-}" ] && START+=(--mpi="$LOCKSTEP_SRUN_MPI")
  # with the default of Slurm 22.05 no node waits for the others in MPI_Init, and a message that comes too early kills its reader
  export SLURM_PMIX_FENCE=${SLURM_PMIX_FENCE:-ring}
  [ "$RELAUNCHES" -eq 0 ] || start_again_with_srun
  return 0
}

# Slurm sends the signal of --signal=B:USR1@120 at once to a job that has no more than those 120 s, or 60 s more: the first
# one is early by EARLY_BY seconds where more than a fifth of such a job's time is left.
is_early_warning() {
  local left limit
  [ -z "${WARNED:-}" ] || return 1  # in a trap, a plain return gives what was before it
  WARNED=yes
  read -r left limit < <(unset "${!SQUEUE_@}"; squeue --noheader --jobs="$SLURM_JOB_ID" --format='%A %L %l' 2>/dev/null |
    awk -v id="$SLURM_JOB_ID" '$1 == id { print $2, $3 }')
  [[ $left$limit =~ ^[0-9:]+$ ]] || return 1
  left=$(seconds_of "$left") limit=$(seconds_of "$limit")
  EARLY_BY=$((left - limit / 5))
  [ "$limit" -le 180 ] && [ "$EARLY_BY" -gt 0 ]
}

requeue_slurm() {
  local name
  # a task of an array by its own name: the last one's job id is the array's. Asked of Slurm, since SLURM_ARRAY_* may be
  # those of the job that submitted this one.
  name=$(squeue --noheader --jobs="$SLURM_JOB_ID" --format='%A %i' 2>/dev/null | awk -v id="$SLURM_JOB_ID" '$1 == id { print $2 }')
  hand_in scontrol requeue "${name:-$SLURM_JOB_ID}"
}

slurm_field() {  # NAME in the text of scontrol show job; its first line holds the job's name, which may be anything
  sed -n "1d;s/^\(.* \)\?$1=\([^ ]*\).*/\2/p" <<<"$2" | head -n 1
}

# Of this job alone: an array's last task and the first of a heterogeneous job's components have the number of them all.
slurm_job() { scontrol show job "$SLURM_JOB_ID" 2>/dev/null | awk -v RS= -v first="JobId=$SLURM_JOB_ID" '$1 == first'; }

# A requeue that is not ours, a node's failure and pre-emption count at once.
starts_again_in_slurm() {
  local restarts
  restarts=$(in_slurm && slurm_field Restarts "$(slurm_job)")
  is_number "$restarts" && [ "$restarts" -gt "${SLURM_RESTART_COUNT:-0}" ]
}

# A plain scancel: the job is being ended, neither by its limit nor by pre-emption, and is not to be started again.
cancelled_in_slurm() {
  local job
  job=$(slurm_job)
  case $(slurm_field JobState "$job") in COMPLETING | CANCELLED) ;; *) return 1 ;; esac
  [ "$(slurm_field Reason "$job")" != TimeLimit ] || return 1
  case $(slurm_field PreemptTime "$job") in "" | None | Unknown) ;; *) return 1 ;; esac
}

# ---- the nodes that are left, for relaunch.sh ----

nodes_of_slurm() { scontrol show hostnames "$SLURM_JOB_NODELIST"; }

slurmd_port() { scontrol show config 2>/dev/null | sed -n 's/^SlurmdPort *= *\([0-9]*\).*/\1/p'; }

# A step of one task; what was asked for the ranks is not for it.
ask_slurm_node() {  # NODE COMMAND...
  unset "${!SLURM_NTASKS@}" "${!SLURM_TASKS@}" "${!SLURM_CPUS_PER@}" "${!SLURM_GPUS@}" "${!SLURM_MEM@}" "${!SLURM_HINT@}"
  timeout -s KILL "$STEP_TIMEOUT" srun --overlap --nodes=1 --ntasks=1 --cpus-per-task=1 --mpi=none --nodelist="$1" "${@:2}"
}

# What Slurm said of the job, said of the nodes LEFT alone. A job that has given up its lost nodes lives on when Slurm
# notices that they are gone.
keep_slurm_nodes() {
  local all cpus laid i kept_cpus=() kept_laid=() gpus_of_a_node=${SLURM_GPUS_ON_NODE:-0}
  end_slurm_steps
  # the step of a lost node may hold its memory a while longer, and --overlap shares none; also for mpirun's own srun
  unset SLURM_MEM_PER_CPU SLURM_MEM_PER_GPU
  export SLURM_MEM_PER_NODE=0
  [ ${#LOST[@]} -gt 0 ] || return 0
  mapfile -t all < <(nodes_of_slurm)
  mapfile -t cpus < <(slurm_list "${SLURM_JOB_CPUS_PER_NODE:-1}")
  mapfile -t laid < <(slurm_list "${SLURM_TASKS_PER_NODE:-1}")
  for i in "${!all[@]}"; do
    [[ " ${LEFT[*]} " == *" ${all[i]} "* ]] || continue
    kept_cpus+=("${cpus[i]:-1}") kept_laid+=("${laid[i]:-1}")
  done
  export SLURM_JOB_NODELIST SLURM_NODELIST SLURM_JOB_NUM_NODES SLURM_NNODES SLURM_JOB_CPUS_PER_NODE SLURM_TASKS_PER_NODE
  SLURM_JOB_NODELIST=$(IFS=,; echo "${LEFT[*]}") SLURM_NODELIST=$SLURM_JOB_NODELIST
  SLURM_JOB_NUM_NODES=${#LEFT[@]} SLURM_NNODES=$SLURM_JOB_NUM_NODES
  SLURM_JOB_CPUS_PER_NODE=$(IFS=,; echo "${kept_cpus[*]}") SLURM_TASKS_PER_NODE=$(IFS=,; echo "${kept_laid[*]}")
  [ -z "${SLURM_NTASKS:-}" ] || SLURM_NTASKS=$(sum "${kept_laid[@]}") SLURM_NPROCS=$SLURM_NTASKS
  [ -z "${SLURM_GPUS:-}" ] || SLURM_GPUS=$((SLURM_NNODES * gpus_of_a_node))
  give_up_lost_nodes
}

give_up_lost_nodes() {
  local folder answer tries=0
  folder=$(mktemp -d) || return 0
  # it leaves two files where it is called
  until answer=$(cd "$folder" && timeout -k 1 10 scontrol update JobId="$SLURM_JOB_ID" NodeList="$SLURM_JOB_NODELIST" 2>&1); do
    tries=$((tries + 1))
    if [[ $answer == *"try again"* ]] && [ "$tries" -lt 10 ]; then sleep 1; continue; fi  # accounts do not know the job yet
    say "warning: Slurm would not take $(list_of "${LOST[@]}") from this job (${answer//$'\n'/ }): without sbatch --no-kill it ends the job when it notices"
    break
  done
  rm -rf "$folder"
}

# Steps whose srun has left: one waits for its lost node, and holds what the next one needs.
end_slurm_steps() {
  local steps
  mapfile -t steps < <(unset "${!SQUEUE_@}"; timeout -k 1 10 squeue --noheader --steps --jobs="$SLURM_JOB_ID" --format=%i 2>/dev/null | grep -E '[.][0-9]+$')
  [ ${#steps[@]} -eq 0 ] || timeout -k 1 10 scancel "${steps[@]}" 2>/dev/null || true
}

start_again_with_srun() {
  START+=(--overlap --nodes="$NODES" --nodelist="$SLURM_JOB_NODELIST")
  [ -n "$RANKS_PER_NODE" ] || START+=(--ntasks="$RANKS")
}
