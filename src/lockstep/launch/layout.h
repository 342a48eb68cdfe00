#pragma once
// Which ranks share a node. Rank 0 decides it when the ranks meet, from what each rank knows.

#include <optional>
#include <string>
#include <vector>

#include "lockstep/launch/job.h"

namespace lockstep::launch {

/// What one rank knows of its place.
struct ReportedPlace {
  std::string machine;  // the same for two ranks that share a host's name, kernel and network namespace
  std::optional<int> local_rank = {}, local_world = {}, node_rank = {};  // as its launcher set them
};

ReportedPlace reported_place(const Job& job);
std::string pack_reported_place(const ReportedPlace& reported);

/// A rank's place among the nodes.
struct Place {
  int local_rank = 0;
  int local_world = 1;
  int node_rank = 0;
  int nodes = 1;
  std::string warning = {};  // if its launcher's values do not fit
};

/// One place for each rank. If every rank has a node number, these numbers define the nodes. Otherwise ranks
/// of one machine share a node, and nodes are numbered by their first ranks.
std::vector<Place> layout_of(const std::vector<ReportedPlace>& ranks);

/// The same as texts, for other ranks: from pack_reported_place() of each rank, and the place of one rank.
std::string pack_layout(const std::vector<std::string>& ranks);
Place place_in(const std::string& layout, int rank);

/// Replaces what `job` assumed.
void set_place(Job& job, const Place& place);

}  // namespace lockstep::launch
