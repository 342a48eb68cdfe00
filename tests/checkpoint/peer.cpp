// The C++ half of tests/e2e/test_checkpoint.py: reads what Python wrote and writes it back.

#include <gtest/gtest.h>

#include <cstdlib>

#include "lockstep/checkpoint/pt.h"
#include "lockstep/checkpoint/rng.h"
#include "lockstep/checkpoint/safetensors.h"
#include "temp.h"

namespace lockstep {
namespace {

TEST(Peer, WritesBackWhatPythonWrote) {
  const char* input = std::getenv("LOCKSTEP_PEER_IN");
  const char* output = std::getenv("LOCKSTEP_PEER_OUT");
  if (!input || !output) GTEST_SKIP() << "run by tests/e2e/test_checkpoint.py";
  const auto tree = read_checkpoint_file(input);
  if (const auto state = find(tree, "rng")) {
    set_rng_state(state->toTensor());
    put(tree, "drawn", torch::rand({100}));
    put(tree, "rng_after", rng_state());
  }
  write_pt(output, snapshot(tree));
  if (const auto tensors = find(tree, "tensors"))
    write_safetensors(std::string(output) + ".safetensors", *tensors, {{"format", "pt"}});
}

}  // namespace
}  // namespace lockstep
