// BERT's task: some tokens are hidden and must be told from the others.
//
// Each position is drawn for with probability `probability`; of those drawn, a share `mask` becomes the mask token, a
// share `random` a random id and the rest stays. The target is the original id at drawn positions and ignored
// elsewhere. The draw is Philox under the key (seed, "mlm") at the counter (sample, position), so it depends on
// neither batch nor rank, and a sample is masked anew in every epoch because its number is new.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/random.h"

namespace plimsoll::data {

struct MaskedLanguageOptions {
  double probability = 0.15;
  double mask = 0.8;
  double random = 0.1;
  std::int32_t mask_id = 103;
  std::vector<std::int32_t> never_masked = {};   // ids such as [CLS], [SEP], [PAD]
  std::optional<std::int32_t> first_token = {};  // put before every sample, such as [CLS]
  std::optional<std::int32_t> last_token = {};   // put after every sample, such as [SEP]

  std::int64_t frame() const { return (first_token ? 1 : 0) + (last_token ? 1 : 0); }
};

class MaskedLanguage {
 public:
  MaskedLanguage(const MaskedLanguageOptions& options, std::int64_t vocab, std::uint64_t seed);  // refuses bad options

  const MaskedLanguageOptions& options() const { return options_; }

  // Hides tokens in place and sets their targets; `position` is that of tokens[0] in its row. Returns the number hidden.
  std::int64_t apply(std::int64_t sample, std::int64_t position, std::span<std::int32_t> tokens, std::span<std::int32_t> targets) const;

 private:
  MaskedLanguageOptions options_;
  std::int64_t vocab_;
  base::RandomKey key_;
};

}  // namespace plimsoll::data
