// The run file: whatever is accepted is explained, and its resolved form is read back as an equal run. Lines after the
// first NUL are arguments of --set.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "base/error.h"
#include "config/config.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace plimsoll;
  std::string text(reinterpret_cast<const char*>(data), size);
  std::vector<std::string> overrides;
  if (const std::size_t end = text.find('\0'); end != std::string::npos) {
    std::string rest = text.substr(end + 1);
    text.resize(end);
    for (std::size_t start = 0; start < rest.size();) {
      const std::size_t stop = std::min(rest.find('\n', start), rest.size());
      overrides.push_back(rest.substr(start, stop - start));
      start = stop + 1;
    }
  }
  config::Run run;
  try {
    run = config::parse_run(text, "run.json", overrides);
  } catch (const base::Error& error) {
    if (error.kind() != base::ErrorKind::bad_input || std::string_view(error.what()).empty()) std::abort();
    return 0;
  }
  if (config::explain(run).empty() || config::explain_json(run).size() == 0) std::abort();
  if (!(config::parse_run(base::write_json(config::to_json(run), base::JsonLayout::pretty), "resolved.json") == run)) std::abort();
  return 0;
}
