//@ title      A different order in every epoch
//@ hint       The order depends on two numbers: the seed and the epoch. Which of them changes here?
//@ hint       The sampler does not count epochs. The program must set the epoch.
//@ hint       Call sampler.set_epoch(epoch) on every rank before you use the samples of that epoch.
//@ unsolved   the same order
#include <lockstep/workshop.h>

// Twelve samples and three epochs. With `.shuffle = true`, the list is shuffled before it is divided. All ranks use the
// same shuffled list, so no two ranks take the same sample. But look at the output: every epoch has the order of the
// first one. Fix it.

int main() {
  return lockstep::run([] {
    lockstep::Session session;
    //@ todo
    lockstep::DistributedSampler sampler(12, session, {.shuffle = true, .seed = 7});
    //@ solution
    lockstep::DistributedSampler sampler(12, session, {.shuffle = true, .seed = 7});
    //@ wrong seeds
    lockstep::DistributedSampler sampler(12, session, {.shuffle = true, .seed = 7 + session.rank()});
    //@ wrong own_seed
    lockstep::DistributedSampler sampler(12, session, {.shuffle = true, .seed = 8});
    //@ wrong plain: is not shuffled
    lockstep::DistributedSampler sampler(12, session, {.shuffle = false, .seed = 7});
    //@ end
    for (int64_t epoch = 0; epoch < 3; ++epoch) {
      //@ todo
      // TODO: add one line
      //@ solution
      sampler.set_epoch(epoch);
      //@ wrong first
      if (session.rank() == 0) sampler.set_epoch(epoch);
      //@ wrong constant
      sampler.set_epoch(1);
      //@ wrong rank
      sampler.set_epoch(epoch + session.rank());
      //@ right next
      sampler.set_epoch(epoch + 1);
      //@ wrong backward
      sampler.set_epoch(-epoch);
      //@ wrong time
      sampler.set_epoch(std::time(nullptr));
      //@ wrong chance
      sampler.set_epoch(rand());
      //@ end
      lockstep::show("epoch " + std::to_string(epoch), sampler.indices());
    }
  });
}
