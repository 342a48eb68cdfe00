// CheckpointWriter: one save at a time, in a thread of its own.
#include <atomic>
#include <filesystem>

#include "lockstep/checkpoint/store.h"

namespace lockstep {

struct CheckpointWriter::Job {
  Tree tree;
  std::string path;
  std::exception_ptr failure;
  std::atomic<bool> done = false;
};

CheckpointWriter::CheckpointWriter(CheckpointStore store)
    : CheckpointWriter([store = std::move(store)] { return store; }, [](const std::string&) {}) {}

CheckpointWriter::CheckpointWriter(std::function<CheckpointStore()> store,
                                   std::function<void(const std::string&)> saved)
    : store_(std::move(store)), saved_(std::move(saved)) {}

CheckpointWriter::~CheckpointWriter() {
  if (thread_.joinable()) thread_.join();
}

void CheckpointWriter::submit(const Tree& tree, CheckpointStore::Name name) {
  wait();
  auto job = std::make_shared<Job>();
  job->tree = snapshot(tree);
  job_ = job;
  thread_ = std::thread([this, job, name] {
    try {
      const auto path = store_().save(job->tree, name);
      if (name != CheckpointStore::Name::best) saved_(job->path = path);
    } catch (...) {
      job->failure = std::current_exception();
    }
    job->tree = Tree();
    job->done = true;
  });
}

void CheckpointWriter::wait() {
  if (thread_.joinable()) thread_.join();
  const auto job = std::exchange(job_, nullptr);
  if (!job) return;
  if (job->failure) std::rethrow_exception(job->failure);
  if (!job->path.empty()) last_saved_ = job->path;
}

bool CheckpointWriter::idle() const {
  return !job_ || job_->done;
}

}  // namespace lockstep
