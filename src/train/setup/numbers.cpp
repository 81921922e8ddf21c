#include "train/setup/numbers.h"

#include "base/error.h"
#include "data/number_reader.h"
#include "families/families.h"
#include "formats/number_table.h"
#include "io/files.h"

namespace plimsoll::train {

std::shared_ptr<const data::SampleSource> open_numbers(io::FileSystem& file_system, const config::Run& run,
                                                       const std::vector<std::string>& files, bool evaluation) {
  const std::string_view key = evaluation ? "data.valid" : "data.train";
  if (files.size() != 1)
    base::bad_input("{}: found {} files for \"{}\", expected one table of numbers (a .csv)", run.where(key), files.size(), key);
  const families::Targets targets = run.model.family->targets(run.model);
  return std::make_shared<data::NumberReader>(formats::parse_numbers(io::read_text(file_system, files.front()), files.front()),
                                              data::NumberReaderOptions{.seed = static_cast<std::uint64_t>(run.seed),
                                                                        .shuffle = run.data.shuffle && !evaluation,
                                                                        .targets = targets.columns,
                                                                        .classes = targets.classes});
}

}  // namespace plimsoll::train
