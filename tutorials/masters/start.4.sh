#@ title      Fix an environment with the doctor's help
#@ hint       Run it as the comment says, and read the lines that do not begin with `ok`: each names a check, what it found, and what to do.
#@ hint       Three lines are harmful. What would each rank use without them? lockstep chooses the number of threads itself.
#@ hint       Remove OMP_NUM_THREADS, ulimit and TORCH_DISTRIBUTED_DEBUG. NCCL_DEBUG=WARN is harmless.
#!/bin/bash
# start.4.sh PROGRAM WORD...: what a job does on each rank before it starts the program. The script is from another
# cluster, where each line was useful once. Run the doctor in the environment that it sets:
#   mpirun -n 2 bash exercises/start.4.sh lockstep doctor
#@ todo
# TODO: fix the problems that the doctor reports
export OMP_NUM_THREADS=$(nproc --all)  # use all cores
export NCCL_DEBUG=WARN                 # NCCL prints errors
export TORCH_DISTRIBUTED_DEBUG=DETAIL  # a run hung in March
ulimit -n 256                          # the file server was slow
#@ solution
export NCCL_DEBUG=WARN                 # NCCL prints errors
#@ wrong threads
export OMP_NUM_THREADS=$(nproc --all)
export NCCL_DEBUG=WARN
#@ right a_number
export OMP_NUM_THREADS=1
#@ wrong empty
export OMP_NUM_THREADS=
export NCCL_DEBUG=WARN
#@ wrong letters
export OMP_NUM_THREADS=auto
#@ wrong files
export NCCL_DEBUG=WARN
ulimit -n 256
#@ wrong debug
export NCCL_DEBUG=WARN
export TORCH_DISTRIBUTED_DEBUG=DETAIL
#@ wrong quote: bash cannot read
export NCCL_DEBUG="WARN
#@ end

# Then the shell becomes the program, with its arguments unchanged, so that the launcher sees its exit status.
#@ todo
exec "$@"
#@ solution
exec "$@"
#@ right a_number
exec "$@"
#@ wrong above: instead of replacing itself
"$@"
#@ wrong first_word
exec "$1"
#@ wrong own: does not run its program
lockstep doctor
#@ wrong words
exec $@
#@ wrong end: exit status is lost
"$@"
echo "done"
#@ wrong bare: without the launcher's variables
exec env -i "$@"
#@ end
