#pragma once
// The content of a checkpoint: dictionaries, lists, tensors, numbers, strings and None, as one c10::IValue.
// Functions to build and read it.

#include <ATen/core/ivalue.h>

#include <string>
#include <utility>
#include <vector>

namespace lockstep {

/// A value in a checkpoint: anything that torch.save can pickle without custom classes.
using Tree = c10::IValue;

/// A new dictionary or list, which Python reads as a plain dict or list.
Tree make_dict();
Tree make_list();
Tree make_dict(const std::vector<std::pair<Tree, Tree>>& items);
Tree make_list(const std::vector<Tree>& items);

/// put() adds or replaces an entry of a dictionary, append() adds an element to a list.
void put(const Tree& dict, const Tree& key, const Tree& value);
void append(const Tree& list, const Tree& value);

/// Returns the entry, or nullopt if the tree is not a dictionary or does not contain the key.
std::optional<Tree> find(const Tree& tree, const Tree& key);

/// Returns the entry. Throws InputError, which names the key, if it is missing.
Tree get(const Tree& tree, const std::string& key);

/// The entries in insertion order. Throws InputError if the tree is not a dictionary.
std::vector<std::pair<Tree, Tree>> items(const Tree& dict);
/// The elements of a list or tuple. Throws InputError if the tree is neither.
std::vector<Tree> elements(const Tree& list);

/// The value as this type; as_double() and as_int() also convert a bool or a tensor with one element, and
/// as_double() an int. Throws InputError, which calls the value `name`, for another type.
double as_double(const Tree& value, const std::string& name);
int64_t as_int(const Tree& value, const std::string& name);
bool as_bool(const Tree& value, const std::string& name);
at::Tensor as_tensor(const Tree& value, const std::string& name);
std::string as_string(const Tree& value, const std::string& name);

/// A copy whose tensors are detached, on the CPU, and share no memory with the original. Tensors that shared
/// a storage share one copy; a single slice of a larger storage becomes contiguous.
Tree snapshot(const Tree& tree);

}  // namespace lockstep
