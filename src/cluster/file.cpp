// One function says what the keys are, for reading and for writing: `Reader` and `Writer` both have a member for each kind of
// value, and `visit_*` calls them in the order of the file.
#include "cluster/file.h"

#include <set>

#include "base/error.h"
#include "base/text.h"
#include "cluster/presets.h"

namespace plimsoll::cluster {

namespace {

using base::Json;

constexpr std::array<Reach, 5> kReaches{Reach::none, Reach::inside, Reach::across, Reach::host, Reach::disk};
constexpr std::array<AttentionForm, 2> kForms{AttentionForm::tiled, AttentionForm::scores_in_memory};

// Takes the members of an object that are there; the others keep their values.
class Reader {
 public:
  explicit Reader(const Json& object) : object_(object) { object.as_object(); }

  void number(const char* key, double& value) {
    if (const Json* found = take(key)) value = found->as_double();
  }
  void count(const char* key, std::int64_t& value) {
    if (const Json* found = take(key)) value = found->as_integer();
  }
  void flag(const char* key, bool& value) {
    if (const Json* found = take(key)) value = found->as_bool();
  }
  void text(const char* key, std::string& value) {
    if (const Json* found = take(key)) value = found->as_string();
  }
  void bytes(const char* key, Bytes& value) {
    const Json* found = take(key);
    if (found == nullptr) return;
    const std::optional<Bytes> read = found->is_string() ? base::parse_bytes(found->as_string()) : Bytes{found->as_integer()};
    if (!read) found->fail_expected("an amount of memory, as \"80GiB\"");
    value = *read;
  }
  template <typename Enum, std::size_t N>
  void choice(const char* key, Enum& value, const std::array<Enum, N>& all) {
    const Json* found = take(key);
    if (found == nullptr) return;
    std::string names;
    for (const Enum each : all) {
      if (name_of(each) == found->as_string()) {
        value = each;
        return;
      }
      names += fmt::format("{}\"{}\"", names.empty() ? "" : ", ", name_of(each));
    }
    found->fail_expected("one of " + names);
  }
  void dtype(const char* key, DType& value) {
    const Json* found = take(key);
    if (found != nullptr) value = dtype_of(*found, found->as_string());
  }
  void rates(const char* key, std::map<DType, double>& value) {
    const Json* found = take(key);
    if (found == nullptr) return;
    value.clear();
    for (const base::JsonMember& member : found->as_object()) value[dtype_of(member.value, member.key)] = member.value.as_double();
  }
  void extents(const char* key, std::array<std::int64_t, 3>& value) {
    const Json* found = take(key);
    if (found == nullptr) return;
    if (found->as_array().size() != value.size()) found->fail_expected("three counts");
    for (std::size_t index = 0; index < value.size(); ++index) value[index] = found->at(index).as_integer();
  }
  template <typename Item, typename Visit>
  void list(const char* key, std::vector<Item>& value, const Visit& visit) {
    const Json* found = take(key);
    if (found == nullptr) return;
    value.clear();
    for (const Json& item : found->as_array()) {
      Reader reader(item);
      visit(reader, value.emplace_back());
      reader.finish();
    }
  }
  template <typename Item, typename Visit>
  void object(const char* key, Item& value, const Visit& visit) {
    const Json* found = take(key);
    if (found == nullptr) return;
    Reader reader(*found);
    visit(reader, value);
    reader.finish();
  }

  // No other members.
  void finish() const {
    for (const base::JsonMember& member : object_.as_object()) {
      if (taken_.contains(member.key)) continue;
      const std::vector<std::string_view> known(taken_.begin(), taken_.end());
      const std::string_view near = base::nearest_name(member.key, known);
      base::bad_input("{}: found the unknown key \"{}\",{} expected one of {}", object_.where_key(member), member.key,
                      near.empty() ? "" : fmt::format(" did you mean \"{}\"?", near), fmt::join(known, ", "));
    }
  }

 private:
  static DType dtype_of(const Json& place, std::string_view name) {
    const std::optional<DType> dtype = base::dtype_from_name(name);
    if (!dtype) place.fail_expected("an element type: f32, bf16, f16, f8e4m3 or f8e5m2");
    return *dtype;
  }
  const Json* take(const char* key) {
    taken_.insert(key);
    return object_.find(key);
  }

