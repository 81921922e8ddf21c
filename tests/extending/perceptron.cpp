#include "extending/perceptron.h"

#include <fmt/format.h>

#include "families/families.h"

namespace plimsoll::extending {

namespace {

using families::Setting;
using graph::ValueId;
using model::Model;

std::vector<std::int64_t> widths_of(const Model& model) {
  std::vector<std::int64_t> widths;
  for (const base::Json& width : model.own.at("widths").as_array()) widths.push_back(width.as_integer());
  return widths;
}

bool classifies(const Model& model) { return model.own.at("task").as_string() == "classify"; }

void problems(const Model& model, std::vector<std::string>& found) {
  if (widths_of(model).empty()) found.push_back("\"widths\" is empty; expected at least one layer");
}

families::Targets targets(const Model& model) {
  const std::int64_t outputs = model.own.at("outputs").as_integer();
  return classifies(model) ? families::Targets{.columns = 1, .classes = outputs} : families::Targets{.columns = outputs};
}

void build(const Model& model, graph::Builder& build) {
  const std::int64_t outputs = model.own.at("outputs").as_integer();
  const graph::LinearOptions linear{.bias = true, .init_std = 0.4};
  ValueId x{}, first{};
  for (std::size_t layer = 0; const std::int64_t width : widths_of(model)) {
    const std::string name = fmt::format("layers.{}", layer);
    build.block(name);
    if (layer == 0) x = build.numbers("features", model.own.at("features").as_integer());
    x = build.activation(build.linear(x, name, width, linear), ops::ActivationKind::gelu_tanh, name + ".active");
    if (layer++ == 0) first = x;
  }
  build.block("out");
  x = build.residual(build.linear(x, "out.join", widths_of(model).front(), linear), first, 0.0, "out.sum");
  if (!classifies(model)) return build.squared_error(build.linear(x, "out.result", outputs, linear));
  const ValueId weight = build.parameter("out.result.weight", {outputs, widths_of(model).front()}, graph::normal(linear.init_std));
  build.head(x, weight, build.parameter("out.result.bias", {outputs}, graph::zeros()));
}

}  // namespace

model::Family perceptron() {
  static const families::Family kRow{
      .name = "perceptron",
      .samples = families::Samples::numbers,
      .own = {{.key = "widths", .about = "Of the layers.", .kind = Setting::Kind::integers, .otherwise = base::Json::array({8, 8})},
              {.key = "features", .about = "Numbers of a row.", .otherwise = 4},
              {.key = "outputs", .about = "What is made of them.", .otherwise = 1},
              {.key = "task",
               .about = "What the last columns are.",
               .kind = Setting::Kind::choice,
               .otherwise = "regress",
               .choices = {"regress", "classify"}}},
      .defaults = [](Model& model) { model.context = 1; },
      .problems = problems,
      .build = build,
      .targets = targets,
      .alike = false};
  return &kRow;
}

}  // namespace plimsoll::extending
