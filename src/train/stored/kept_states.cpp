#include "train/stored/kept_states.h"

#include <algorithm>
#include <map>
#include <set>

#include <fmt/format.h>

#include "codecs/builder.h"
#include "train/stored/snapshot.h"

namespace plimsoll::train {

namespace {

using Merge = ops::State::Merge;

// How many ranks wrote a state of their own: 0 where there is none of it.
std::int64_t writers_of(const checkpoint::Manifest& manifest, const std::string& state) {
  std::int64_t ranks = 0;
  while (manifest.find(name_of_rank(state, ranks)) != nullptr) ++ranks;
  return ranks;
}

// Those whose state goes to the rank at `place` of `ranks`.
std::vector<std::int64_t> sources_for(Merge merge, std::int64_t writers, std::int64_t place, std::int64_t ranks) {
  std::vector<std::int64_t> sources;
  if (merge == Merge::first) return {0};
  if (merge == Merge::anew) return {};
  const bool all = merge == Merge::mean;
  for (std::int64_t writer = all ? 0 : place; writer < writers; writer += all ? 1 : ranks) sources.push_back(writer);
  return sources;
}

// Whether ranks left something that the state of a codec is merged from.
bool merges(const checkpoint::Manifest& manifest, const std::string& buffer) {
  return manifest.find(name_of_rank(tensor_of_buffer(buffer), 0)) != nullptr;
}

// What codecs remembered that are no longer used, or of tensors that are now shared out otherwise, is left where it is.
checkpoint::Unclaimed unclaimed_of(const checkpoint::Manifest& manifest, const std::vector<HeldPiece>& pieces) {
  std::set<std::string_view> claimed;
  for (const HeldPiece& piece : pieces) claimed.insert(piece.name);
  const auto belongs_to_nobody = [&](const checkpoint::TensorRecord& tensor) {
    return !claimed.contains(tensor.name) && !codecs::is_remembered(tensor.name);
  };
  return std::any_of(manifest.tensors.begin(), manifest.tensors.end(), belongs_to_nobody) ? checkpoint::Unclaimed::refuse
                                                                                          : checkpoint::Unclaimed::ignore;
}

class Merging {
 public:
  Merging(io::FileSystem& file_system, const checkpoint::Checkpoint& checkpoint, Session& session)
      : file_system_(file_system), checkpoint_(checkpoint), session_(session) {}

  void merge(const KeptState& state, std::int64_t writers) {
    const std::int64_t place = session_.plan().mesh.place(ops::Shares::batch, session_.rank());
    const std::vector<std::int64_t> sources = sources_for(state.state.merge, writers, place, state.ranks);
    const Buffers& buffers = session_.buffers();
    for (const std::string& buffer : buffers.holding(state.name)) {
      const std::int64_t size = base::size_of(state.whole.dtype);
      ops::for_each_run(buffers.part(buffer), 0, [&](std::int64_t first, std::int64_t held, std::int64_t count) {
        if (sources.empty()) return buffers.put(buffer, held, std::vector<float>(static_cast<std::size_t>(count), state.state.start));
        const std::vector<std::byte> merged =
            sources.size() == 1 ? read(state, sources[0], first, count) : sum(state, sources, first, count);
        buffers.write(buffer, held * size, merged);
      });
    }
  }

 private:
  std::vector<std::byte> read(const KeptState& state, std::int64_t writer, std::int64_t first, std::int64_t count) const {
    const std::int64_t size = base::size_of(state.whole.dtype);
    std::vector<std::byte> data(static_cast<std::size_t>(count * size));
    const std::span<const std::int64_t> dims = state.whole.shape.dims();
    const checkpoint::TensorTarget target{.name = name_of_rank(state.name, writer),
                                          .dtype = state.whole.dtype,
                                          .shape = {dims.begin(), dims.end()},
                                          .data = data,
                                          .begin = first * size};
    checkpoint::load(file_system_, checkpoint_, std::span(&target, 1), checkpoint::Unclaimed::ignore);
    return data;
  }

  // Or the mean.
  std::vector<std::byte> sum(const KeptState& state, const std::vector<std::int64_t>& sources, std::int64_t first,
                             std::int64_t count) const {
    std::vector<double> sums(static_cast<std::size_t>(count), 0.0);
    for (const std::int64_t source : sources) {
      const std::vector<std::byte> data = read(state, source, first, count);
      const auto* values = reinterpret_cast<const float*>(data.data());
      for (std::size_t index = 0; index < sums.size(); ++index) sums[index] += values[index];
    }
    const double by = state.state.merge == Merge::mean ? static_cast<double>(sources.size()) : 1.0;
    std::vector<std::byte> merged(sums.size() * sizeof(float));
    auto* out = reinterpret_cast<float*>(merged.data());
    for (std::size_t index = 0; index < sums.size(); ++index) out[index] = static_cast<float>(sums[index] / by);
    return merged;
  }

  io::FileSystem& file_system_;
  const checkpoint::Checkpoint& checkpoint_;
  Session& session_;
};

}  // namespace

std::vector<KeptState> kept_states(const plan::Plan& plan) {
  std::map<std::string, KeptState> found;
  for (const plan::RankClass& rank_class : plan.classes) {
    for (std::uint32_t index = 0; index < rank_class.buffers.size(); ++index) {
      const plan::Buffer& buffer = rank_class.buffers[plan::BufferId{index}];
      if (!buffer.persistent() || !buffer.state.declared()) continue;
      const std::string name = tensor_of_buffer(buffer.name.text());
      const ops::Part part = rank_class.part_of(plan::BufferId{index});
      const base::Shape whole = part.whole.rank() > 0 ? part.whole : buffer.type.shape;
      found.try_emplace(name, KeptState{.name = name,
                                        .state = buffer.state,
                                        .whole = {buffer.type.dtype, whole},
                                        .ranks = plan.mesh.extent(ops::Shares::batch, rank_class.ranks.front())});
    }
  }
  std::vector<KeptState> states;
  for (auto& [name, state] : found) states.push_back(std::move(state));
  return states;
}

std::string name_of_rank(const std::string& state, std::int64_t data_place) { return fmt::format("{}@data.{}", state, data_place); }

void load_held(io::FileSystem& file_system, const checkpoint::Checkpoint& checkpoint, Session& session) {
  std::vector<HeldPiece> pieces = held_pieces(session);
  // A codec that the checkpoint does not know begins with nothing to feed back.
  std::erase_if(pieces, [&](const HeldPiece& piece) {
    const bool found = checkpoint.manifest.find(piece.name) != nullptr;
    return codecs::is_remembered(piece.name) && !found && !merges(checkpoint.manifest, piece.buffer);
  });
  std::vector<std::pair<KeptState, std::int64_t>> merged;
  for (const KeptState& state : kept_states(session.plan())) {
    const std::int64_t writers = state.state.is_private() ? writers_of(checkpoint.manifest, state.name) : 0;
    if (writers == 0 || writers == state.ranks) continue;
    for (std::int64_t rank = 0; rank < state.ranks; ++rank)
      std::erase_if(pieces, [name = name_of_rank(state.name, rank)](const HeldPiece& piece) { return piece.name == name; });
    for (std::int64_t rank = 0; rank < writers; ++rank) pieces.push_back({name_of_rank(state.name, rank), state.name, state.whole});
    merged.emplace_back(state, writers);
  }
  checkpoint::load(file_system, checkpoint, targets_of(session, pieces), unclaimed_of(checkpoint.manifest, pieces));
  Merging merging(file_system, checkpoint, session);
  for (const auto& [state, writers] : merged) merging.merge(state, writers);
}

}  // namespace plimsoll::train
