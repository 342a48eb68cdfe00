#include "tools/cluster/resources.h"

#include <algorithm>

#include "lockstep/base/error.h"
#include "lockstep/base/format.h"
#include "trainer/config/numbers.h"

namespace lockstep::cluster {
namespace {

constexpr int64_t kRanksWithoutGpus = 2;  // as job_scripts/ddp.* ask for
constexpr int64_t kMost = 1'000'000;

std::string place(const Site& site, const Queue& queue) {
  return queue.name.empty() ? site.path : format("{}, queue {}", site.path, queue.name);
}

void within(const char* option, int64_t value, int64_t least, int64_t most, const std::string& where) {
  if (value < least || value > kMost)
    throw InputError(format("{} {}: a number from {} to {} is wanted", option, value, least, kMost), "",
                     format("as in {} {}", option, std::max<int64_t>(1, least)));
  if (most > 0 && value > most)
    throw InputError(format("{} {}: the site gives at most {}", option, value, most), where,
                     format("ask for {} or less, or choose another --queue", most));
}

void check_gpus(int64_t gpus, const Site& site, const Queue& queue) {
  within("--gpus-per-node", gpus, 0, std::max<int64_t>(queue.gpus_per_node, 0), place(site, queue));
  if (gpus > 0 && queue.gpus_per_node == 0)
    throw InputError(format("--gpus-per-node {}: these nodes have no GPUs that lockstep can use", gpus),
                     place(site, queue), "choose another --queue, or --gpus-per-node 0");
}

void check_time(const Site& site, const JobRequest& request, const Queue& queue) {
  if (request.time < std::chrono::minutes(1))
    throw InputError(format("--time {}: a minute or more is wanted", config::duration_text(request.time)), "",
                     "as in --time 30m or --time 2h");
  if (queue.max_time.count() > 0 && request.time > queue.max_time) {
    const auto most = config::duration_text(queue.max_time);
    throw InputError(
        format("--time {}: the site gives at most {}", config::duration_text(request.time), most),
        place(site, queue), "ask for less: a job that is stopped early goes on by itself in another one");
  }
}

void check_account(const Site& site, const JobRequest& request) {
  if (site.account == "required" && request.account.empty())
    throw InputError(format("{} charges every job to an account, and none is named", site.name), site.path,
                     "add --account NAME");
  if (site.account == "none" && !request.account.empty())
    throw InputError(format("--account: {} has no accounts", site.name), site.path, "leave it out");
}

int64_t ranks_of(const JobRequest& request, const Resources& given) {
  if (request.ranks_per_node > 0) return request.ranks_per_node;
  if (given.gpus > 0) return given.gpus;
  return given.queue.ranks_per_node > 0 ? given.queue.ranks_per_node : kRanksWithoutGpus;
}

bool takes_whole_nodes(const Site& site, const Resources& given) {
  return site.form == "nodes" && given.queue.cores_per_node > 0;
}

// All cores that come with what is asked for: with the whole node, with the GPUs, with the ranks that a node
// has.
int64_t cores_that_come(const Site& site, const Resources& given) {
  const auto& queue = given.queue;
  if (takes_whole_nodes(site, given)) return queue.cores_per_node;
  if (given.gpus > 0 && queue.cores_per_gpu > 0) return given.gpus * queue.cores_per_gpu;
  if (given.gpus > 0 && queue.gpus_per_node > 0)
    return queue.cores_per_node * given.gpus / queue.gpus_per_node;
  if (given.gpus > 0 || queue.ranks_per_node == 0) return 0;
  return std::min(queue.cores_per_node, queue.cores_per_node * given.ranks / queue.ranks_per_node);
}

void give_cores(const Site& site, const JobRequest& request, Resources& given) {
  const auto come = cores_that_come(site, given);
  given.cores_per_rank =
      request.cores_per_rank > 0 ? request.cores_per_rank : std::max<int64_t>(1, come / given.ranks);
  given.cores = given.ranks * given.cores_per_rank;
  const auto& queue = given.queue;
  if (given.gpus > 0 && queue.cores_per_gpu > 0) {
    if (given.cores > come)
      throw InputError(
          format("{} ranks of {} cores on a node are more than the {} cores that come with {} GPUs",
                 given.ranks, given.cores_per_rank, come, given.gpus),
          place(site, queue), format("the site gives {} cores a GPU", queue.cores_per_gpu));
    given.cores = come;
  }
  if (takes_whole_nodes(site, given)) given.cores = std::max(given.cores, come);
  if (queue.cores_per_node > 0 && given.cores > queue.cores_per_node)
    throw InputError(format("{} ranks of {} cores on a node: its nodes have {} cores", given.ranks,
                            given.cores_per_rank, queue.cores_per_node),
                     place(site, queue), "lower --ranks-per-node or --cpus-per-rank");
}

// a sum over the job says nothing of how it lies on nodes
void check_totals(const Site& site, const Resources& given) {
  const auto whole = given.queue.cores_per_node;
  if (site.form != "totals" || given.nodes == 1 || whole == 0 || given.cores == whole) return;
  throw InputError(format("{} nodes with {} cores each: this site gives more than one node only whole",
                          given.nodes, given.cores),
                   place(site, given.queue), format("ask for all {} cores and all GPUs of each node", whole));
}

}  // namespace

Resources resources(const Site& site, const JobRequest& request) {
  Resources given;
  given.queue = find_queue(site, request.queue);
  const auto where = place(site, given.queue);
  within("--nodes", request.nodes, 1, given.queue.max_nodes, where);
  if (request.nodes < given.queue.min_nodes)
    throw InputError(format("--nodes {}: this queue takes {} or more", request.nodes, given.queue.min_nodes),
                     where, "ask for more, or choose another --queue");
  given.nodes = request.nodes;
  given.gpus =
      request.gpus_per_node >= 0 ? request.gpus_per_node : std::max<int64_t>(0, given.queue.gpus_per_node);
  if (request.gpus_per_node < -1) within("--gpus-per-node", request.gpus_per_node, 0, 0, where);
  check_gpus(given.gpus, site, given.queue);
  within("--ranks-per-node", request.ranks_per_node, 0, 0, where);
  within("--cpus-per-rank", request.cores_per_rank, 0, 0, where);
  check_time(site, request, given.queue);
  check_account(site, request);
  given.ranks = ranks_of(request, given);
  give_cores(site, request, given);
  check_totals(site, given);
  return given;
}

}  // namespace lockstep::cluster
