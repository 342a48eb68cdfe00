#pragma once
// The tasks that are built in. To add one: write tasks/NAME.cpp with a make_NAME_task(), and one line in
// registry.cpp.

#include <memory>
#include <string>
#include <vector>

#include "lockstep/tasks/task.h"

namespace lockstep::tasks {

std::unique_ptr<Task> make_mnist_task();
std::unique_ptr<Task> make_pima_task();
std::unique_ptr<Task> make_idx_task();
std::unique_ptr<Task> make_csv_task();

/// A task from a shared library; throws InputError where it is missing, no task, or built for another
/// lockstep.
std::unique_ptr<Task> load_task(const std::string& path);

std::vector<std::string> task_names();
std::vector<std::string> model_names();

}  // namespace lockstep::tasks
