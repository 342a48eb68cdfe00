#!/bin/bash
# start.4.sh PROGRAM WORD...: what a job does on each rank before it starts the program. The script is from another
# cluster, where each line was useful once. Run the doctor in the environment that it sets:
#   mpirun -n 2 bash exercises/start.4.sh lockstep doctor
# TODO: fix the problems that the doctor reports
export OMP_NUM_THREADS=$(nproc --all)  # use all cores
export NCCL_DEBUG=WARN                 # NCCL prints errors
export TORCH_DISTRIBUTED_DEBUG=DETAIL  # a run hung in March
ulimit -n 256                          # the file server was slow

# Then the shell becomes the program, with its arguments unchanged, so that the launcher sees its exit status.
exec "$@"
