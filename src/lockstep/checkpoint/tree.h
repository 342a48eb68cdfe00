#pragma once
// What a checkpoint holds: dictionaries, lists, tensors, numbers, strings and None, as one c10::IValue, and
// the few helpers that build and read such a tree without TorchScript's type tags.

#include <ATen/core/ivalue.h>

#include <string>
#include <utility>
#include <vector>

namespace lockstep {

/// A value of a checkpoint: what torch.save pickles, without classes.
using Tree = c10::IValue;

/// An empty dictionary or list that Python reads as a plain dict or list.
Tree make_dict();
Tree make_list();
Tree make_dict(const std::vector<std::pair<Tree, Tree>>& items);
Tree make_list(const std::vector<Tree>& items);

/// Adds or replaces an entry, or appends. The tree must be a dictionary, or a list.
void put(const Tree& dict, const Tree& key, const Tree& value);
void append(const Tree& list, const Tree& value);

/// The entry, or nullopt where the tree is no dictionary or lacks the key.
std::optional<Tree> find(const Tree& tree, const Tree& key);

/// The entry; an InputError that names the key where it is missing.
Tree get(const Tree& tree, const std::string& key);

/// Items in the order in which they were put. InputError if the tree is of another kind.
std::vector<std::pair<Tree, Tree>> items(const Tree& dict);
/// Of a list or a tuple.
std::vector<Tree> elements(const Tree& list);

/// Numbers as Python would take them: a bool, an int, a float or a tensor with one element. InputError
/// otherwise.
double as_double(const Tree& value, const std::string& name);
int64_t as_int(const Tree& value, const std::string& name);
bool as_bool(const Tree& value, const std::string& name);
at::Tensor as_tensor(const Tree& value, const std::string& name);
std::string as_string(const Tree& value, const std::string& name);

/// A copy whose tensors are detached, on the CPU and share no memory with the original. Tensors that shared a
/// storage share one copy; a lone slice of a larger storage becomes contiguous.
Tree snapshot(const Tree& tree);

}  // namespace lockstep
