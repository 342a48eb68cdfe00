#include "nccl/group.h"

#include <algorithm>
#include <thread>
#include <utility>
#include <vector>

#include "nccl/api.h"
#include "nccl/errors.h"
#include "nccl/launch.h"

namespace lab::nccl {
namespace {

struct BegunCollective {
  CommPtr comm;
  cudaStream_t stream;
  Collective collective;
};
struct BegunPoints {
  CommPtr comm;
  cudaStream_t stream;
  std::vector<Point> points;
};

struct Group {
  int depth = 0;
  ncclResult_t error = ncclSuccess;
  bool in_background = false;
  std::vector<std::function<ncclResult_t()>> meetings;
  std::vector<BegunCollective> collectives;
  std::vector<BegunPoints> points;  // one for each communicator and stream
};
thread_local Group group;

void keep(ncclResult_t& first, ncclResult_t error) {
  if (first == ncclSuccess) first = error;
}

ncclResult_t hold(const std::vector<std::function<ncclResult_t()>>& meetings) {
  if (meetings.size() == 1) return meetings.front()();
  std::vector<ncclResult_t> results(meetings.size(), ncclSuccess);
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < meetings.size(); ++i)
    threads.emplace_back([&, i] { results[i] = meetings[i](); });
  for (auto& thread : threads) thread.join();
  ncclResult_t error = ncclSuccess;
  for (const auto result : results) keep(error, result);
  return error;
}

ncclResult_t begin(const BegunCollective& begun) {
  return launch(begun.comm, begun.stream, [what = begun.collective](Comm& comm) { run(comm, what); });
}
ncclResult_t begin(const BegunPoints& begun) {
  return launch(begun.comm, begun.stream, [points = begun.points](Comm& comm) { run(comm, points); });
}

template <class Begun>
void begin_all(const std::vector<Begun>& all, Group& of) {
  for (const auto& one : all) {
    if (of.error != ncclSuccess) return;
    of.error = begin(one);
    of.in_background = of.in_background || !one.comm->blocking;
  }
}

ncclResult_t end() {
  if (--group.depth > 0) return ncclSuccess;
  Group ended = std::exchange(group, {});
  if (ended.error == ncclSuccess && !ended.meetings.empty()) ended.error = hold(ended.meetings);
  begin_all(ended.collectives, ended);
  begin_all(ended.points, ended);
  return ended.error == ncclSuccess && ended.in_background ? ncclInProgress : ended.error;
}

}  // namespace

ncclResult_t in_group(const std::function<ncclResult_t()>& call) {
  ++group.depth;
  const auto error = call();
  keep(group.error, error);
  const auto result = end();
  return error != ncclSuccess ? error : result;
}

void add(const CommPtr& comm, cudaStream_t stream, const Collective& collective) {
  group.collectives.push_back({comm, stream, collective});
}

void add(const CommPtr& comm, cudaStream_t stream, const Point& point) {
  auto& all = group.points;
  auto same = std::find_if(all.begin(), all.end(),
                           [&](const BegunPoints& one) { return one.comm == comm && one.stream == stream; });
  if (same == all.end()) same = all.insert(same, {comm, stream, {}});
  same->points.push_back(point);
}

void add_meeting(std::function<ncclResult_t()> meeting) {
  group.meetings.push_back(std::move(meeting));
}
void add_background() {
  group.in_background = true;
}

}  // namespace lab::nccl

NCCL_CALL ncclResult_t ncclGroupStart() {
  ++lab::nccl::group.depth;
  return ncclSuccess;
}
NCCL_CALL ncclResult_t ncclGroupEnd() {
  if (lab::nccl::group.depth == 0)
    return lab::nccl::refuse(ncclInvalidUsage, "ncclGroupEnd: not in a group call.");
  return lab::nccl::end();
}
