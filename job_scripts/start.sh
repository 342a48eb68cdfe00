# shellcheck shell=bash
# How ranks are started here: srun (slurm.sh), or the MPI's mpirun or mpiexec.

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

openmpi_has() { { ompi_info --parsable; prte_info --parsable; } 2>/dev/null | grep -q "^mca:[a-z]*:$1:"; }
starts_by_prrte() { [[ $("$1" --version 2>&1 </dev/null | head -n 1) =~ PRRTE|"Open MPI) "([5-9]|[1-9][0-9]) ]]; }

# Fills the array START with the command that starts RANKS copies of what follows it.
choose_start() {
  local kind=${LOCKSTEP_START:-}
  if [ -z "$kind" ]; then
    if in_slurm && command -v srun >/dev/null; then kind=srun
    elif command -v mpirun >/dev/null && [ "$(mpi_family mpirun)" = openmpi ]; then kind=mpirun
    elif command -v mpiexec >/dev/null; then kind=mpiexec
    elif command -v mpirun >/dev/null; then kind=mpirun
    else die "no srun, mpirun or mpiexec on PATH; load an MPI module"; fi
  fi
  command -v "$kind" >/dev/null || die "LOCKSTEP_START=$kind: no such command on PATH"
  ! in_slurm || ! is_heterogeneous || [ "$kind" = srun ] ||
    die "LOCKSTEP_START=$kind: it starts ranks in the first component of a heterogeneous job alone; srun reaches all"
  case $kind in
    srun) start_with_srun ;;
    mpirun | mpiexec)
      case $(mpi_family "$kind") in
        openmpi) start_with_openmpi "$kind" ;;
        pals) START=("$kind" -n "$RANKS" --ppn "$(ranks_on_a_node)" --depth "$CPUS_PER_RANK" --cpu-bind depth)
          [ "$RELAUNCHES" -eq 0 ] || START+=(--hostfile "$PBS_NODEFILE") ;;
        *) start_with_hydra "$kind" ;;
      esac ;;
    *) die "LOCKSTEP_START=$kind: choose srun, mpirun or mpiexec" ;;
  esac
}

# What the launcher says of its own is passed on, but for Open MPI's banner under an error that a rank has told already.
# With -q its own errors would be lost, too. PBS signals this filter as all others. What slurmstepd says of processes that
# ran out of memory goes into the file $1, too.
without_banner() {
  trap '' TERM USR1 USR2
  exec env -u POSIXLY_CORRECT -u LOCKSTEP_ATTEMPT sed -u '
    /oom.kill event/w '"$1"'
    /^[a-z]*run: Forwarding signal [0-9]* to job$/d
    /^\[[^]]*\] .*\(sent help message .*mpi-abort\|Set MCA parameter "[a-z]*_base_help_aggregate"\)/d
    /^-\{70,\}$/{
      :more
      N
      /\n-\{70,\}$/!{/\(\n[^\n]*\)\{16\}/!b more
      }
      /non-zero \(exit code\|status\)\|MPI_ABORT was invoked/d
    }'
}

ranks_on_a_node() { echo $(((RANKS + NODES - 1) / NODES)); }

start_with_openmpi() {
  START=("$1")
  [ "$(id -u)" = 0 ] && START+=(--allow-run-as-root)
  if starts_by_prrte "$1"; then words_for_prrte; else words_for_orte; fi
  START+=(-n "$RANKS")
  if in_slurm; then
    [ "$RELAUNCHES" -eq 0 ] || export SLURM_OVERLAP=1  # for mpirun's own srun
  elif ! openmpi_has tm; then
    START+=(--hostfile "$PBS_NODEFILE")
    [ "$NODES" -gt 1 ] && START+=("${AGENT[@]}" "$LOCKSTEP_HOME/job_scripts/pbs_agent.sh") && pass_environment
  elif [ "$RELAUNCHES" -gt 0 ]; then
    START+=(--hostfile "$PBS_NODEFILE")
  fi
  return 0
}

# Open MPI up to 4. A dying job gets twice 5 s, not 2, to write its checkpoint. mpirun takes that time after every status
# but 0, even with nobody left to kill, so it is told to pass over statuses: the run's folder knows how it ended.
words_for_orte() {
  AGENT=(--mca plm_rsh_agent)
  [ -n "${LOCKSTEP_RUN_FILE:-}" ] && START+=(--mca odls_base_sigkill_timeout 5 --mca orte_abort_on_non_zero_status 0)
  if [ -n "$RANKS_PER_NODE" ]; then
    START+=(--map-by "ppr:$RANKS_PER_NODE:node:PE=$CPUS_PER_RANK" --bind-to core:overload-allowed --oversubscribe)
  elif [ "$CPUS_PER_RANK" -gt 1 ]; then
    START+=(--bind-to none)  # a rank of several cores, which the default would bind to one
  fi
}

# Open MPI 5, whose mpirun is PRRTE's: it has no time before SIGKILL, and refuses to share cores by PE.
words_for_prrte() {
  local word
  AGENT=(--prtemca plm_ssh_agent)
  if [ -n "${LOCKSTEP_RUN_FILE:-}" ]; then
    # its name has changed within version 5; asked on this node alone, as if there were no job
    for word in error-nonzero-status abort-nonzero-status; do
      timeout 30 env -u PBS_JOBID -u SLURM_JOB_ID -u SLURM_JOBID "${START[@]}" --runtime-options "$word=0" -n 1 true >/dev/null 2>&1 </dev/null || continue
      START+=(--runtime-options "$word=0")
      break
    done
  fi
  if [ -n "$RANKS_PER_NODE" ] && [ $((RANKS_PER_NODE * CPUS_PER_RANK)) -le "$CORES_OF_A_NODE" ]; then
    START+=(--map-by "ppr:$RANKS_PER_NODE:node:PE=$CPUS_PER_RANK" --bind-to core:overload-allowed)
  else
    word=${RANKS_PER_NODE:+ppr:$RANKS_PER_NODE:node}
    START+=(--map-by "${word:-slot}:oversubscribe" --bind-to none)
  fi
}

# A task that TM starts gets a fresh environment: what the ranks need travels by name.
pass_environment() {
  local name
  for name in PATH LD_LIBRARY_PATH $(compgen -e | grep -E \
    '^(LOCKSTEP_|PBS_|OMP_|KMP_|MKL_|GLOO_|NCCL_|UCX_|FI_|OMPI_MCA_|TORCH_|CUDA_|NCPUS$|TMPDIR$)'); do
    [ -n "${!name+set}" ] && START+=(-x "$name")
  done
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
