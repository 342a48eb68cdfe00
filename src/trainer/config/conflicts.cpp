#include "trainer/config/conflicts.h"

#include "lockstep/launch/device.h"
#include "trainer/config/chosen.h"

namespace lockstep::config {
namespace {

using S = Settings;

// Other modes leave `parallel` out.
bool shares_layers(const S& s) {
  return s.train.mode == TrainMode::ddp && s.parallel.tensor > 1;
}
bool shares_stages(const S& s) {
  return s.train.mode == TrainMode::ddp && s.parallel.pipeline > 1;
}

const Choice kGraph = {"train.graph", "", [](const S& s) { return s.train.graph; }};
const Choice kSharedLayers = {"parallel.tensor", "above 1", shares_layers};
const Choice kStages = {"parallel.pipeline", "above 1", shares_stages};
const Choice kStaticGraph = {"ddp.static_graph", "", [](const S& s) { return s.ddp.static_graph; }};
const Choice kNoDecay = {"optim.no_decay", "", [](const S& s) { return !s.optim.no_decay.empty(); }};
const Choice kAccumulate = {"train.accumulate", "above 1", [](const S& s) { return s.train.accumulate > 1; }};
const Choice kFp16 = {"train.precision", "fp16",
                      [](const S& s) { return s.train.precision == Precision::fp16; }};
const Choice kOnDevices = {"train.mode", "data_parallel",
                           [](const S& s) { return s.train.mode == TrainMode::data_parallel; }};
const Choice kTwoStage = {"model.name", "two_stage", [](const S& s) { return s.model.name == "two_stage"; }};
const Choice kOwnAllReduce = {"launch.allreduce", "other than auto",
                              [](const S& s) { return s.launch.has_algorithm(); }};
const Choice kNoAllReduce = {"launch.allreduce", "auto",
                             [](const S& s) { return !s.launch.has_algorithm(); }};
const Choice kRegression = {"task.kind", "regression",
                            [](const S& s) { return s.task.is_regression() && is_read("task.kind", s); }};
const Choice kAsWorld = {"train.as_world", "above 0", [](const S& s) { return s.train.as_world > 0; }};
const Choice kProvoke = {"train.provoke", "", [](const S& s) { return s.train.provokes(); }};

constexpr const char* kNotCaptured = "a captured step has no place for it";
constexpr const char* kNoMessages = "slow messages down, and auto has none";
constexpr const char* kNoClasses = "it has no classes to count, weigh or smooth";

}  // namespace

const std::vector<Conflict>& conflicts() {
  static const std::vector<Conflict> all = {
      {kAccumulate, kStaticGraph, "the first step of a static graph has to be synchronised",
       "set ddp.static_graph to false, or train.accumulate to 1"},
      {kStages, kStaticGraph, "several micro-batches are under way at once", "set ddp.static_graph to false"},
      {kSharedLayers, kStages, "not combined yet",
       "share the layers, or the stages; parallel.data takes the other ranks"},
      {kSharedLayers, kNoDecay, "not combined yet",
       "leave out optim.no_decay, or let all ranks share the data"},
      {kStages, kNoDecay, "not combined yet", "leave out optim.no_decay, or let all ranks share the data"},
      {kOnDevices, kTwoStage, "each device holds a whole model, and two_stage is split",
       "set train.mode to ddp or single, or take another model"},
      {kFp16, kTwoStage, "fp16 scales the gradients of one device, and two_stage has two",
       "use bf16, or another model"},
      {{"train.early_stop", "above 0", [](const S& s) { return s.train.early_stop > 0; }},
       {"train.eval_every", "0", [](const S& s) { return s.train.eval_every == 0; }},
       "it never acts: it compares evaluations",
       "set train.eval_every to 1, or train.early_stop to 0"},
      {kRegression,
       {"task.classes", "above 0", [](const S& s) { return s.task.classes > 0; }},
       kNoClasses,
       "leave out task.classes"},
      {kRegression,
       {"task.class_weights", "other than none", [](const S& s) { return s.task.weighs_classes(); }},
       kNoClasses,
       "leave out task.class_weights"},
      {kRegression,
       {"train.label_smoothing", "above 0", [](const S& s) { return s.train.label_smoothing > 0; }},
       kNoClasses,
       "leave out train.label_smoothing"},
      {kOwnAllReduce,
       {"launch.backend", "nccl", [](const S& s) { return s.launch.backend == "nccl"; }},
       "it needs messages between CPUs",
       "leave launch.backend at auto, or set it to gloo or mpi; or set launch.allreduce to auto"},
      {{"launch.latency_us", "above 0", [](const S& s) { return s.launch.latency_us > 0; }},
       kNoAllReduce,
       kNoMessages,
       "set launch.allreduce to an algorithm: ring, say"},
      {{"launch.bandwidth_gbit", "above 0", [](const S& s) { return s.launch.bandwidth_gbit > 0; }},
       kNoAllReduce,
       kNoMessages,
       "set launch.allreduce to an algorithm: ring, say"},
      {kAsWorld,
       {"train.mode", "other than ddp", [](const S& s) { return s.train.mode != TrainMode::ddp; }},
       "the ranks are DDP's",
       "set train.mode to ddp"},
      {kAsWorld,
       {"launch.backend", "nccl or mpi",
        [](const S& s) { return s.launch.backend == "nccl" || s.launch.backend == "mpi"; }},
       "a process carries several ranks, which NCCL and MPI do not know",
       "leave launch.backend at auto: shared and gloo have the same bits"},
      {kAsWorld,
       {"train.layout", "auto", [](const S& s) { return s.train.layout == ImageLayout::automatic; }},
       "a measurement chooses it, and another one may choose otherwise",
       "set train.layout to nchw or channels_last"},
      {kAsWorld,
       {"launch.allreduce", "other than auto and ring",
        [](const S& s) { return s.launch.has_algorithm() && s.launch.allreduce != "ring"; }},
       "its sums are in another order than gloo's",
       "leave launch.allreduce at auto, or take ring"},
      {kAsWorld, kGraph, "a captured step has NCCL's sums, whose order depends on the number of GPUs",
       "set train.graph to false"},
      {kProvoke,
       {"train.mode", "other than ddp", [](const S& s) { return s.train.mode != TrainMode::ddp; }},
       "a fault is injected into DDP",
       "set train.mode to ddp"},
      {kGraph,
       {"train.trace", "above 0", [](const S& s) { return s.train.trace > 0; }},
       "a captured step has no phases that a trace could show",
       "turn one of the two off"},
      {kGraph,
       {"data.resident", "false", [](const S& s) { return !s.data.resident; }},
       "a captured step reads its samples from the device",
       "set data.resident to true"},
      {kGraph, kOnDevices, kNotCaptured, "use ddp or single"},
      {kGraph, kFp16, kNotCaptured, "use bf16 or fp32"},
      {kGraph, kTwoStage, "a step is captured on one device, and two_stage has two", "use another model"},
      {kGraph, kAccumulate, kNotCaptured, "set train.accumulate to 1"},
      {kGraph, kProvoke, kNotCaptured, "leave out train.provoke"},
      {kGraph, kSharedLayers, kNotCaptured, "set parallel.tensor to 1"},
      {kGraph, kStages, kNotCaptured, "set parallel.pipeline to 1"},
      {kGraph,
       {"optim.sharded", "", [](const S& s) { return s.optim.sharded; }},
       kNotCaptured,
       "set optim.sharded to false"},
      {kGraph,
       {"ddp.comm_hook", "other than none", [](const S& s) { return s.ddp.has_hook(); }},
       kNotCaptured,
       "set ddp.comm_hook to none"},
      {kGraph,
       {"ddp.sync_batchnorm", "", [](const S& s) { return s.ddp.sync_batchnorm; }},
       kNotCaptured,
       "set ddp.sync_batchnorm to false"},
      {kGraph,
       {"ddp.find_unused_parameters", "", [](const S& s) { return s.ddp.find_unused_parameters; }},
       "a captured step cannot look for them each time",
       "set it to false; ddp.static_graph finds them once"},
      {kGraph,
       {"launch.backend", "shared or gloo or mpi",
        [](const S& s) { return launch::sums_on_cpus(s.launch.backend); }},
       "they need the CPU in each step",
       "leave launch.backend at auto: NCCL alone works without the CPU"},
      {kGraph,
       {"model.checkpointing", "", [](const S& s) { return s.model.checkpointing; }},
       "what is captured cannot put random numbers back",
       "set model.checkpointing to false"},
      {kGraph,
       {"train.nvtx", "", [](const S& s) { return s.train.nvtx; }},
       "a captured step is one launch, and has no phases",
       "turn one of the two off"},
      {kGraph, kOwnAllReduce, "it needs the CPU in each step", "leave launch.allreduce at auto"},
  };
  return all;
}

}  // namespace lockstep::config
