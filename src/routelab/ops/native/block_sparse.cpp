// Attention inside a block layout, float32: softmax(scale Q K^T + M + R) V, Eq. 8 of WISE (arXiv 2609.27373).
//
// Every unit goes through its own key blocks, CHUNK keys at a time, with a running softmax.

#include "blocks.hpp"

namespace {

constexpr int CHUNK = 512;  // keys; the scores of a unit with them stay in the cache

int64_t padded(const Problem& p) { return (p.dim + PANEL - 1) / PANEL * PANEL; }
int64_t block_size(const Problem& p) { return p.block * (p.dim + padded(p)); }
int64_t space_of_thread(const Problem& p) {
  return p.block * (p.dim + std::max<int64_t>(CHUNK, p.block) + padded(p) + 3);
}

// The values of a key block as [padded / PANEL, block, PANEL]; zero beyond the last key.
void pack_values(const Problem& p, int64_t group, int64_t block, float* to) {
  const float* value = p.value + group / p.groups * p.value_strides.batch + group % p.groups * p.value_strides.head;
  const int64_t first = block * p.block;
  std::memset(to, 0, sizeof(float) * p.block * padded(p));
  for (int64_t j = 0; j < std::min(p.block, p.keys - first); ++j) {
    const float* from = value + (first + j) * p.value_strides.row;
    for (int64_t x = 0; x < p.dim; x += PANEL)
      std::memcpy(to + x * p.block + j * PANEL, from + x, sizeof(float) * std::min<int64_t>(PANEL, p.dim - x));
  }
}

// One chunk of the running softmax of a row: scores to weights, and what earlier chunks fade by.
void soften(float* scores, int64_t count, float& highest, float& total, float& fade) {
  Floats best = load(scores), sum{};
  for (int64_t x = LANES; x < count; x += LANES) {
    const Floats here = load(scores + x);
    best = here > best ? here : best;
  }
  const float before = highest;
  for (int lane = 0; lane < LANES; ++lane) highest = std::max(highest, best[lane]);
  const Floats base = splat(highest == -INFINITY ? 0.0f : highest);  // no weight yet: all stay zero
  for (int64_t x = 0; x < count; x += LANES) {
    const Floats weight = exp2(load(scores + x) - base);
    sum += weight;
    store(scores + x, weight);
  }
  fade = exp2(splat(before) - base)[0];
  total = total * fade + total_of(sum);
}

void attend_unit(const Problem& p, int64_t index, float* space) {
  const int64_t wide = padded(p), chunk = std::max<int64_t>(1, CHUNK / p.block), width = chunk * p.block;
  float *query = space, *scores = query + p.block * p.dim, *output = scores + p.block * width;
  float *highest = output + p.block * wide, *total = highest + p.block, *fade = total + p.block;
  const Unit unit(p, index, query);
  const float* packed = p.packed + p.group_of(index) * p.key_blocks() * block_size(p);
  std::fill(output, output + unit.rows * wide, 0.0f);
  std::fill(highest, highest + unit.rows, -INFINITY);
  std::fill(total, total + unit.rows, 0.0f);

  for (int64_t at = p.starts[index]; at < p.starts[index + 1]; at += chunk) {
    const int64_t count = std::min(chunk, p.starts[index + 1] - at);
    for (int64_t c = 0; c < count; ++c)
      score(p, unit, query, packed + p.blocks[at + c] * block_size(p), scores + c * p.block, width);
    if (p.blocks[at + count - 1] == unit.row) hide_later(p, unit, scores + (count - 1) * p.block, width);
    for (int64_t r = 0; r < unit.rows; ++r)
      soften(scores + r * width, count * p.block, highest[r], total[r], fade[r]);
    for (int64_t x = 0; x < wide; x += PANEL) {
      Part values[CHUNK / PANEL];
      for (int64_t c = 0; c < count; ++c)
        values[c] = {packed + p.blocks[at + c] * block_size(p) + p.block * (p.dim + x), p.block};
      product<true>(unit.rows, scores, width, values, count, output + x, wide, fade);
    }
  }

  float* to = p.output + index / (p.heads * p.query_blocks) * p.output_strides.batch +
              index / p.query_blocks % p.heads * p.output_strides.head +
              (unit.first - p.offset()) * p.output_strides.row;
  for (int64_t r = 0; r < unit.rows; ++r)
    for (int64_t x = 0; x < p.dim; ++x)
      to[r * p.output_strides.row + x] = total[r] == 0 ? 0 : output[r * wide + x] / total[r];
}

}  // namespace

extern "C" int64_t problem_size() { return sizeof(Problem); }
extern "C" int64_t attend_packed(const Problem* p) { return p->batch * p->groups * p->key_blocks() * block_size(*p); }
extern "C" int64_t attend_space(const Problem* p) { return p->threads * space_of_thread(*p); }

extern "C" void attend(const Problem* p) {
  parallel(p->batch * p->groups * p->key_blocks(), p->threads, [&](int64_t i, int64_t) {
    float* to = p->packed + i * block_size(*p);
    pack_keys(*p, i / p->key_blocks(), i % p->key_blocks(), to);
    pack_values(*p, i / p->key_blocks(), i % p->key_blocks(), to + p->block * p->dim);
  });
  parallel(p->batch * p->heads * p->query_blocks, p->threads, [&](int64_t unit, int64_t thread) {
    attend_unit(*p, unit, p->space + thread * space_of_thread(*p));
  });
}
