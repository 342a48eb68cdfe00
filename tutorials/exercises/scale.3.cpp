#include <lockstep/workshop.h>

// Each stage of a pipeline has some of the layers. A batch is divided into micro-batches: forward from stage 0 to the
// last one, backward in the other direction. A stage keeps a micro-batch's activations from forward to backward.

struct Work {
  char kind;  // 'F' or 'B'
  int micro_batch;
};

// The work of a stage, in order: each micro-batch forward once and backward once, both in the order 0, 1, 2, ... One
// forward, one backward (1F1B): as many forwards as are needed to fill the stages after this one, then one of each in
// turn, then the remaining backwards. So stage s keeps at most stages - s micro-batches.
std::vector<Work> order_of(int stage, int stages, int micro_batches) {
  std::vector<Work> order;
  // TODO: order.push_back({'F', 0}), ...
  (void)stage;
  (void)stages;
  (void)micro_batches;
  return order;
}

// The bubble: the fraction of time that a stage waits, if a forward takes the same time on every stage, and so does a
// backward.
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
