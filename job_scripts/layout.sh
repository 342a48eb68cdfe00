# shellcheck shell=bash disable=SC2034  # what is set here, the other parts read
# How the job's ranks lie on its nodes: from what the scheduler gave (slurm.sh, pbs.sh) and what the user asked for.

gpus_in() {  # a list as CUDA_VISIBLE_DEVICES has it
  tr ',' '\n' <<<"${1#NoDevFiles}" | grep -c .
}

CPU_FOLDER=/sys/devices/system/cpu
DEVICE_FOLDER=/dev

# The node's GPUs are AMD's: they were given as such, or none but theirs are here.
gpus_are_amd() {
  [ -n "${ROCR_VISIBLE_DEVICES:-}${HIP_VISIBLE_DEVICES:-}" ] && return
  [ "$gpus" -gt 0 ] && [ -e "$DEVICE_FOLDER/kfd" ] && [ ! -e "$DEVICE_FOLDER/nvidiactl" ]
}

# Hardware threads of a core in the CPUs that the scheduler counts, of which this node has $1: 1 where it counts cores.
threads_per_core() {
  local siblings threads cores
  siblings=$(cat "$CPU_FOLDER"/cpu[0-9]*/topology/thread_siblings_list 2>/dev/null)
  threads=$(grep -c . <<<"$siblings")
  cores=$(sort -u <<<"$siblings" | grep -c .)
  if [ -n "${LOCKSTEP_THREADS_PER_CORE:-}" ]; then
    echo "$LOCKSTEP_THREADS_PER_CORE"
  elif [ "$cores" -eq 0 ] || [ "${1:-$threads}" -le "$cores" ]; then
    echo 1
  else
    echo $((threads / cores))
  fi
}

least() { printf '%s\n' "$@" | sort -n | head -n 1; }
sum() { local IFS=+; echo $(($*)); }
at_least_1() { echo $(($1 > 0 ? $1 : 1)); }

# Sets NODES, RANKS_PER_NODE (empty = as the scheduler laid the tasks out), RANKS, CORES_OF_A_NODE and CPUS_PER_RANK
# (cores, not threads).
read_allocation() {
  # Set by slurm_allocation and pbs_allocation, with NODES: the GPUs and cores of a node (the least of them), the tasks
  # that were asked for, how many of them on each node where that is the same on all, the cores of a task (asked for,
  # else its share), and all cores of the job.
  local gpus cores tasks tasks_per_node='' cores_per_task='' given='' name
  for name in LOCKSTEP_RANKS_PER_NODE LOCKSTEP_CPUS_PER_RANK LOCKSTEP_THREADS_PER_CORE; do
    [ -z "${!name:-}" ] || { is_number "${!name}" && [ "${!name}" -gt 0 ]; } || die "$name=${!name}: a number from 1 up is wanted"
  done
  if in_slurm; then
    slurm_allocation
  elif [ -n "${PBS_NODEFILE:-}" ]; then
    pbs_allocation
  else
    die "no job: neither SLURM_JOB_ID nor PBS_NODEFILE is set; submit this script with sbatch or qsub"
  fi
  if gpus_are_amd; then
    say "warning: this node's GPUs are AMD's, which lockstep cannot use: it trains on the CPU"
    gpus=0
  fi
  choose_ranks
  CORES_OF_A_NODE=$cores
  # PBS presets it to the whole node's cores; a rank's share is what is meant
  export OMP_NUM_THREADS=$CPUS_PER_RANK
  warn_of_waste
}

choose_ranks() {
  local most
  RANKS_PER_NODE=$tasks_per_node
  if [ -n "${LOCKSTEP_RANKS_PER_NODE:-}" ]; then
    RANKS_PER_NODE=$LOCKSTEP_RANKS_PER_NODE
  elif [ "$gpus" -gt 0 ]; then
    RANKS_PER_NODE=$gpus
  elif [ -z "$tasks" ]; then
    RANKS_PER_NODE=$(at_least_1 $((cores / ${LOCKSTEP_CPUS_PER_RANK:-${cores_per_task:-1}})))
  fi
  RANKS=${RANKS_PER_NODE:+$((NODES * RANKS_PER_NODE))}
  RANKS=${RANKS:-$tasks}
  if [ -n "$RANKS_PER_NODE" ]; then
    most=$(at_least_1 $((cores / RANKS_PER_NODE)))  # tasks that were meant for other ranks do not make these wider
    [ -n "$cores_per_task" ] && [ "$cores_per_task" -lt "$most" ] || cores_per_task=$most
  fi
  CPUS_PER_RANK=${LOCKSTEP_CPUS_PER_RANK:-${cores_per_task:-1}}
}

warn_of_waste() {
  if [ -n "$RANKS_PER_NODE" ] && [ "$RANKS_PER_NODE" -gt "$cores" ]; then
    say "warning: $RANKS_PER_NODE ranks share $cores core(s) of a node; ask for more (--cpus-per-task, --cpus-per-gpu, ncpus)"
  elif [ -n "$given" ] && [ $((2 * RANKS * CPUS_PER_RANK)) -le "$given" ]; then
    say "warning: $((RANKS * CPUS_PER_RANK)) of the job's $given cores are used, by $RANKS ranks of $CPUS_PER_RANK;" \
      "LOCKSTEP_RANKS_PER_NODE and LOCKSTEP_CPUS_PER_RANK say it otherwise"
  fi
}
