// The operator cases timed: `./dev bench ops [words a case's name or kernel must contain] [--threads N] [--all]`.
// Rates are by ops::Definition::work (the least work that gives the result) over the best of several runs; GB/s counts
// each operand through memory once. --all times every kernel that takes the case but the reference.
#include <algorithm>
#include <charconv>
#include <chrono>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "base/error.h"
#include "kernels/cpu/table.h"
#include "ops/case_memory.h"
#include "ops/cases.h"

namespace {

using namespace plimsoll;
using Clock = std::chrono::steady_clock;

struct Options {
  int threads = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  bool all = false;
  double seconds = 0.3;  // at least, per kernel
  std::vector<std::string_view> words;
};

double number_after(std::span<char*> arguments, std::size_t& index) {
  double value = 0.0;
  const std::string_view flag = arguments[index++];
  const std::string_view text = index < arguments.size() ? arguments[index] : "";
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (failure != std::errc{} || end != text.data() + text.size() || value <= 0.0) {
    base::bad_input("{}: found \"{}\", expected a positive number", flag, text);
  }
  return value;
}

Options parse(std::span<char*> arguments) {
  Options options;
  for (std::size_t index = 1; index < arguments.size(); ++index) {
    const std::string_view argument = arguments[index];
    if (argument == "--all") {
      options.all = true;
    } else if (argument == "--threads") {
      options.threads = static_cast<int>(number_after(arguments, index));
    } else if (argument == "--seconds") {
      options.seconds = number_after(arguments, index);
    } else if (argument.starts_with("-")) {
      base::bad_input("unknown option {}; expected [WORD..] [--threads N] [--seconds S] [--all]", argument);
    } else {
      options.words.push_back(argument);
    }
  }
  return options;
}

std::vector<const kernels::cpu::Kernel*> kernels_to_time(const ops::KernelQuery& query, const Options& options) {
  std::vector<const kernels::cpu::Kernel*> chosen{&kernels::cpu::kernel_named(kernels::cpu::choose(query).name)};
  if (!options.all) return chosen;
  chosen.clear();
  for (const kernels::cpu::Kernel& kernel : kernels::cpu::kernels()) {
    const bool slow = kernel.name.ends_with(".reference");
    if (kernel.op == ops::name_of(query.op) && !slow && (kernel.refusal == nullptr || !kernel.refusal(query))) chosen.push_back(&kernel);
  }
  return chosen;
}

struct Times {
  double best = 0.0;
  double median = 0.0;
};

Times time_kernel(const kernels::cpu::Kernel& kernel, const op_cases::CaseMemory& memory, double least_seconds) {
  const ops::KernelQuery query = memory.query();
  const op_cases::ReadyKernel ready(kernel, query);
  ready.run(query, memory.inputs(), memory.outputs());
  std::vector<double> seconds;
  double total = 0.0;
  while (seconds.size() < 5 || total < least_seconds) {
    const auto start = Clock::now();
    ready.run(query, memory.inputs(), memory.outputs());
    seconds.push_back(std::chrono::duration<double>(Clock::now() - start).count());
    total += seconds.back();
  }
  std::sort(seconds.begin(), seconds.end());
  return {seconds.front(), seconds[seconds.size() / 2]};
}

bool contains_all(const std::string& text, const std::vector<std::string_view>& words) {
  return std::all_of(words.begin(), words.end(), [&](std::string_view word) { return text.find(word) != std::string::npos; });
}

void time_case(const op_cases::Case& test, const Options& options) {
  const std::vector<base::TensorType> inputs = test.input_types();
  const std::vector<base::TensorType> outputs = test.output_types();
  std::vector<const kernels::cpu::Kernel*> kernels = kernels_to_time({test.op, inputs, outputs, options.threads}, options);
  std::erase_if(kernels, [&](const auto* kernel) { return !contains_all(test.name() + " " + std::string(kernel->name), options.words); });
  if (kernels.empty()) return;
  const op_cases::CaseMemory memory(test, options.threads);
  const ops::Work work = ops::definition_of(test.op).work(test.op, inputs, outputs);
  for (const kernels::cpu::Kernel* kernel : kernels) {
    const Times times = time_kernel(*kernel, memory, options.seconds);
    fmt::print("{:>9.3f} {:>9.3f} {:>9.2f} {:>8.2f}  {:<24} {}\n", times.best * 1e3, times.median * 1e3, work.flops / times.best * 1e-9,
               work.bytes / times.best * 1e-9, kernel->name, test.name());
    std::fflush(stdout);
  }
}

}  // namespace

int main(int count, char** arguments) {
  try {
    const Options options = parse({arguments, static_cast<std::size_t>(count)});
    fmt::print("{} threads\n{:>9} {:>9} {:>9} {:>8}  {:<24} {}\n", options.threads, "best ms", "median", "GFLOP/s", "GB/s", "kernel",
               "case");
    for (const op_cases::Case& test : op_cases::speed_cases()) time_case(test, options);
    return 0;
  } catch (const base::Error& error) {
    fmt::print(stderr, "{}\n", error.what());
    return error.exit_code();
  }
}
