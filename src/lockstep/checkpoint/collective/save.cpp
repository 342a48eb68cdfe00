#include "lockstep/checkpoint/collective/save.h"
#include "lockstep/checkpoint/collective/share_tree.h"
#include "lockstep/parallel/module_tensors.h"

#include <filesystem>

#include "lockstep/base/error.h"
#include "lockstep/base/format.h"
#include "lockstep/base/log.h"
#include "lockstep/checkpoint/collective/resume_state.h"
#include "lockstep/checkpoint/pt.h"
#include "lockstep/checkpoint/state_dict.h"

namespace lockstep {
namespace {

// Sums over several ranks and a hook's state depend on the buckets.
bool has_buckets(const Team& team, const CheckpointParts& parts) {
  const auto* core = parts.model.core();
  return core && (team.world() > 1 || core->comm_hook());
}

// Collective: gathers the ranks' state.
Tree gather_state(const Team& team, const CheckpointParts& parts) {
  const auto state = make_dict({{"format", checkpoint::kSessionFormat}, {"world", int64_t{team.world()}}});
  checkpoint::put_facts(state, checkpoint::machine_facts());
  checkpoint::put_generators(team, state, checkpoint::gpus_of(team, parts.model.devices()));
  if (has_buckets(team, parts))
    put(state, "buckets", checkpoint::tree_of(parts.model.core()->settle_buckets()));
  checkpoint::put_hook_memory(team, parts.model.core(), "", state);
  if (parts.schedule) put(state, "schedule", parts.schedule->state_dict());
  if (parts.scaler) put(state, "scaler", parts.scaler->state_dict());
  if (parts.sampler) {
    const auto place = parts.sampler->position_after(parts.samples);
    put(state, "epoch", place.epoch);
    put(state, "consumed", place.consumed);
  }
  put(state, "more", parts.more);
  return state;
}

void require_folder(const std::string& path) {
  if (path.empty()) throw InputError("save() needs a path", "save()", "name a .pt file");
  const auto folder = std::filesystem::absolute(path).parent_path();
  std::error_code failed;
  if (!std::filesystem::is_directory(folder, failed))
    throw InputError("the folder for the checkpoint does not exist", path, "create it, or use another path");
}

void write(const std::string& path, const CheckpointParts& parts, const Tree& optimizer, const Tree& state) {
  require_folder(path);
  const auto tree = make_dict({{"model", module_state_dict(parts.model.module())}});
  if (!optimizer.isNone()) put(tree, "optimizer", optimizer);
  put(tree, checkpoint::kSessionKey, state);
  try {
    write_pt(path, snapshot(tree));
  } catch (const InputError&) {
    throw;
  } catch (const Error& error) {
    throw Error(error.what(), path, "free disk space, or save into a folder that can be written");
  }
}

// A checkpoint of this program, of Python (without session state), or of the trainer (the epoch elsewhere).
class LoadedFile {
 public:
  LoadedFile(Tree tree, std::string path) : tree_(std::move(tree)), path_(std::move(path)) {
    const auto own = find(tree_, checkpoint::kSessionKey), trainers = find(tree_, checkpoint::kTrainerKey);
    state_ = own ? *own : trainers ? *trainers : make_dict();
    if (trainers && !own) put(state_, "epoch", get(tree_, "epoch"));
  }
  const Tree& tree() const { return tree_; }
  const Tree& state() const { return state_; }
  const std::string& path() const { return path_; }

  Tree part(const Tree& dict, const char* name) const {
    if (const auto found = find(dict, name)) return *found;
    throw InputError(format("the checkpoint has no \"{}\"", name), path_,
                     "omit that part in load(), or load a checkpoint that was saved with it");
  }

 private:
  Tree tree_, state_;
  std::string path_;
};

void restore_place(DistributedSampler& sampler, const LoadedFile& file) {
  sampler.resume({as_int(file.part(file.state(), "epoch"), "epoch"),
                  as_int(file.part(file.state(), "consumed"), "consumed")});
}

void restore(const Team& team, const LoadedFile& file, const CheckpointParts& parts) {
  load_module_state_dict(parts.model.module(), find_state_dict(file.tree(), file.path()), file.path());
  if (parts.optimizer) parts.optimizer->load_state_dict(file.part(file.tree(), "optimizer"));
  if (parts.schedule) parts.schedule->load_state_dict(file.part(file.state(), "schedule"));
  if (parts.scaler) parts.scaler->load_state_dict(file.part(file.state(), "scaler"));
  if (parts.sampler) restore_place(*parts.sampler, file);
  if (const auto list = find(file.state(), "buckets"); list && has_buckets(team, parts)) {
    const auto buckets = checkpoint::buckets_of(*list);
    if (!buckets.empty()) parts.model.core()->restore_buckets(buckets);
  }
  for (const auto& one : checkpoint::differences(file.state(), checkpoint::machine_facts()))
    log::info(format("the checkpoint was {}. Results may differ from now on", one));
  if (find(file.state(), "rng"))
    checkpoint::restore_generators(team, file.state(), checkpoint::gpus_of(team, parts.model.devices()));
}

}  // namespace

std::vector<c10::Device> SavedModule::devices() const {
  return replicas_.empty() ? parallel::devices_of(*module_) : replicas_;
}

void save(const std::string& path, const Session& session, const CheckpointParts& parts) {
  const auto& team = session.team();
  const auto state = gather_state(team, parts);
  const auto optimizer = parts.optimizer ? parts.optimizer->state_dict() : Tree();
  team.from_first([&] {
    write(path, parts, optimizer, state);
    return std::string();
  });
}

Tree load(const std::string& path, const Session& session, const CheckpointParts& parts) {
  const auto& team = session.team();
  const LoadedFile file(checkpoint::share_tree(team, [&] { return checkpoint::read_checkpoint(path); }),
                        path);
  team.together([&] { restore(team, file, parts); });
  checkpoint::restore_hook_memory(team, parts.model.core(), "", file.state());
  return find(file.state(), "more").value_or(Tree());
}

bool load_if_there(const std::string& path, const Session& session, const CheckpointParts& parts) {
  const auto there = session.team().from_first([&] {
    std::error_code failed;
    const bool exists = std::filesystem::exists(path, failed);
    if (failed)
      throw InputError("cannot check whether it exists: " + failed.message(), path, "check the path");
    return std::string(exists ? "yes" : "");
  });
  if (there.empty()) return false;
  load(path, session, parts);
  return true;
}

}  // namespace lockstep
