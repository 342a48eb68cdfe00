#pragma once
// What boards are called: each name carries the process on which its meeting depends, so that what a meeting
// that never came about has left can be told from what is in use.
#include <nccl.h>
#include <sys/types.h>

#include <string>

namespace lab::nccl {

struct Creator {
  unsigned long pid_namespace = 0;
  pid_t process = 0;
};

std::string new_name();
/// Of a communicator made of another one.
std::string name_of_child(const Creator& first_member, const std::string& parent, const std::string& suffix);
Creator creator_of(const std::string& name);
/// Only what this process can know of.
bool is_creator_gone(const Creator& creator);

ncclUniqueId id_of(const std::string& name);
/// Empty for an id that is none of ours.
std::string name_in(const ncclUniqueId& id);

/// Removes what meetings have left whose creator is gone.
void sweep();

}  // namespace lab::nccl