  const Json& object_;
  std::set<std::string, std::less<>> taken_;
};

class Writer {
 public:
  void number(const char* key, const double& value) { json_.set(key, Json(value)); }
  void count(const char* key, const std::int64_t& value) { json_.set(key, Json(value)); }
  void flag(const char* key, const bool& value) { json_.set(key, Json(value)); }
  void text(const char* key, const std::string& value) {
    if (!value.empty()) json_.set(key, Json(value));
  }
  void bytes(const char* key, const Bytes& value) { json_.set(key, Json(value.count)); }
  template <typename Enum, std::size_t N>
  void choice(const char* key, const Enum& value, const std::array<Enum, N>&) {
    json_.set(key, Json(name_of(value)));
  }
  void dtype(const char* key, const DType& value) { json_.set(key, Json(base::name_of(value))); }
  void rates(const char* key, const std::map<DType, double>& value) {
    Json rates = Json::object();
    for (const auto& [dtype, rate] : value) rates.set(base::name_of(dtype), Json(rate));
    json_.set(key, std::move(rates));
  }
  void extents(const char* key, const std::array<std::int64_t, 3>& value) {
    json_.set(key, Json::array({Json(value[0]), Json(value[1]), Json(value[2])}));
  }
  template <typename Item, typename Visit>
  void list(const char* key, const std::vector<Item>& value, const Visit& visit) {
    Json list = Json::array();
    for (const Item& item : value) {
      Writer writer;
      visit(writer, item);
      list.push(std::move(writer.json_));
    }
    json_.set(key, std::move(list));
  }
  template <typename Item, typename Visit>
  void object(const char* key, const Item& value, const Visit& visit) {
    Writer writer;
    visit(writer, value);
    json_.set(key, std::move(writer.json_));
  }
  Json take() { return std::move(json_); }

 private:
  Json json_ = Json::object();
};

template <typename Visitor, typename Device>
void visit_device(Visitor& visitor, Device& device) {
  visitor.text("name", device.name);
  visitor.bytes("memory", device.memory);
  visitor.bytes("reserve", device.reserve);
  visitor.rates("rates", device.rates);
  visitor.number("vector_rate", device.vector_rate);
  visitor.number("bandwidth", device.bandwidth);
  visitor.number("bandwidth_share", device.bandwidth_share);
  visitor.number("launch", device.launch);
  visitor.number("matrix_share", device.matrix_share);
  visitor.number("sustained_share", device.sustained_share);
  visitor.count("units", device.units);
  visitor.count("collective_units", device.collective_units);
  visitor.count("cores", device.cores);
  visitor.number("round_trip", device.round_trip);
  visitor.choice("attention", device.attention, kForms);
  visitor.number("watts", device.watts);
  visitor.list("samples", device.samples, [](auto& item, auto& sample) {
    item.text("op", sample.op);
    item.dtype("dtype", sample.dtype);
    item.count("threads", sample.threads);
    item.extents("extents", sample.extents);
    item.number("seconds", sample.seconds);
  });
}

template <typename Visitor, typename Link>
void visit_link(Visitor& visitor, Link& link) {
  visitor.text("name", link.name);
  visitor.choice("joins", link.reach, kReaches);
  visitor.number("bandwidth", link.bandwidth);
  visitor.number("share", link.share);
  visitor.number("latency", link.latency);
  visitor.count("per_node", link.per_node);
  visitor.text("over", link.over);
  visitor.flag("both_ways", link.both_ways);
  visitor.number("sum_rate", link.sum_rate);
}

template <typename Visitor, typename Cluster>
void visit_cluster(Visitor& visitor, Cluster& cluster) {
  visitor.text("name", cluster.name);
  visitor.count("nodes", cluster.nodes);
  visitor.count("devices_per_node", cluster.devices_per_node);
  visitor.number("price", cluster.price);
  visitor.number("storage", cluster.storage);
  visitor.number("restart", cluster.restart);
  visitor.object("device", cluster.device, [](auto& item, auto& device) { visit_device(item, device); });
  visitor.object("host", cluster.host, [](auto& item, auto& host) {
    item.bytes("memory", host.memory);
    item.number("bandwidth", host.bandwidth);
    item.bytes("disk", host.disk);
  });
  visitor.list("links", cluster.links, [](auto& item, auto& link) { visit_link(item, link); });
}

}  // namespace

Cluster parse_cluster(std::string_view text, std::string_view name) {
  const Json json = base::parse_json(text, name);
  Reader reader(json);
  std::string base;
  reader.text("preset", base);
  Cluster cluster = base.empty() ? Cluster{} : preset(base);
  cluster.name = cluster.name.empty() ? std::string(name) : cluster.name;
  visit_cluster(reader, cluster);
  reader.finish();
  cluster.origin = std::string(name);
  require_possible(cluster);
  return cluster;
}

Json to_json(const Cluster& cluster) {
  Writer writer;
  visit_cluster(writer, cluster);
  return writer.take();
}

}  // namespace plimsoll::cluster
