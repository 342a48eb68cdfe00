#include <utility>

#include "capture.h"
#include "context.h"
#include "graph.h"
#include "handles.h"

namespace pretended {

// What a program gives a graph to keep; its end is called when the last who holds it lets go.
struct UserObject {
  void* data = nullptr;
  cudaHostFn_t end = nullptr;
  UserObject(void* what, cudaHostFn_t how) : data(what), end(how) {}
  ~UserObject() { end(data); }
  UserObject(const UserObject&) = delete;
  UserObject& operator=(const UserObject&) = delete;
};

namespace {

using Nodes = std::vector<Node>;

struct Launchable {
  std::shared_ptr<const Nodes> nodes;
  std::vector<std::shared_ptr<UserObject>> objects;
};

// A handle that its creator holds some times over.
struct Held {
  std::shared_ptr<UserObject> object;
  unsigned count = 0;
};

Handles<Graph>& graphs() {
  static auto& all = *new Handles<Graph>;
  return all;
}

Handles<Launchable>& launchables() {
  static auto& all = *new Handles<Launchable>;
  return all;
}

Handles<Held>& held() {
  static auto& all = *new Handles<Held>;
  return all;
}

void let_go(cudaUserObject_t handle, Held& one, unsigned count) {
  one.count -= count;
  if (one.count > 0) return;
  held().remove(handle);
  one.object = nullptr;
}

}  // namespace

cudaGraph_t handle_of(const std::shared_ptr<Graph>& graph) {
  return reinterpret_cast<cudaGraph_t>(graph.get());
}

cudaGraph_t add_graph(std::shared_ptr<Graph> graph) {
  return graphs().add<cudaGraph_t>(std::move(graph));
}

void forget_graph(const std::shared_ptr<Graph>& graph) {
  graphs().remove(graph.get());
}

}  // namespace pretended

using namespace pretended;

extern "C" {

// Counts them; there are no handles to give.
cudaError_t cudaGraphGetNodes(cudaGraph_t handle, cudaGraphNode_t* nodes, size_t* count) {
  const auto graph = graphs().find(handle);
  if (!graph) return give(cudaErrorInvalidValue);
  if (nodes) {
    lab::say("not imitated: cudaGraphGetNodes of handles");
    return give(cudaErrorNotSupported);
  }
  *count = graph->nodes.size();
  return cudaSuccess;
}

cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t* made, cudaGraph_t handle, unsigned long long) {
  const auto graph = graphs().find(handle);
  if (!graph) return give(cudaErrorInvalidValue);
  auto launchable = std::make_shared<Launchable>();
  launchable->nodes = std::make_shared<const Nodes>(graph->nodes);
  launchable->objects = graph->objects;
  *made = launchables().add<cudaGraphExec_t>(std::move(launchable));
  return cudaSuccess;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t* made, cudaGraph_t graph, unsigned long long flags) {
  return cudaGraphInstantiateWithFlags(made, graph, flags);
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t handle, cudaStream_t stream) {
  const auto launchable = launchables().find(handle);
  if (!launchable) return give(cudaErrorInvalidValue);
  lab::count("graph");
  return lab::enqueue(
      stream,
      [nodes = launchable->nodes] {
        for (const Node& node : *nodes) node.work();
      },
      "graph");
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  return give(graphs().remove(graph) ? cudaSuccess : cudaErrorInvalidValue);
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t graph) {
  return give(launchables().remove(graph) ? cudaSuccess : cudaErrorInvalidValue);
}

cudaError_t cudaUserObjectCreate(cudaUserObject_t* made, void* data, cudaHostFn_t end, unsigned count,
                                 unsigned) {
  auto object = std::make_shared<UserObject>(data, end);
  *made = held().add<cudaUserObject_t>(std::make_shared<Held>(Held{std::move(object), count}));
  return cudaSuccess;
}

cudaError_t cudaUserObjectRetain(cudaUserObject_t handle, unsigned count) {
  const auto one = held().find(handle);
  if (!one) return give(cudaErrorInvalidValue);
  one->count += count;
  return cudaSuccess;
}

cudaError_t cudaUserObjectRelease(cudaUserObject_t handle, unsigned count) {
  const auto one = held().find(handle);
  if (!one || one->count < count) return give(cudaErrorInvalidValue);
  let_go(handle, *one, count);
  return cudaSuccess;
}

cudaError_t cudaGraphRetainUserObject(cudaGraph_t graph_handle, cudaUserObject_t handle, unsigned count,
                                      unsigned flags) {
  const auto graph = graphs().find(graph_handle);
  const auto one = held().find(handle);
  const bool moves = (flags & cudaGraphUserObjectMove) != 0;
  if (!graph || !one || (moves && one->count < count)) return give(cudaErrorInvalidValue);
  graph->objects.push_back(one->object);
  if (moves) let_go(handle, *one, count);
  return cudaSuccess;
}

}  // extern "C"
