#pragma once
// Work of one device, recorded once and run again as a whole: a CUDA graph, which the plug-in makes.

#include <functional>

namespace lockstep::comm {

class StepGraph {
 public:
  StepGraph() = default;
  virtual ~StepGraph() = default;
  StepGraph(const StepGraph&) = delete;
  StepGraph& operator=(const StepGraph&) = delete;

  /// Records what `work` does on the device, without doing it; what it does on the host is done once, now.
  /// What was recorded before is forgotten. Work that has to wait for the device cannot be recorded: an
  /// Error.
  virtual void capture(const std::function<void()>& work) = 0;
  /// Does it, in its turn on the device; the host does not wait.
  virtual void replay() = 0;
};

}  // namespace lockstep::comm
