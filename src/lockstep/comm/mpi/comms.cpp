#include "lockstep/comm/mpi/comms.h"

#include <sched.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <string>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/format.h"
#include "lockstep/launch/mpi.h"

namespace lockstep::comm {
namespace {

int rank_in(MPI_Comm comm) {
  int rank = 0;
  launch::check_mpi(MPI_Comm_rank(comm, &rank), "MPI_Comm_rank");
  return rank;
}

int size_of(MPI_Comm comm) {
  int size = 1;
  launch::check_mpi(MPI_Comm_size(comm, &size), "MPI_Comm_size");
  return size;
}

void free_comm(void* what) {
  const std::unique_ptr<MPI_Comm> comm(static_cast<MPI_Comm*>(what));
  MPI_Comm_free(comm.get());
}

MPI_Comm kept(MPI_Comm comm) {
  if (comm != MPI_COMM_NULL) free_at_finalize(free_comm, new MPI_Comm(comm));
  return comm;
}

MPI_Comm split_node(MPI_Comm all) {
  MPI_Comm node = MPI_COMM_NULL;
  launch::check_mpi(MPI_Comm_split_type(all, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node),
                    "MPI_Comm_split_type");
  return kept(node);
}

MPI_Comm split_leaders(MPI_Comm all, MPI_Comm node) {
  MPI_Comm leaders = MPI_COMM_NULL;
  launch::check_mpi(MPI_Comm_split(all, rank_in(node) == 0 ? 0 : MPI_UNDEFINED, 0, &leaders),
                    "MPI_Comm_split");
  return kept(leaders);
}

std::vector<int> gather_ints(MPI_Comm comm, int own) {
  std::vector<int> values(static_cast<size_t>(size_of(comm)));
  launch::check_mpi(MPI_Allgather(&own, 1, MPI_INT, values.data(), 1, MPI_INT, comm), "MPI_Allgather");
  return values;
}

void number_nodes(MpiComms& comms) {
  int node = comms.leaders == MPI_COMM_NULL ? 0 : rank_in(comms.leaders);
  launch::check_mpi(MPI_Bcast(&node, 1, MPI_INT, 0, comms.node), "MPI_Bcast");
  comms.node_index = node;
  comms.node_of_rank = gather_ints(comms.all, node);
  comms.nodes = 1 + *std::max_element(comms.node_of_rank.begin(), comms.node_of_rank.end());
  comms.node_sizes.assign(static_cast<size_t>(comms.nodes), 0);
  for (const int of : comms.node_of_rank) ++comms.node_sizes[static_cast<size_t>(of)];
  for (size_t rank = 0; rank < comms.node_of_rank.size(); ++rank)
    comms.node_order.push_back(static_cast<int>(rank));
  std::stable_sort(comms.node_order.begin(), comms.node_order.end(), [&](int a, int b) {
    return comms.node_of_rank[static_cast<size_t>(a)] < comms.node_of_rank[static_cast<size_t>(b)];
  });
}

using Cleanup = std::pair<void (*)(void*), void*>;

int run_cleanups(MPI_Comm, int, void* value, void*) {
  const std::unique_ptr<std::vector<Cleanup>> list(static_cast<std::vector<Cleanup>*>(value));
  for (auto entry = list->rbegin(); entry != list->rend(); ++entry) entry->first(entry->second);
  return MPI_SUCCESS;
}

int cleanup_key() {
  static const int key = [] {
    int made = 0;
    launch::check_mpi(MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, run_cleanups, &made, nullptr),
                      "MPI_Comm_create_keyval");
    return made;
  }();
  return key;
}

// A container's share of the processor time, in whole cores; a large number where there is no limit.
int quota_cores() {
  std::ifstream file("/sys/fs/cgroup/cpu.max");
  std::string quota;
  double period = 0;
  if (!(file >> quota >> period) || quota == "max" || period <= 0) return CPU_SETSIZE;
  return std::max(1, static_cast<int>(std::atof(quota.c_str()) / period));
}

}  // namespace

// MPI calls the delete functions of MPI_COMM_SELF's attributes first thing in MPI_Finalize (MPI 3.1, 8.7.1).
void free_at_finalize(void (*free)(void*), void* what) {
  void* list = nullptr;
  int found = 0;
  launch::check_mpi(MPI_Comm_get_attr(MPI_COMM_SELF, cleanup_key(), &list, &found), "MPI_Comm_get_attr");
  if (!found) {
    list = new std::vector<Cleanup>();
    launch::check_mpi(MPI_Comm_set_attr(MPI_COMM_SELF, cleanup_key(), list), "MPI_Comm_set_attr");
  }
  static_cast<std::vector<Cleanup>*>(list)->emplace_back(free, what);
}

MPI_Comm split_ranks(MPI_Comm world, int part) {
  MPI_Comm comm = MPI_COMM_NULL;
  launch::check_mpi(MPI_Comm_split(world, part, rank_in(world), &comm), "MPI_Comm_split");
  return kept(comm);
}

MpiComms MpiComms::make(MPI_Comm world) {
  MpiComms comms;
  MPI_Comm all = MPI_COMM_NULL;
  launch::check_mpi(MPI_Comm_dup(world, &all), "MPI_Comm_dup");
  comms.all = kept(all);
  comms.node = split_node(comms.all);
  comms.leaders = split_leaders(comms.all, comms.node);
  comms.local_rank = rank_in(comms.node);
  comms.local_world = size_of(comms.node);
  comms.local_ranks = gather_ints(comms.node, rank_in(comms.all));
  number_nodes(comms);
  return comms;
}

void require_threads() {
  int level = MPI_THREAD_SINGLE;
  launch::check_mpi(MPI_Query_thread(&level), "MPI_Query_thread");
  if (level >= MPI_THREAD_SERIALIZED) return;
  throw Error(
      format("MPI was started with thread level {}, and backward calls it from another thread", level),
      "backend mpi", "start MPI with MPI_THREAD_SERIALIZED or higher, or choose the backend gloo");
}

bool is_crowded(MPI_Comm node) {
  cpu_set_t own;
  CPU_ZERO(&own);
  ::sched_getaffinity(0, sizeof own, &own);
  cpu_set_t all;
  CPU_ZERO(&all);
  launch::check_mpi(MPI_Allreduce(&own, &all, sizeof own, MPI_BYTE, MPI_BOR, node), "MPI_Allreduce");
  return std::min(CPU_COUNT(&all), quota_cores()) < size_of(node);
}

}  // namespace lockstep::comm
