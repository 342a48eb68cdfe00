// Communicators that are made of others: split, shrunk, grown.
#include <algorithm>
#include <cstdio>
#include <utility>

#include "nccl/api.h"
#include "nccl/errors.h"
#include "nccl/group.h"
#include "nccl/handles.h"
#include "nccl/meeting.h"
#include "nccl/names.h"
#include "nccl/start.h"

namespace lab::nccl {
namespace {

// of the child, in their order
using Members = std::vector<int>;

Members members_of(const Comm& parent, int color) {
  std::vector<std::pair<int, int>> found;  // by key, then by rank
  for (int rank = 0; rank < parent.size; ++rank)
    if (parent.seat(rank).color == color) found.emplace_back(parent.seat(rank).key, rank);
  std::sort(found.begin(), found.end());
  Members members;
  for (const auto& [key, rank] : found) members.push_back(rank);
  return members;
}

Members members_without(const Comm& parent, const int* excluded, int count) {
  Members members;
  for (int rank = 0; rank < parent.size; ++rank)
    if (std::find(excluded, excluded + count, rank) == excluded + count) members.push_back(rank);
  return members;
}

ncclResult_t meet_as(Comm& child, const Comm& parent, const Members& members, const std::string& suffix) {
  const Facts& first = parent.seat(members.front()).facts;
  child.name = name_of_child({first.pid_namespace, first.process}, parent.name, suffix);
  child.size = static_cast<int>(members.size());
  child.rank = static_cast<int>(std::find(members.begin(), members.end(), parent.rank) - members.begin());
  return meet(child);
}

CommPtr child_of(const Comm& parent, bool blocking) {
  auto child = new_comm(blocking);
  child->device = parent.device;
  return child;
}

// The parent is busy until its ranks have talked; then the child goes on by itself.
template <class Talk>
ncclResult_t talk(Comm& parent, const Talk& talk) {
  try {
    talk();
    parent.progress = ncclSuccess;
    return ncclSuccess;
  } catch (const Aborted&) {
    return refuse(ncclInternalError, "aborted in the middle of a split");
  }
}

void become_busy(Comm& parent, bool blocking) {
  if (blocking) return;
  parent.progress = ncclInProgress;
  add_background();
}

ncclResult_t split(const CommPtr& parent, int color, int key, const CommPtr& child) {
  Members members;
  int number = 0;
  const auto error = talk(*parent, [&] {
    parent->own().color = color;
    parent->own().key = key;
    parent->talk();
    members = members_of(*parent, color);
    parent->talk();
    number = ++parent->children;
  });
  if (error != ncclSuccess || color < 0) return error;
  return meet_as(*child, *parent, members, formatted(".%d.%d", number, color));
}

ncclResult_t begin_split(const CommPtr& parent, int color, int key, ncclComm_t* made,
                         const ncclConfig_t* config) {
  if (parent->progress == ncclInProgress)
    return refuse(ncclInvalidArgument, "a split of a communicator that is in progress");
  if (color < NCCL_SPLIT_NOCOLOR)
    return refuse(ncclInvalidArgument, formatted("ncclCommSplit: color %d", color));
  bool blocking = true;
  if (const auto error = read_config(config, parent->blocking, blocking)) return error;
  auto child = child_of(*parent, blocking);
  become_busy(*parent, blocking);
  if (const auto error = begin(child, made, [=] { return split(parent, color, key, child); })) return error;
  if (color >= 0) return ncclSuccess;
  forget(*made);
  *made = nullptr;
  return ncclSuccess;
}

ncclResult_t begin_shrink(const CommPtr& parent, const int* excluded, int count, ncclComm_t* made,
                          const ncclConfig_t* config, int flags) {
  auto members = members_without(*parent, excluded, count);
  if (std::find(members.begin(), members.end(), parent->rank) == members.end())
    return refuse(ncclInvalidArgument, "ncclCommShrink: called by a rank that is excluded");
  bool blocking = true;
  if (const auto error = read_config(config, parent->blocking, blocking)) return error;
  if (flags & NCCL_SHRINK_ABORT) {
    parent->revoke();
    parent->turns.wait_quiet();
  }
  auto child = child_of(*parent, blocking);
  const auto suffix = formatted(".%d.s", ++parent->children);
  return begin(child, made, [=] { return meet_as(*child, *parent, members, suffix); });
}

ncclResult_t grow(const CommPtr& parent, int size, const std::string& name, const CommPtr& child) {
  const auto error = talk(*parent, [&] {
    if (!name.empty()) std::snprintf(parent->board->grown, sizeof parent->board->grown, "%s", name.c_str());
    parent->talk();
    child->name = parent->board->grown;
    parent->talk();
  });
  if (error != ncclSuccess) return error;
  child->size = size;
  child->rank = parent->rank;
  return meet(*child);
}

ncclResult_t begin_grow(const CommPtr& parent, int size, const ncclUniqueId* id, ncclComm_t* made,
                        const ncclConfig_t* config) {
  if (const auto error = check_size(size, parent->rank)) return error;
  bool blocking = true;
  if (const auto error = read_config(config, parent->blocking, blocking)) return error;
  auto child = child_of(*parent, blocking);
  become_busy(*parent, blocking);
  return begin(child, made, [=, name = id ? name_in(*id) : ""] { return grow(parent, size, name, child); });
}

}  // namespace
}  // namespace lab::nccl

NCCL_CALL ncclResult_t ncclCommSplit(ncclComm_t parent, int color, int key, ncclComm_t* made,
                                     ncclConfig_t* config) {
  const auto comm = lab::nccl::find(parent);
  if (!comm) return lab::nccl::refuse_handle("ncclCommSplit");
  return lab::nccl::in_group([&] { return lab::nccl::begin_split(comm, color, key, made, config); });
}

NCCL_CALL ncclResult_t ncclCommShrink(ncclComm_t parent, int* excluded, int count, ncclComm_t* made,
                                      ncclConfig_t* config, int flags) {
  const auto comm = lab::nccl::find(parent);
  if (!comm) return lab::nccl::refuse_handle("ncclCommShrink");
  return lab::nccl::in_group(
      [&] { return lab::nccl::begin_shrink(comm, excluded, count, made, config, flags); });
}

NCCL_CALL ncclResult_t ncclCommGetUniqueId(ncclComm_t parent, ncclUniqueId* id) {
  return lab::nccl::find(parent) ? ncclGetUniqueId(id) : lab::nccl::refuse_handle("ncclCommGetUniqueId");
}

NCCL_CALL ncclResult_t ncclCommGrow(ncclComm_t parent, int size, const ncclUniqueId* id, int rank,
                                    ncclComm_t* made, ncclConfig_t* config) {
  if (!parent && id) return ncclCommInitRankConfig(made, size, *id, rank, config);
  const auto comm = lab::nccl::find(parent);
  if (!comm) return lab::nccl::refuse_handle("ncclCommGrow");
  return lab::nccl::in_group([&] { return lab::nccl::begin_grow(comm, size, id, made, config); });
}
