#include "passes/case.h"

#include <algorithm>
#include <array>
#include <map>
#include <span>
#include <utility>

#include "base/error.h"
#include "config/config.h"
#include "graph/programs/pass_table.h"
#include "lowering/pass_table.h"
#include "lowering/rank_graph.h"
#include "lowering/rows.h"

namespace plimsoll::passes {

namespace {

using graph::Graph;

constexpr std::string_view kIn = "\n==== in\n";
constexpr std::string_view kOut = "\n==== out\n";

// ---- rows of a table on disk

constexpr std::array<std::string_view, 3> kRowPasses{lowering::kEmbeddingRows, lowering::kFetchRows, lowering::kStoreRows};

// The graph with a small table, or that of a program that moves rows between it and the disk.
Graph run_rows(std::string_view name, const lowering::LoweringInputs& inputs) {
  Graph made;
  lowering::with_rows_apart(inputs, [&](const lowering::LoweringInputs& apart) {
    const Graph& small = apart.programs.front().graph;
    std::map<std::string, plan::Buffer> buffers;
    for (const graph::Value& value : small.values) {
      const plan::BufferKind kind = value.role == graph::Role::parameter ? plan::BufferKind::parameter
                                    : value.role == graph::Role::master  ? plan::BufferKind::master
                                                                         : plan::BufferKind::state;
      buffers[value.name] = {.name = value.name, .kind = kind, .tier = value.tier, .type = value.type};
    }
    const lowering::FindBuffer find = [&](const std::string& wanted) { return lowering::KeptBuffer{&buffers.at(wanted)}; };
    made = name == lowering::kFetchRows   ? lowering::fetch_rows(*apart.rows, find)
           : name == lowering::kStoreRows ? lowering::store_rows(*apart.rows, find)
                                          : small;
    return plan::Plan{};
  });
  return made;
}

// ---- lowering's table

std::int32_t place(const Case& one, std::string_view axis) {
  const base::Json* given = one.settings.find(axis);
  return given == nullptr ? 0 : static_cast<std::int32_t>(given->as_integer());
}

Graph run_lowering(const Case& one, const lowering::LoweringInputs& inputs) {
  const lowering::ProgramSource& source = inputs.programs.front();
  const strategy::Strategy& strategy = inputs.strategy;
  const lowering::RecomputeOrder again = lowering::order_of_recompute(
      source.graph, {.kind = strategy.recompute, .every = strategy.recompute_every, .accumulates = source.micro_batches > 1});
  const lowering::RankGraphs graphs(inputs, again);
  const lowering::PassInputs given = graphs.inputs_at(source, graphs.mesh().first_rank(place(one, "pipe")) + place(one, "tensor"));
  const auto pass = std::find_if(lowering::passes().begin(), lowering::passes().end(),
                                 [&](const lowering::Pass& each) { return each.name == one.pass(); });
  if (pass == lowering::passes().end()) base::bad_input("there is no pass \"{}\"", one.pass());
  if (!pass->applies(source.graph, given)) base::bad_input("\"{}\" has nothing to do with these settings", one.pass());
  return pass->run(source.graph, given);
}

}  // namespace

Case parse_case(std::string_view text, std::string_view name) {
  const std::size_t in = text.find(kIn);
  const std::size_t out = text.find(kOut);
  if (in == std::string_view::npos || out == std::string_view::npos || out < in)
    base::bad_input("{}: expected settings, \"==== in\" with a printed graph, and \"==== out\" with what becomes of it", name);
  Case one{.head = std::string(text.substr(0, in)), .settings = {}, .in = {}, .out = std::string(text.substr(out + kOut.size()))};
  one.settings = base::parse_json(one.head, name);
  one.in = text.substr(in + kIn.size(), out - in - kIn.size());
  return one;
}

std::string to_string(const Case& one) { return one.head + std::string(kIn) + one.in + std::string(kOut) + one.out; }

Graph run_case(const Case& one, const Graph& in) {
  const std::string pass = one.pass();
  config::Run run = config::parse_run(base::write_json(one.settings.at("run")), pass);
  const std::span<const graph::BuildPass> building = graph::build_passes();
  const auto before = std::find_if(building.begin(), building.end(), [&](const graph::BuildPass& each) { return each.name == pass; });
  if (before != building.end()) {
    Graph graph = in;
    model::Training training = run.training();
    training.delayed = run.strategy.delayed_update;  // as in a session
    before->run(graph, {.purpose = graph::Purpose::train, .training = training});
    return graph;
  }
  const base::Json* flush = one.settings.find("flush");
  const lowering::LoweringInputs inputs{.model = pass,
                                        .programs = {{.name = "train",
                                                      .graph = in,
                                                      .micro_batches = static_cast<std::int32_t>(run.micro_batches()),
                                                      .waiting_update_only = flush != nullptr && flush->as_bool()}},
                                        .strategy = run.strategy,
                                        .choose = {},
                                        .host_beside = run.device == config::Device::cuda};
  if (std::find(kRowPasses.begin(), kRowPasses.end(), pass) != kRowPasses.end()) return run_rows(pass, inputs);
  return run_lowering(one, inputs);
}

std::vector<std::string> pass_names() {
  std::vector<std::string> names;
  for (const lowering::PassLine& pass : lowering::all_passes()) names.emplace_back(pass.name);
  names.emplace_back(lowering::kFetchRows);
  names.emplace_back(lowering::kStoreRows);
  return names;
}

}  // namespace plimsoll::passes
