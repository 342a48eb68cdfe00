#include "nccl/names.h"

#include <dirent.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <random>
#include <vector>

#include "nccl/board.h"
#include "nccl/errors.h"
#include "nccl/processes.h"

namespace lab::nccl {
namespace {

constexpr const char* kStart = "gpulab-nccl-";

bool is_ours(const std::string& name) {
  return name.rfind(kStart, 0) == 0;
}

std::string name_with(const Creator& creator, const std::string& rest) {
  return formatted("%s%lu-%d-%s", kStart, creator.pid_namespace, creator.process, rest.c_str());
}

std::string rest_of(const std::string& name) {
  return name.substr(name.rfind('-') + 1);
}

std::vector<std::string> left_names() {
  std::vector<std::string> names;
  DIR* folder = ::opendir("/dev/shm");
  if (!folder) return names;
  while (const dirent* entry = ::readdir(folder))
    if (is_ours(entry->d_name)) names.emplace_back(entry->d_name);
  ::closedir(folder);
  return names;
}

}  // namespace

std::string new_name() {
  std::random_device random;
  return name_with({own_pid_namespace(), ::getpid()}, formatted("%08x%08x", random(), random()));
}

std::string name_of_child(const Creator& first_member, const std::string& parent, const std::string& suffix) {
  return name_with(first_member, rest_of(parent) + suffix);
}

Creator creator_of(const std::string& name) {
  Creator creator;
  if (is_ours(name))
    std::sscanf(name.c_str() + std::strlen(kStart), "%lu-%d", &creator.pid_namespace, &creator.process);
  return creator;
}

bool is_creator_gone(const Creator& creator) {
  return creator.process > 0 && creator.pid_namespace == own_pid_namespace() && is_gone(creator.process);
}

ncclUniqueId id_of(const std::string& name) {
  ncclUniqueId id{};
  std::snprintf(id.internal, sizeof id.internal, "%s", name.c_str());
  return id;
}

std::string name_in(const ncclUniqueId& id) {
  const std::string name(id.internal, ::strnlen(id.internal, sizeof id.internal));
  return is_ours(name) && name.find('/') == std::string::npos ? name : "";
}

void sweep() {
  for (const auto& name : left_names())
    if (is_creator_gone(creator_of(name))) forget_board(name);
}

}  // namespace lab::nccl
