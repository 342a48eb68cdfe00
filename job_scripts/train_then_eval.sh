#!/bin/bash
# Two jobs, the second after the first has succeeded: train, then measure the newest checkpoint.
#   job_scripts/train_then_eval.sh [sbatch's or qsub's options] SCRIPT [arguments]
#   job_scripts/train_then_eval.sh --nodes=2 job_scripts/ddp.slurm configs/mnist.yaml --set train.epochs=3
#   CONFIG=configs/pima.yaml job_scripts/train_then_eval.sh -l select=2:ncpus=2:mpiprocs=2 job_scripts/ddp.pbs
# Where PBS stops the training early, its fresh qsub is another job, and the second one is not run: submit eval.pbs.
set -eu
here=$(dirname "$0")
options=()
until [[ ${1:-} =~ \.(slurm|pbs)$ ]]; do
  [ $# -gt 0 ] || { sed -n '2,5s/^# \?//p' "$0" >&2; exit 2; }
  options+=("$1")
  shift
done
script=$1
shift
export LOCKSTEP_RUN_FILE
LOCKSTEP_RUN_FILE=$PWD/.lockstep-then-$(date +%Y%m%d-%H%M%S)-$$
case $script in
  *.slurm)
    train=$(sbatch --parsable --export=ALL "${options[@]}" "$script" "$@")
    then=$(sbatch --parsable --export=ALL --dependency=afterok:"$train" --kill-on-invalid-dep=yes "$here/eval.slurm") ;;
  *.pbs)
    names=$(compgen -e | grep -E '^(LOCKSTEP_|CONFIG$|SET$)' | paste -sd,)  # qsub takes no name that is not set
    train=$(qsub "${options[@]}" -v "$names" "$script")
    then=$(qsub -W depend=afterok:"$train" -v "$names" "$here/eval.pbs") ;;
esac
echo "train: job $train, then eval: job $then"
