// Which rows a config chooses, and what those say of its keys.
#include "trainer/config/chosen.h"

#include <algorithm>

namespace lockstep::config {
namespace {

bool contains(const std::vector<std::string>& all, const std::string& one) {
  return std::find(all.begin(), all.end(), one) != all.end();
}

std::string text_at(const Settings& settings, const std::string& selector) {
  return text_of(*find_key(selector), settings);
}

const TableRow* row_at(const std::string& selector, const std::string& name) {
  const auto& kind = find_key(selector)->rules.table;
  return kind.empty() || name.empty() ? nullptr : base::find_row(kind, name);
}

bool reads(const TableRow& row, const std::string& name) {
  return contains(row.facts.reads, "*") || lists(row, name);
}

}  // namespace

const std::vector<const Key*>& selectors() {
  static const auto all = [] {
    std::vector<const Key*> out;
    for (const Key& key : keys()) {
      if (!key.rules.table.empty()) out.push_back(&key);
    }
    return out;
  }();
  return all;
}

const std::string* chosen_default(const Settings& settings, const std::string& path) {
  for (const Key* key : selectors()) {
    const auto* row = row_at(key->path, text_at(settings, key->path));
    if (!row) continue;
    const auto found = row->facts.defaults.find(path);
    if (found != row->facts.defaults.end()) return &found->second;
  }
  return nullptr;
}

std::string chosen_name(const Settings& settings, const std::string& selector) {
  auto text = text_at(settings, selector);
  if (!text.empty()) return text;
  const auto* meant = chosen_default(settings, selector);
  return meant ? *meant : "";
}

const TableRow* chosen_row(const Settings& settings, const std::string& selector) {
  return row_at(selector, chosen_name(settings, selector));
}

std::vector<const TableRow*> chosen_rows(const Settings& settings) {
  std::vector<const TableRow*> rows;
  for (const Key* key : selectors()) {
    if (const auto* row = chosen_row(settings, key->path)) rows.push_back(row);
  }
  return rows;
}

bool lists(const TableRow& row, const std::string& name) {
  const auto is_or_holds = [&](const std::string& read) {
    return read == name || read.starts_with(name + ".");
  };
  return std::any_of(row.facts.reads.begin(), row.facts.reads.end(), is_or_holds);
}

bool may_be_used(const Key& key, const Settings& settings) {
  const Use& use = key.rules.use;
  if (use.selector.empty()) return true;
  if (!use.values.empty()) return contains(use.values, text_at(settings, use.selector));
  const auto* row = chosen_row(settings, use.selector);
  return !row || reads(*row, key.name());
}

bool is_read(const std::string& path, const Settings& settings) {
  const Key& key = *find_key(path);
  if (key.rules.use.selector.empty()) return true;
  const auto* row = chosen_row(settings, key.rules.use.selector);
  return row && lists(*row, key.name());
}

std::vector<std::string> unread_options(const Key& key, const Settings& settings) {
  using Map = std::map<std::string, std::string>;
  const auto* row = key.rules.use.selector.empty() ? nullptr : chosen_row(settings, key.rules.use.selector);
  if (!row || !std::holds_alternative<Map*>(field_of(key, settings)) || !reads(*row, key.name())) return {};
  if (contains(row->facts.reads, "*") || contains(row->facts.reads, key.name())) return {};
  std::vector<std::string> unread;
  for (const auto& [name, value] : *std::get<Map*>(field_of(key, settings))) {
    if (!contains(row->facts.reads, key.name() + "." + name)) unread.push_back(key.path + "." + name);
  }
  return unread;
}

std::vector<std::string> unknown_options(const Key& key, const Settings& settings) {
  using Map = std::map<std::string, std::string>;
  const auto* row = key.rules.use.selector.empty() ? nullptr : chosen_row(settings, key.rules.use.selector);
  if (!row || !row->library.empty() || !std::holds_alternative<Map*>(field_of(key, settings))) return {};
  if (contains(row->facts.reads, "*") || contains(row->facts.reads, key.name())) return {};
  const auto rows = base::rows_of(find_key(key.rules.use.selector)->rules.table);
  std::vector<std::string> unknown;
  for (const auto& [name, value] : *std::get<Map*>(field_of(key, settings))) {
    const auto knows = [path = key.name() + "." + name](const auto* one) { return lists(*one, path); };
    if (std::none_of(rows.begin(), rows.end(), knows)) unknown.push_back(name);
  }
  return unknown;
}

std::vector<std::string> readers(const Key& key) {
  const Use& use = key.rules.use;
  if (use.selector.empty() || !use.values.empty()) return use.values;
  std::vector<std::string> names;
  const auto rows = base::rows_of(find_key(use.selector)->rules.table);
  for (const auto* row : rows) {
    if (reads(*row, key.name())) names.push_back(row->name);
  }
  return names.size() == rows.size() ? std::vector<std::string>{} : names;
}

}  // namespace lockstep::config
