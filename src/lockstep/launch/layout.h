#pragma once
// Which ranks share a node: from what every rank was told and sees, once all have met.

#include <string>
#include <vector>

#include "lockstep/launch/identify.h"

namespace lockstep::launch {

/// What one rank brings to the meeting.
struct Seat {
  std::string machine;  // the same for two ranks where they share a host's name, kernel and loopback
  std::optional<int> local_rank = {}, local_world = {}, node_rank = {};  // as its launcher told; not guesses
};

Seat own_seat(const Job& job);
std::string pack_seat(const Seat& seat);
Seat unpack_seat(const std::string& text);

/// A rank's place among the nodes.
struct Place {
  int local_rank = 0;
  int local_world = 1;
  int node_rank = 0;
  int nodes = 1;
  std::string warning = {};  // where what it was told cannot be
};

/// By rank. Node numbers are believed where every rank was told its own; else ranks of one machine share a
/// node, and nodes are numbered by their first ranks.
std::vector<Place> layout_of(const std::vector<Seat>& seats);

std::string pack_place(const Place& place);
Place unpack_place(const std::string& text);

/// What was a guess in `job` is now known.
void set_place(Job& job, const Place& place);

}  // namespace lockstep::launch
