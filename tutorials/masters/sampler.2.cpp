//@ title      Another order in every epoch
//@ hint       The order is drawn from two numbers: the seed and the epoch. Which of them changes here?
//@ hint       The sampler does not count epochs by itself: somebody has to tell it which one begins.
//@ hint       sampler.set_epoch(epoch), on every rank, before the samples of that epoch are asked for.
//@ unsolved   the same order
#include <lockstep/workshop.h>

// Twelve samples and three epochs. With `.shuffle = true` the list is shuffled before it is shared out; all
// ranks draw the same shuffle, so that nobody takes what is another's. But look at the output: every epoch has
// the order of the first one. Fix it.

int main() {
  return lockstep::run([] {
    lockstep::Session session;
    //@ todo
    lockstep::DistributedSampler sampler(12, session, {.shuffle = true, .seed = 7});
    //@ solution
    lockstep::DistributedSampler sampler(12, session, {.shuffle = true, .seed = 7});
    //@ wrong seeds: twice in epoch
    lockstep::DistributedSampler sampler(12, session, {.shuffle = true, .seed = 7 + session.rank()});
    //@ wrong own_seed: has the list of epoch 1
    lockstep::DistributedSampler sampler(12, session, {.shuffle = true, .seed = 8});
    //@ wrong plain: is not shuffled
    lockstep::DistributedSampler sampler(12, session, {.shuffle = false, .seed = 7});
    //@ end
    for (int64_t epoch = 0; epoch < 3; ++epoch) {
      //@ todo
      // TODO: one line
      //@ solution
      sampler.set_epoch(epoch);
      //@ wrong first: twice in epoch 1
      if (session.rank() == 0) sampler.set_epoch(epoch);
      //@ wrong constant: the same order
      sampler.set_epoch(1);
      //@ wrong rank: twice in epoch 0
      sampler.set_epoch(epoch + session.rank());
      //@ wrong next: has the list of epoch 1
      sampler.set_epoch(epoch + 1);
      //@ wrong backward: has the list of epoch -1
      sampler.set_epoch(-epoch);
      //@ wrong time: the same seed and the same epoch
      sampler.set_epoch(std::time(nullptr));
      //@ wrong chance: of no epoch near it
      sampler.set_epoch(rand());
      //@ end
      lockstep::show("epoch " + std::to_string(epoch), sampler.indices());
    }
  });
}
