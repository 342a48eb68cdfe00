#pragma once
// Tables of arrays: a 2-D array in a .npy file, or arrays of one length in a .npz or .safetensors file.

#include <deque>
#include <span>
#include <string>
#include <vector>

#include "lockstep/checkpoint/file.h"
#include "lockstep/data/rows/text_rows.h"

namespace lockstep::data {

/// Whether the name ends in .npy, .npz or .safetensors.
bool is_array_file(const std::string& path);
/// Whether it is one of those with named columns: not .npy.
bool has_named_arrays(const std::string& path);

/// Numbers or booleans in one or two dimensions, as they lie in a file, or texts that end in zeros.
struct NumberArray {
  std::span<const uint8_t> data;
  std::vector<int64_t> shape;
  char kind = 'f';   // b, i, u, f, or S for texts
  size_t width = 4;  // bytes of a number or text
  bool swapped = false;
  size_t row_step = 0, column_step = 0;  // bytes

  int64_t columns() const { return shape.size() == 1 ? 1 : shape[1]; }
};

/// A mapped file row by row; only compressed arrays are in memory. A named 1-D array is a column with its
/// name; a 2-D array `x` is the columns x.0, x.1, ... In a .safetensors file, 2-D bytes are a column of
/// texts.
class ArrayRows : public TextRows {
 public:
  /// Throws InputError for other arrays, and for a header that promises more than the file contains.
  explicit ArrayRows(const std::string& path);
  int64_t size() const { return size_; }
  /// The current row's number, with the bits of NumPy's conversion to float32; not for texts.
  float number(size_t column) const;
  /// next() returns texts for such a column. The fields of the others are empty.
  bool is_text(size_t column) const { return is_text_[column]; }
  void read_as_text(size_t column) { is_text_[column] = true; }
  bool next(std::vector<std::string_view>& fields) override;
  int64_t line() const override { return row_; }
  std::string where() const override;

 private:
  struct Place {
    const NumberArray* array;
    size_t offset;  // of the column
  };

  void read_archive();
  void read_safetensors();
  void add(const std::string& name, NumberArray made);
  const uint8_t* at(size_t column) const;

  checkpoint::MappedFile file_;
  std::deque<std::vector<uint8_t>> unpacked_;
  std::deque<NumberArray> arrays_;
  std::vector<Place> places_;  // of each column
  std::vector<bool> is_text_;
  std::vector<std::string> texts_;
  int64_t size_ = 0, row_ = -1;
};

}  // namespace lockstep::data
