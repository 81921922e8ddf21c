#include "codecs/builder.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/error.h"

namespace plimsoll::codecs {

ValueId Builder::cast(const Task& task, ValueId value, base::DType dtype, const std::string& name) {
  return type(value).dtype == dtype ? value : make_one(task, ops::Cast{.dtype = dtype}, {value}, name);
}

ValueId Builder::shaped(const Task& task, ValueId value, const base::Shape& shape, const std::string& name) {
  const base::Shape now = type(value).shape;
  if (now == shape) return value;
  if (now.elements() >= shape.elements()) return make_one(task, ops::View{.shape = shape}, {value}, name);
  const ValueId flat = make_one(task, ops::View{.shape = {shape.elements()}}, {value}, name + ".flat");
  const ValueId filled = make_one(task, ops::Pad{.valid = now.elements()}, {flat}, name + ".padded");
  return shaped(task, filled, shape, name);
}

std::vector<ValueId> Builder::collective(const Task& task, ops::CollectiveKind kind, const std::vector<ValueId>& values,
                                         const std::string& name) {
  const ops::Collective op{
      .kind = kind, .axis = task.plain.axis, .members = task.plain.members, .tensors = static_cast<std::int64_t>(values.size())};
  return make(task, op, values, name);
}

namespace {

constexpr std::string_view kMark = ".sent.";

// Of a tile, what the tiles have together is called so.
std::string name_of_state(const std::string& name, const std::string& suffix) {
  const std::size_t tile = std::min(name.find('#'), name.size());
  return fmt::format("{}{}{}{}", name.substr(0, tile), kMark, suffix, name.substr(tile));
}

}  // namespace

bool is_remembered(std::string_view state) { return state.find(kMark) != std::string_view::npos; }

ValueId Builder::own_state(const Task& task, const Operand& operand, const std::string& suffix) {
  graph::Value value = rewrite_.to().values[operand.like];
  value.name = name_of_state(value.name, suffix);
  value.type.shape = operand.whole;
  value.part.shard = 0;
  value.state = {.merge = ops::State::Merge::sum};
  return add_state(task, std::move(value));
}

ValueId Builder::shard_state(const Task& task, const Operand& operand, const std::string& suffix) {
  graph::Value value = rewrite_.to().values[operand.like];
  value.name = name_of_state(value.name, suffix);
  if (value.part == ops::Part{}) value.part = {.whole = operand.whole, .slice = operand.whole};
  value.part.shard = operand.shard;
  value.type.shape = {operand.shard};
  value.state = {};
  return add_state(task, std::move(value));
}

ValueId Builder::add_state(const Task& task, graph::Value value) {
  value.type.dtype = base::DType::f32;
  value.role = graph::Role::state;
  value.producer = {};
  value.init = {};  // as the state says
  // A head that makes its gradient with its loss sends it in the forward pass.
  value.state.written = task.site.phase == graph::Phase::forward ? ops::State::Written::forward : ops::State::Written::backward;
  value.tier = ops::Tier::device;
  const std::string name = value.name;
  Remembered one{.root = rewrite_.to().add_value(std::move(value)), .before = {}, .newest = {}, .block = task.site.block};
  if (may_skip_) {
    graph::Site site = task.site;
    if (site.turn == graph::Turn::each) site.turn = graph::Turn::first;
    one.before = rewrite_.make_one(ops::Accumulate{}, {one.root}, site, name + ".before");
    rewrite_.to().values[one.before].all_micro_batches = true;
  }
  remembered_.push_back(one);
  return one.root;
}

void Builder::remember(ValueId state, ValueId newest) {
  const auto found = std::find_if(remembered_.begin(), remembered_.end(), [&](const Remembered& one) { return one.root == state; });
  PLIMSOLL_CHECK(found != remembered_.end(), "a codec remembers what is no state of its own");
  found->newest = newest;
}

void Builder::undo_where_skipped(ValueId scalars) {
  for (const Remembered& one : remembered_) {
    if (!one.before.valid() || !one.newest.valid()) continue;
    const graph::Site site{.block = one.block, .phase = graph::Phase::verdict};
    rewrite_.make(ops::UndoSkipped{}, {scalars, one.newest, one.before}, site, rewrite_.to().values[one.root].name + ".kept");
  }
  remembered_.clear();
}

ValueId Feedback::added(ValueId x) const { return build_.make_one(task_, ops::AddError{}, {build_.scalars(), x, error_}, name_ + ".sum"); }

void Feedback::keep(ValueId z, ValueId y) const {
  build_.remember(error_, build_.make_one(task_, ops::KeepError{}, {build_.scalars(), z, y, error_}, name_ + ".lost"));
}

}  // namespace plimsoll::codecs
