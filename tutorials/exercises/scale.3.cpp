#include <lockstep/workshop.h>

// A pipeline's stages hold some layers each. A batch goes through them in micro-batches: forward from stage 0 to the
// last, backward the other way. A stage keeps a micro-batch's activations from its forward to its backward.

struct Work {
  char kind;  // 'F' or 'B'
  int micro_batch;
};

// What a stage does, in its order: each micro-batch forward once and backward once, both in the order 0, 1, 2, ...
// One forward, one backward (1F1B): as many forwards as are needed to fill the stages behind this one, then one of
// each in turn, then the backwards that are left. So stage s never keeps more than stages - s micro-batches.
std::vector<Work> order_of(int stage, int stages, int micro_batches) {
  std::vector<Work> order;
  // TODO: order.push_back({'F', 0}), ...
  (void)stage;
  (void)stages;
  (void)micro_batches;
  return order;
}

// The bubble: which share of the time does a stage wait, where a forward costs a stage as much as any other, and a
// backward too?
double bubble(int stages, int micro_batches) {
  // TODO
  (void)stages;
  (void)micro_batches;
  return 0;
}

// STAGES MICRO_BATCHES
int main(int count, char** words) {
  return lockstep::run([&] {
    const int stages = count > 1 ? std::stoi(words[1]) : 3, micro_batches = count > 2 ? std::stoi(words[2]) : 4;
    for (int stage = 0; stage < stages; ++stage) {
      std::string line;
      for (const auto& work : order_of(stage, stages, micro_batches))
        line += (line.empty() ? "" : " ") + std::string(1, work.kind) + std::to_string(work.micro_batch);
      lockstep::show("stage " + std::to_string(stage), line);
    }
    lockstep::show("bubble", bubble(stages, micro_batches));
  });
}
