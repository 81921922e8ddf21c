// DeepSpeed's JSON: whatever is accepted is explained, warned of in one line a key, and its resolved form is read back as an
// equal run without the DeepSpeed file. A NUL separates the DeepSpeed file from a run file beside it.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "base/error.h"
#include "config/config.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace plimsoll;
  std::string text(reinterpret_cast<const char*>(data), size);
  std::string file = "{}";
  if (const std::size_t end = text.find('\0'); end != std::string::npos) {
    file = text.substr(end + 1);
    text.resize(end);
  }
  config::Run run;
  try {
    run = config::parse_run(file, "run.json", {}, {.name = "ds.json", .text = text});
  } catch (const base::Error& error) {
    if (error.kind() != base::ErrorKind::bad_input || std::string_view(error.what()).empty()) std::abort();
    return 0;
  }
  if (config::explain(run).empty() || config::explain_json(run).size() == 0) std::abort();
  const std::string warning = config::deepspeed_warning(run);
  const auto differing = std::count_if(run.deepspeed.keys.begin(), run.deepspeed.keys.end(), [](const auto& key) { return key.differs; });
  if (std::count(warning.begin(), warning.end(), '\n') != (differing == 0 ? 0 : differing + 1)) std::abort();
  if (!(config::parse_run(base::write_json(config::to_json(run), base::JsonLayout::pretty), "resolved.json") == run)) std::abort();
  return 0;
}
