// Names of Llama and its relatives in Hugging Face folders.
#include "families/llama/llama.h"

#include <fmt/format.h>

#include "families/llama/config_keys.h"

namespace plimsoll::families {

namespace {

using model::Model;

void add_llama(const Model& model, Collector& out) {
  const QkvRows qkv(model);
  out.matrix("embed.tokens", model.vocab, model.width, out.in_base("embed_tokens.weight"));
  for (std::int64_t layer = 0; layer < model.layers; ++layer) {
    const std::string ours = fmt::format("blocks.{}", layer);
    const std::string theirs = out.in_base(fmt::format("layers.{}", layer));
    const std::string attention = theirs + ".self_attn";
    out.vector(ours + ".attention.norm.weight", model.width, theirs + ".input_layernorm.weight");
    out.linear(ours + ".attention.qkv", model.width, separate_qkv(qkv, attention + ".q_proj", attention + ".k_proj", attention + ".v_proj"),
               model.qkv_bias);
    if (model.qk_norm) {
      out.vector(ours + ".attention.query_norm.weight", model.head_dim, attention + ".q_norm.weight");
      out.vector(ours + ".attention.key_norm.weight", model.head_dim, attention + ".k_norm.weight");
    }
    out.linear(ours + ".attention.out", qkv.queries(), {{attention + ".o_proj", model.width, all_rows(model.width)}}, model.out_bias);
    out.vector(ours + ".ffn.norm.weight", model.width, theirs + ".post_attention_layernorm.weight");
    const RowRun gate{.ours = 0, .theirs = 0, .count = model.ffn, .step = 2};
    const RowRun up{.ours = 1, .theirs = 0, .count = model.ffn, .step = 2};
    out.linear(ours + ".ffn.up", model.width, {{theirs + ".mlp.gate_proj", model.ffn, {gate}}, {theirs + ".mlp.up_proj", model.ffn, {up}}},
               false);
    out.linear(ours + ".ffn.down", model.ffn, {{theirs + ".mlp.down_proj", model.width, all_rows(model.width)}}, false);
  }
  out.vector("head.norm.weight", model.width, out.in_base("norm.weight"));
  out.head("lm_head.weight", out.in_base("embed_tokens.weight"));
}

bool is_llama_buffer(std::string_view name) { return name.ends_with("rotary_emb.inv_freq"); }

}  // namespace

Files llama_files() {
  return {.prefix = "model.",
          .base_class = "AutoModel",
          .kinds = {{"llama", "LlamaForCausalLM"},
                    {"mistral", "MistralForCausalLM"},
                    {"qwen2", "Qwen2ForCausalLM"},
                    {"qwen3", "Qwen3ForCausalLM"}},
          .read = read_llama,
          .write = set_llama,
          .describes = describes_llama,
          .beyond = why_no_llama,
          .names = add_llama,
          .known_buffer = is_llama_buffer};
}

}  // namespace plimsoll::families
