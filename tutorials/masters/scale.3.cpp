//@ title      The schedule of a pipeline stage
//@ hint       How many micro-batches must stage s send on before the first gradient can come back to it?
//@ hint       The last stage needs none: it starts each backward right after its forward. The stage before it needs one.
//@ hint       The warm-up has stages - 1 - stage forwards, but never more than there are micro-batches.
//@ hint       After it, alternate a forward and a backward until no forwards are left, then run the remaining backwards.
//@ unsolved   does nothing
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
  //@ todo
  // TODO: order.push_back({'F', 0}), ...
  (void)stage;
  (void)stages;
  (void)micro_batches;
  //@ solution
  const int warm_up = std::min(stages - 1 - stage, micro_batches);
  for (int i = 0; i < warm_up; ++i) order.push_back({'F', i});
  for (int i = warm_up; i < micro_batches; ++i) {
    order.push_back({'F', i});
    order.push_back({'B', i - warm_up});
  }
  for (int i = micro_batches - warm_up; i < micro_batches; ++i) order.push_back({'B', i});
  //@ wrong gpipe: keeps 4 micro-batches
  (void)stage;
  (void)stages;
  for (int i = 0; i < micro_batches; ++i) order.push_back({'F', i});
  for (int i = 0; i < micro_batches; ++i) order.push_back({'B', i});
  //@ wrong front
  const int warm_up = std::min(stage, micro_batches);
  for (int i = 0; i < warm_up; ++i) order.push_back({'F', i});
  for (int i = warm_up; i < micro_batches; ++i) {
    order.push_back({'F', i});
    order.push_back({'B', i - warm_up});
  }
  for (int i = micro_batches - warm_up; i < micro_batches; ++i) order.push_back({'B', i});
  //@ wrong eager
  (void)stage;
  (void)stages;
  for (int i = 0; i < micro_batches; ++i) {
    order.push_back({'F', i});
    order.push_back({'B', i});
  }
  //@ wrong twice
  const int warm_up = std::min(stages - 1 - stage, micro_batches);
  for (int i = 0; i < warm_up; ++i) order.push_back({'F', i});
  for (int i = 0; i < micro_batches; ++i) {
    order.push_back({'F', i});
    order.push_back({'B', i});
  }
  //@ wrong undrained
  const int warm_up = std::min(stages - 1 - stage, micro_batches);
  for (int i = 0; i < warm_up; ++i) order.push_back({'F', i});
  for (int i = warm_up; i < micro_batches; ++i) {
    order.push_back({'F', i});
    order.push_back({'B', i - warm_up});
  }
  //@ end
  return order;
}

// The bubble: the fraction of time that a stage waits, if a forward takes the same time on every stage, and so does a
// backward.
double bubble(int stages, int micro_batches) {
  //@ todo
  // TODO
  (void)stages;
  (void)micro_batches;
  return 0;
  //@ solution
  return double(stages - 1) / (micro_batches + stages - 1);
  //@ wrong busy
  return double(stages - 1) / micro_batches;
  //@ end
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
