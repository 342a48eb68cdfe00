//@ title      Join a job yourself: which rank, of how many, and where?
//@ hint       Look for mpirun's variables first. Inside a Slurm job srun's variables are set too, but they describe mpirun's helper processes.
//@ hint       Test said.contains("OMPI_COMM_WORLD_RANK"), then SLURM_STEP_NUM_TASKS: without it srun did not start this process.
//@ hint       A rank is between 0 and world - 1. For any other value, throw lockstep::InputError("...").
#include <lockstep/workshop.h>
#include <unistd.h>

#include <fstream>
#include <iostream>

// What a Session does first: determine from the environment which rank this process is. Here you write it yourself.

using Environment = std::map<std::string, std::string>;

struct Who {
  int rank = 0;
  int world = 1;
  std::string meet = "127.0.0.1";  // the node on which rank 0 waits for the others
};

const std::string& text(const Environment& said, const std::string& name) {
  if (!said.contains(name)) throw lockstep::InputError(name + " is not set");
  return said.at(name);
}

int number(const Environment& said, const std::string& name) {
  const auto& digits = text(said, name);
  try {
    return std::stoi(digits);
  } catch (const std::logic_error&) {
    throw lockstep::InputError(name + " is no number: " + digits);
  }
}

// The job's first node, from the scheduler's variable: "n[3-4,7]" begins with n3.
std::string first_node(const Environment& said) {
  std::string node = "127.0.0.1";
  if (said.contains("SLURM_JOB_NODELIST")) {
    node = said.at("SLURM_JOB_NODELIST");
    node = node.substr(0, node.find_first_of(",-]", node.find('[') + 1));
    std::erase(node, '[');
  } else if (said.contains("PBS_NODEFILE")) {
    std::ifstream(said.at("PBS_NODEFILE")) >> node;
  }
  return node;
}

Who who_am_i(const Environment& said) {
  Who who;
  if (said.contains("RANK")) {  // torchrun sets all of them
    who = {number(said, "RANK"), number(said, "WORLD_SIZE"), text(said, "MASTER_ADDR")};
  }
  //@ todo
  // TODO: mpirun of Open MPI sets OMPI_COMM_WORLD_RANK and OMPI_COMM_WORLD_SIZE.
  // TODO: srun sets SLURM_PROCID, and SLURM_STEP_NUM_TASKS to the number of ranks. (SLURM_NTASKS is the number that
  //       the job requested.)
  // Neither sets the node of rank 0: call first_node().
  //@ solution
  else if (said.contains("OMPI_COMM_WORLD_RANK")) {
    who = {number(said, "OMPI_COMM_WORLD_RANK"), number(said, "OMPI_COMM_WORLD_SIZE"), first_node(said)};
  } else if (said.contains("SLURM_STEP_NUM_TASKS")) {
    who = {number(said, "SLURM_PROCID"), number(said, "SLURM_STEP_NUM_TASKS"), first_node(said)};
  }
  //@ wrong stale
  else if (said.contains("OMPI_COMM_WORLD_RANK")) {
    who = {number(said, "OMPI_COMM_WORLD_RANK"), number(said, "OMPI_COMM_WORLD_SIZE"), first_node(said)};
  } else if (said.contains("SLURM_NTASKS")) {
    who = {number(said, "SLURM_PROCID"), number(said, "SLURM_NTASKS"), first_node(said)};
  }
  //@ wrong without_srun
  else if (said.contains("OMPI_COMM_WORLD_RANK")) {
    who = {number(said, "OMPI_COMM_WORLD_RANK"), number(said, "OMPI_COMM_WORLD_SIZE"), first_node(said)};
  } else if (said.contains("SLURM_PROCID")) {
    who = {number(said, "SLURM_PROCID"), number(said, "SLURM_STEP_NUM_TASKS"), first_node(said)};
  }
  //@ wrong no_srun
  else if (said.contains("OMPI_COMM_WORLD_RANK")) {
    who = {number(said, "OMPI_COMM_WORLD_RANK"), number(said, "OMPI_COMM_WORLD_SIZE"), first_node(said)};
  }
  //@ wrong slurm_first
  else if (said.contains("SLURM_STEP_NUM_TASKS")) {
    who = {number(said, "SLURM_PROCID"), number(said, "SLURM_STEP_NUM_TASKS"), first_node(said)};
  } else if (said.contains("OMPI_COMM_WORLD_RANK")) {
    who = {number(said, "OMPI_COMM_WORLD_RANK"), number(said, "OMPI_COMM_WORLD_SIZE"), first_node(said)};
  }
  //@ wrong absent
  else if (number(said, "OMPI_COMM_WORLD_RANK") >= 0) {
    who = {number(said, "OMPI_COMM_WORLD_RANK"), number(said, "OMPI_COMM_WORLD_SIZE"), first_node(said)};
  } else if (number(said, "SLURM_PROCID") >= 0) {
    who = {number(said, "SLURM_PROCID"), number(said, "SLURM_STEP_NUM_TASKS"), first_node(said)};
  }
  //@ wrong loopback
  else if (said.contains("OMPI_COMM_WORLD_RANK")) {
    who = {number(said, "OMPI_COMM_WORLD_RANK"), number(said, "OMPI_COMM_WORLD_SIZE"), "127.0.0.1"};
  } else if (said.contains("SLURM_STEP_NUM_TASKS")) {
    who = {number(said, "SLURM_PROCID"), number(said, "SLURM_STEP_NUM_TASKS"), "127.0.0.1"};
  }
  //@ end
  //@ todo
  // TODO: throw lockstep::InputError("...") if this rank is invalid, so that no other rank waits for it
  //@ solution
  if (who.rank < 0 || who.rank >= who.world) {
    throw lockstep::InputError("rank " + std::to_string(who.rank) + " of " + std::to_string(who.world));
  }
  //@ wrong unchecked: no other rank would ever join it
  // whoever I am
  //@ wrong off_by_one: count from 0
  if (who.rank < 0 || who.rank > who.world) {
    throw lockstep::InputError("rank " + std::to_string(who.rank) + " of " + std::to_string(who.world));
  }
  //@ end
  return who;
}

int main() {
  Environment said;
  for (char** line = environ; *line; ++line) {
    const std::string text = *line;
    const auto sign = text.find('=');
    if (sign != std::string::npos) said[text.substr(0, sign)] = text.substr(sign + 1);
  }
  try {
    const Who who = who_am_i(said);
    lockstep::show("rank", who.rank);
    lockstep::show("world", who.world);
    lockstep::show("meet", who.meet);
  } catch (const lockstep::InputError& error) {
    lockstep::show("error", error.what());
  }
  return 0;
}
