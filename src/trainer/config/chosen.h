#pragma once
// The rows of the open tables that a config's settings choose, and which keys those rows read.

#include <string>
#include <vector>

#include "lockstep/base/plugins/tables.h"
#include "trainer/config/keys.h"

namespace lockstep::config {

/// The keys that name a row of an open table: task.name, model.name, ...
const std::vector<const Key*>& selectors();

/// What a selector says; where it is empty, what the chosen rows say that it stands for.
std::string chosen_name(const Settings& settings, const std::string& selector);

/// The row of that name; nullptr where no table knows it: a library that is not loaded, or a task's own
/// model.
const TableRow* chosen_row(const Settings& settings, const std::string& selector);

/// Every chosen row that is known.
std::vector<const TableRow*> chosen_rows(const Settings& settings);

/// The word's or the empty text's meaning by the rows chosen; nullptr where none of them says.
const std::string* chosen_default(const Settings& settings, const std::string& path);

/// Does the row say that it reads the key (`name` of its section)? One that reads "*" says nothing.
bool lists(const TableRow& row, const std::string& name);

/// Is the key read, or may it be? A row that is not known may read anything.
bool may_be_used(const Key& key, const Settings& settings);

/// Is the key read by a row that is known to?
bool is_read(const std::string& path, const Settings& settings);

/// The names under a key's map ("options") that the chosen row does not read.
std::vector<std::string> unread_options(const Key& key, const Settings& settings);

/// The names under a key's map that no row of the table knows, where the chosen one says what it reads and is
/// the program's own.
std::vector<std::string> unknown_options(const Key& key, const Settings& settings);

/// The values of its selector that read the key; empty where all do.
std::vector<std::string> readers(const Key& key);

}  // namespace lockstep::config
