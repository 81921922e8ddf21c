// DeepSpeed's zero_optimization: what data ranks share out, and what leaves the device.
#include <algorithm>

#include <fmt/format.h>

#include "config/deepspeed.h"
#include "config/fields.h"

namespace plimsoll::config {

namespace {

using base::Json;

}  // namespace

void DeepSpeedTranslation::offload(std::string_view block, std::string_view setting, std::string_view old_flag) {
  const std::string prefix = fmt::format("zero_optimization.{}", block);
  const std::string device_path = prefix + ".device";
  if (const Json* device = given(device_path)) {
    const std::string& name = device->as_string();
    if (name != "none" && name != "cpu" && name != "nvme") fail_value(*device, device_path, "one of none, cpu, nvme");
    const double ratio = number(prefix + ".ratio", 1.0);
    if (!between(0.0, 1.0).contains(ratio)) fail_value(*given(prefix + ".ratio"), prefix + ".ratio", "a share from 0 to 1");
    const std::string_view tier = name == "cpu" ? "host" : "disk";
    if (name == "none") {
      assign(setting, "none", device_path);
    } else if (ratio == 1.0) {
      assign(setting, tier, device_path);
    } else {
      assign(setting, Json::object({{std::string(tier), ratio}}), device_path);
    }
    const std::string path_path = prefix + ".nvme_path";
    if (given(path_path) != nullptr && name == "nvme") assign("limits.disk_path", *given(path_path), path_path);
    if (given(path_path) != nullptr && name != "nvme") note(path_path, "not used: nothing goes to disk", false);
    if (given(old_flag) != nullptr) note(old_flag, fmt::format("not used: {} says it", device_path), flag(old_flag) != (name == "cpu"));
  } else if (flag(old_flag)) {
    assign(setting, "host", old_flag);
  }
}

// The setting holds what came last.
void DeepSpeedTranslation::one_disk() {
  const std::string_view first = "zero_optimization.offload_optimizer.nvme_path", last = "zero_optimization.offload_param.nvme_path";
  const auto used = [&](std::string_view path, std::string_view device) {
    const Json* tier = given(device);
    return given(path) != nullptr && tier != nullptr && tier->as_string() == "nvme";
  };
  if (!used(first, "zero_optimization.offload_optimizer.device") || !used(last, "zero_optimization.offload_param.device")) return;
  if (*given(first) == *given(last)) return;
  note(first, fmt::format("not used: there is one disk tier, where {} says", last), true);
}

void DeepSpeedTranslation::zero() {
  const Json* bare = given("zero_optimization");  // an old form: true means stage 1
  const std::string_view path = bare != nullptr ? "zero_optimization" : "zero_optimization.stage";
  std::int64_t stage = 0;
  if (const Json* found = given(path)) {
    stage = bare != nullptr ? (bare->as_bool() ? 1 : 0) : found->as_integer();
    if (stage > 3) fail_value(*found, path, "0, 1, 2 or 3");
    const bool alone = !run_.strategy_auto && run_.strategy.data == 1;
    if (alone && stage > 0 && !run_.given("strategy.zero")) {
      note(path, "one data rank holds everything, so there is nothing to share out; `strategy.data` gives more", true);
    } else {
      assign("strategy.zero", stage, path);
    }
  }
  if (run_.given("strategy.zero")) stage = run_.strategy.zero;
  if (const Json* bucket = given("zero_optimization.reduce_bucket_size")) {
    if (!between(0.0, 1e15).contains(bucket->as_double()))
      fail_value(*bucket, "zero_optimization.reduce_bucket_size", "a count of elements");
    const std::int64_t element = run_.precision == model::Precision::f32 ? 4 : 2;
    // With 0, which is legal there, every gradient is a bucket of its own.
    const std::int64_t elements = std::max<std::int64_t>(1, static_cast<std::int64_t>(bucket->as_double()));
    assign("strategy.bucket", elements * element, "zero_optimization.reduce_bucket_size");
    note("zero_optimization.reduce_bucket_size", fmt::format("strategy.bucket, at {} bytes an element", element), false);
  }
  const Json* prefetch = given("zero_optimization.stage3_prefetch_bucket_size");
  if (prefetch != nullptr && prefetch->as_double() == 0.0) {
    note("zero_optimization.stage3_prefetch_bucket_size", "strategy.prefetch", false);
    assign("strategy.prefetch", 0, "zero_optimization.stage3_prefetch_bucket_size");
  }
  offload("offload_optimizer", "strategy.offload.optimizer", "zero_optimization.cpu_offload");
  offload_weights(stage);
  shard_groups(stage);
  communication(stage);
}

// DeepSpeed's blocks are larger, and its scale is the largest magnitude over 128: both round to 8 bits.
void DeepSpeedTranslation::communication(std::int64_t stage) {
  constexpr std::string_view kType = "communication_data_type", kWeights = "zero_optimization.zero_quantized_weights";
  if (const Json* type = given(kType); type != nullptr && type->is_string()) {
    const std::string& name = type->as_string();
    if (name == "bf16" || name == "bfp16" || name == "bfloat16") {
      assign("communication.gradients", "bf16", kType);
    } else if (name == "fp32" || name == "float32" || name == "fp16" || name == "float16" || name == "half") {
      const bool half = name != "fp32" && name != "float32";
      note(kType,
           half ? "not used: gradients are sent in the type that the plan keeps them in; with `communication.gradients` in bf16"
                : "gradients are sent in f32 unless `communication.gradients` says otherwise",
           half);
    } else {
      fail_value(*type, kType, "one of fp32, bf16, fp16");
    }
  }
  if (!flag(kWeights)) return note(kWeights, "weights are gathered as they are", false);
  if (stage != 3) return note(kWeights, fmt::format("not used: weights are gathered with stage 3 alone, and the stage is {}", stage), true);
  assign("communication.weights", "int8", kWeights);
}

// MiCS. DeepSpeed's groups are neighbours as well.
void DeepSpeedTranslation::shard_groups(std::int64_t stage) {
  constexpr std::string_view kPath = "zero_optimization.mics_shard_size";
  const Json* size = given(kPath);
  if (size == nullptr) return;
  if (!size->is_integer()) fail_value(*size, kPath, "an integer");
  if (size->as_integer() <= 0) return note(kPath, "all data ranks are one group", false);
  if (stage != 3) return note(kPath, fmt::format("not used, as in DeepSpeed: it belongs to stage 3, and the stage is {}", stage), true);
  if (!run_.strategy_auto && run_.strategy.data == 1) return note(kPath, "one data rank is one group; `strategy.data` gives more", true);
  assign("strategy.zero_group", *size, kPath);
}

// Ignored below stage 3, as in DeepSpeed.
void DeepSpeedTranslation::offload_weights(std::int64_t stage) {
  constexpr std::string_view kDevice = "zero_optimization.offload_param.device", kOldFlag = "zero_optimization.cpu_offload_param";
  if (stage == 3) {
    offload("offload_param", "strategy.offload.params", kOldFlag);
    one_disk();
    return keep_state_with_weights(given(kDevice) != nullptr ? kDevice : kOldFlag);
  }
  const std::string why = fmt::format("not used, as in DeepSpeed: weights leave the device with stage 3 alone, and the stage is {}", stage);
  const Json* device = given(kDevice);
  note(kDevice, why, device != nullptr && device->as_string() != "none");
  note(kOldFlag, why, flag(kOldFlag));
  note("zero_optimization.offload_param.nvme_path", why, false);
}

// DeepSpeed updates on the device weights that live elsewhere. Here whoever updates them has them at hand, so all of the state goes with
// them (strategy/legality.cpp).
void DeepSpeedTranslation::keep_state_with_weights(std::string_view path) {
  const strategy::TierShare& weights = run_.strategy.offload.params;
  const strategy::TierShare& state = run_.strategy.offload.optimizer;
  const OriginKind kind = run_.origin("strategy.offload.optimizer").kind;
  if (given(path) == nullptr || !weights.anything() || kind == OriginKind::file || kind == OriginKind::set) return;
  const bool disk = weights.disk > 0.0 || state.disk > 0.0;
  if (state == (disk ? strategy::TierShare{.disk = 1.0} : strategy::TierShare{.host = 1.0})) return;
  const std::string_view tier = disk ? "disk" : "host";
  find_field("strategy.offload.optimizer")->read(tier, run_);
  run_.origins["strategy.offload.optimizer"] = {.kind = OriginKind::deepspeed, .text = fmt::format("derived: {}", path)};
  note(path,
       fmt::format("strategy.offload.params; the state that updates weights cannot be nearer than they are, so strategy.offload.optimizer "
                   "is \"{}\" for all of it and the host updates",
                   tier),
       true);
}

}  // namespace plimsoll::config
