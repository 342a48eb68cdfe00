#include <atomic>
#include <filesystem>

#include "checkpoint/store.h"

namespace lockstep {

struct CheckpointWriter::Job {
  Tree tree;
  std::string path;
  std::exception_ptr failure;
  std::atomic<bool> done = false;
};

CheckpointWriter::~CheckpointWriter() {
  if (thread_.joinable()) thread_.join();
}

void CheckpointWriter::submit(const Tree& tree) {
  wait();
  auto job = std::make_shared<Job>();
  job->tree = snapshot(tree);
  job_ = job;
  thread_ = std::thread([job, store = store_] {
    try {
      job->path = store.save(job->tree);
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
  last_saved_ = job->path;
}

bool CheckpointWriter::idle() const {
  return !job_ || job_->done;
}

}  // namespace lockstep
