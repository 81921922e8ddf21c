// A case of a pass: a file that says which pass runs and with what, the printed graph that it gets, and the one that it leaves.
//
//   // What to look at.
//   {"pass": "split_data", "run": {"strategy": {"data": 2, "zero": 1}}}
//
//   ==== in
//   ...
//   ==== out
//   ...
//
// `run` is a run file (docs/run-file.md): strategy, optimizer, precision and batch are read as from any other, and of `"device": "cuda"`
// the host is another processor than the device. `pipe` and `tensor` are the rank's place, and `"flush": true` asks for the program that
// makes an update that waits.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "graph/graph.h"

namespace plimsoll::passes {

struct Case {
  std::string head;  // as it is written
  base::Json settings;
  std::string in;
  std::string out;

  std::string pass() const { return settings.at("pass").as_string(); }
};

Case parse_case(std::string_view text, std::string_view name);
std::string to_string(const Case& one);

// What the pass leaves of `in`.
graph::Graph run_case(const Case& one, const graph::Graph& in);

// The passes that there are: those before lowering, and those of lowering's table.
std::vector<std::string> pass_names();

}  // namespace plimsoll::passes
