#include "lockstep/parallel/replicas/device_threads.h"

#include <ATen/Parallel.h>
#include <ATen/ThreadLocalState.h>
#include <ATen/autocast_mode.h>
#include <c10/core/DeviceGuard.h>

#include <algorithm>
#include <condition_variable>
#include <exception>
#include <latch>
#include <mutex>
#include <thread>

#include "lockstep/base/error.h"
#include "lockstep/base/format.h"
#include "lockstep/parallel/replicas/device_memory.h"

namespace lockstep::parallel {
namespace {

using DeviceJob = std::function<void()>;

// at::ThreadLocalState knows whether autocast is on, and not to which type.
class AutocastTypes {
 public:
  void apply() const {
    at::autocast::set_autocast_dtype(at::kCPU, cpu_);
    at::autocast::set_autocast_dtype(at::kCUDA, cuda_);
    at::autocast::set_autocast_cache_enabled(cache_);
  }

 private:
  at::ScalarType cpu_ = at::autocast::get_autocast_dtype(at::kCPU);
  at::ScalarType cuda_ = at::autocast::get_autocast_dtype(at::kCUDA);
  bool cache_ = at::autocast::is_autocast_cache_enabled();
};

// A thread takes the process's number when it first asks, so it has to ask before it is given its own.
void set_own_threads(int share) {
  at::get_num_threads();
  at::set_num_threads(share);
}

// The kind of error stays: it decides the exit status.
[[noreturn]] void rethrow_named(const std::exception_ptr& thrown, const std::string& device) {
  const auto named = [&device](const Error& error) {
    auto fault = error.fault();
    fault.where = device + (fault.where.empty() ? "" : ", " + fault.where);
    return fault;
  };
  try {
    std::rethrow_exception(thrown);
  } catch (const InputError& error) {
    throw InputError(named(error));
  } catch (const Error& error) {
    throw Error(named(error));
  } catch (const c10::Error& error) {
    throw Error(error.what_without_backtrace(), device);
  } catch (const std::exception& error) {
    throw Error(error.what(), device);
  } catch (...) {
    throw Error("something was thrown that is no std::exception", device);
  }
}

}  // namespace

class DeviceThreads::Worker {
 public:
  Worker() : thread_([this] { loop(); }) {}
  ~Worker() {
    give(nullptr);
    thread_.join();
  }
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  /// An empty job is the last.
  void give(DeviceJob job) {
    const std::lock_guard lock(mutex_);
    job_ = std::move(job);
    there_ = true;
    changed_.notify_one();
  }

 private:
  DeviceJob take() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return there_; });
    there_ = false;
    return std::exchange(job_, nullptr);
  }
  void loop() {
    while (const auto job = take()) job();
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  DeviceJob job_;
  bool there_ = false;
  std::thread thread_;
};

DeviceThreads::DeviceThreads(const std::vector<at::Device>& devices) : devices_(devices) {
  const int all = at::get_num_threads();
  const int share = std::max(1, all / static_cast<int>(std::max<size_t>(1, devices.size())));
  for (size_t i = 0; i < devices.size(); ++i) workers_.push_back(std::make_unique<Worker>());
  run(devices.size(), [share](size_t) { set_own_threads(share); });
  at::set_num_threads(all);  // the process's number; the threads keep theirs
}

DeviceThreads::~DeviceThreads() = default;

void DeviceThreads::run(size_t count, const std::function<void(size_t)>& work, Order order) {
  const at::ThreadLocalState state;
  const AutocastTypes autocast;
  std::vector<std::exception_ptr> errors(count);
  const auto job = [&](size_t i) {
    try {
      const at::ThreadLocalStateGuard as_the_caller(state);
      autocast.apply();
      const c10::OptionalDeviceGuard here(devices_[i].is_cpu() ? std::nullopt : std::optional(devices_[i]));
      const CountedFor counted(i);
      work(i);
    } catch (...) {
      errors[i] = std::current_exception();
    }
  };
  const auto run_some = [&](size_t from, size_t to) {
    std::latch done(static_cast<std::ptrdiff_t>(to - from));
    for (size_t i = from; i < to; ++i) {
      workers_[i]->give([&, i] {
        job(i);
        done.count_down();
      });
    }
    done.wait();
  };
  if (order == Order::together) run_some(0, count);
  for (size_t i = 0; order == Order::one_by_one && i < count; ++i) run_some(i, i + 1);
  for (size_t i = 0; i < count; ++i) {
    if (errors[i]) rethrow_named(errors[i], name_of_device(i, devices_));
  }
}

at::Tensor sent(const at::Tensor& tensor, size_t index, at::Device device) {
  const CountedFor counted(index);
  const bool is_there = index > 0 && tensor.device() == device;
  return is_there ? tensor.clone() : tensor.to(device, /*non_blocking=*/true);
}

std::string name_of_device(size_t index, const std::vector<at::Device>& devices) {
  return format("device {} of {} ({})", index, devices.size(), devices[index].str());
}

}  // namespace lockstep::parallel
