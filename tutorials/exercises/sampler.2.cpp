#include <lockstep/workshop.h>

// Twelve samples and three epochs. With `.shuffle = true`, the list is shuffled before it is divided. All ranks use the
// same shuffled list, so no two ranks take the same sample. But look at the output: every epoch has the order of the
// first one. Fix it.

int main() {
  return lockstep::run([] {
    lockstep::Session session;
    lockstep::DistributedSampler sampler(12, session, {.shuffle = true, .seed = 7});
    for (int64_t epoch = 0; epoch < 3; ++epoch) {
      // TODO: add one line
      lockstep::show("epoch " + std::to_string(epoch), sampler.indices());
    }
  });
}
