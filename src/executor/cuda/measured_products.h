// Which algorithms were fastest, kept from run to run in a file of the user's cache folder: what has been measured once on a kind of
// GPU with a version of the library is not measured again. A file that cannot be read or written costs measuring, nothing else.
#pragma once

#include <string>

namespace plimsoll::executor {

class MeasuredProducts {
 public:
  // Reads what earlier runs left.
  MeasuredProducts();
  // Adds what was measured since.
  void keep() const;

 private:
  std::string path_;    // empty: there is no such folder
  std::string before_;  // what the file held
};

}  // namespace plimsoll::executor
