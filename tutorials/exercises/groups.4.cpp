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
  // TODO: mpirun of Open MPI sets OMPI_COMM_WORLD_RANK and OMPI_COMM_WORLD_SIZE.
  // TODO: srun sets SLURM_PROCID, and SLURM_STEP_NUM_TASKS to the number of ranks. (SLURM_NTASKS is the number that
  //       the job requested.)
  // Neither sets the node of rank 0: call first_node().
  // TODO: throw lockstep::InputError("...") if this rank is invalid, so that no other rank waits for it
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
