// Attention inside a block layout on a CPU, float32: softmax(scale Q K^T + M + R) V, Eq. 8 of WISE (arXiv 2609.27373).
//
// A unit is one query block of one head. Keys and values are packed block by block once, in the order in which the
// products read them; then every unit goes through its own key blocks, CHUNK keys at a time, with a running softmax.
// Both products accumulate in registers: a tile of ROWS x PANEL numbers, for which each step loads PANEL numbers of the
// packed side and ROWS of the other.

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <system_error>
#include <thread>
#include <vector>

namespace {

#if defined(__AVX512F__)
constexpr int LANES = 16, ROWS = 12;
#elif defined(__AVX2__)
constexpr int LANES = 8, ROWS = 6;
#else
constexpr int LANES = 4, ROWS = 6;
#endif
constexpr int PANEL = 16, VECTORS = PANEL / LANES;
constexpr int CHUNK = 512;  // one block of each row of scores: these, and what is read beside them, stay in the cache

typedef float Floats __attribute__((vector_size(LANES * 4), aligned(4), may_alias));
typedef int32_t Ints __attribute__((vector_size(LANES * 4), aligned(4), may_alias));

inline Floats load(const float* from) { return *reinterpret_cast<const Floats*>(from); }
inline void store(float* to, Floats value) { *reinterpret_cast<Floats*>(to) = value; }
inline Floats splat(float value) { return value - Floats{}; }

// 2^x to 2e-7, zero below 2^-126, NaN for NaN: 2^round(x) from its bits, 2^rest from its Taylor series.
inline Floats exp2(Floats x) {
  const Floats lowest = splat(-126.0f), rounding = splat(12582912.0f);  // 1.5 * 2^23
  const Ints vanished = x < lowest;
  x = vanished ? lowest : x;
  const Floats whole = (x + rounding) - rounding, rest = x - whole;
  Floats series = splat(1.5403530393381610e-4f);
  series = series * rest + splat(1.3333558146428443e-3f);
  series = series * rest + splat(9.6181291076284772e-3f);
  series = series * rest + splat(5.5504108664821580e-2f);
  series = series * rest + splat(2.4022650695910071e-1f);
  series = series * rest + splat(6.9314718055994531e-1f);
  series = series * rest + splat(1.0f);
  const Ints bits = (__builtin_convertvector(whole, Ints) + 127) << 23;
  Floats power;
  std::memcpy(&power, &bits, sizeof power);
  return vanished ? Floats{} : series * power;
}

// Rows of the right side of a product, packed: [depth, PANEL].
struct Part {
  const float* numbers;
  int64_t depth;
};

// One tile: c = a b, or fade * c + a b. b lies in parts one behind the other, a's columns follow them.
template <int R, bool ADD>
inline void tile(const float* a, int64_t a_row, const Part* parts, int64_t count, float* c, int64_t c_row,
                 const float* fade) {
  Floats sum[R][VECTORS];
  for (int r = 0; r < R; ++r)
    for (int v = 0; v < VECTORS; ++v)
      sum[r][v] = ADD ? load(c + r * c_row + v * LANES) * splat(fade[r]) : Floats{};
  for (int64_t i = 0; i < count; ++i) {
    const float* b = parts[i].numbers;
    for (int64_t k = 0; k < parts[i].depth; ++k) {
      Floats right[VECTORS];
      for (int v = 0; v < VECTORS; ++v) right[v] = load(b + k * PANEL + v * LANES);
      for (int r = 0; r < R; ++r) {
        const Floats left = splat(a[r * a_row + k]);
        for (int v = 0; v < VECTORS; ++v) sum[r][v] += left * right[v];
      }
    }
    a += parts[i].depth;
  }
  for (int r = 0; r < R; ++r)
    for (int v = 0; v < VECTORS; ++v) store(c + r * c_row + v * LANES, sum[r][v]);
}

template <bool ADD, int R = ROWS>
void product(int64_t rows, const float* a, int64_t a_row, const Part* parts, int64_t count, float* c, int64_t c_row,
             const float* fade) {
  for (; rows >= R; rows -= R, a += R * a_row, c += R * c_row, fade += R)
    tile<R, ADD>(a, a_row, parts, count, c, c_row, fade);
  if constexpr (R > 1)
    if (rows > 0) product<ADD, R - 1>(rows, a, a_row, parts, count, c, c_row, fade);
}

// f(i, thread) for every i below count; a thread that the system refuses leaves its share to the others.
template <class F>
void parallel(int64_t count, int64_t threads, F f) {
  std::atomic<int64_t> next{0};
  auto work = [&](int64_t thread) {
    for (int64_t i; (i = next++) < count;) f(i, thread);
  };
  std::vector<std::thread> others;
  try {
    for (int64_t thread = 1; thread < std::min(threads, count); ++thread) others.emplace_back(work, thread);
  } catch (const std::system_error&) {
  }
  work(0);
  for (auto& other : others) other.join();
}

}  // namespace

extern "C" {

struct Strides {
  int64_t batch, head, row;
};

// Sizes count numbers. Queries are the last of the keys' positions; row r of the grid holds positions r * block on.
struct Problem {
  const float *query, *key, *value;
  float *output, *packed, *space;
  const int64_t* starts;  // where each unit's key blocks begin in `blocks`; one more than there are units
  const int32_t* blocks;  // ascending within a unit
  Strides query_strides, key_strides, value_strides, output_strides;
  int64_t batch, heads, groups, queries, keys, dim, block, first_row, query_blocks, threads;
  float scale;  // times log2(e)
};

int64_t padded(const Problem* p) { return (p->dim + PANEL - 1) / PANEL * PANEL; }

int64_t packed_size(const Problem* p) {
  return p->batch * p->groups * ((p->keys + p->block - 1) / p->block) * p->block * (p->dim + padded(p));
}

int64_t space_size(const Problem* p) {
  return p->threads * p->block * (p->dim + std::max<int64_t>(CHUNK, p->block) + padded(p) + 3);
}

}  // extern "C"

namespace {

// A key block as [block / PANEL, dim, PANEL], its values as [padded / PANEL, block, PANEL]; zero beyond the last key.
void pack(const Problem& p, int64_t index, float* to) {
  const int64_t key_blocks = (p.keys + p.block - 1) / p.block, wide = padded(&p);
  const int64_t head = index / key_blocks, first = index % key_blocks * p.block;
  const int64_t stored = std::min(p.block, p.keys - first);
  const float* key = p.key + head / p.groups * p.key_strides.batch + head % p.groups * p.key_strides.head;
  const float* value = p.value + head / p.groups * p.value_strides.batch + head % p.groups * p.value_strides.head;
  std::memset(to, 0, sizeof(float) * p.block * (p.dim + wide));
  for (int64_t j = 0; j < stored; ++j) {
    const float* from = key + (first + j) * p.key_strides.row;
    float* column = to + j / PANEL * PANEL * p.dim + j % PANEL;
    for (int64_t x = 0; x < p.dim; ++x) column[x * PANEL] = from[x];
  }
  to += p.block * p.dim;
  for (int64_t j = 0; j < stored; ++j) {
    const float* from = value + (first + j) * p.value_strides.row;
    for (int64_t x = 0; x < p.dim; x += PANEL)
      std::memcpy(to + x * p.block + j * PANEL, from + x, sizeof(float) * std::min<int64_t>(PANEL, p.dim - x));
  }
}

// One chunk of the running softmax: scores to weights, and what earlier chunks fade by.
void soften(float* scores, int64_t count, float& highest, float& total, float& fade) {
  Floats best = load(scores), sum{};
  for (int64_t x = LANES; x < count; x += LANES) {
    const Floats here = load(scores + x);
    best = here > best ? here : best;
  }
  const float before = highest;
  for (int lane = 0; lane < LANES; ++lane) highest = std::max(highest, best[lane]);
  const Floats base = splat(highest);
  for (int64_t x = 0; x < count; x += LANES) {
    const Floats weight = exp2(load(scores + x) - base);
    sum += weight;
    store(scores + x, weight);
  }
  fade = exp2(splat(before) - base)[0];
  total *= fade;
  for (int lane = 0; lane < LANES; ++lane) total += sum[lane];
}

void attend_unit(const Problem& p, int64_t unit, float* space) {
  const int64_t wide = padded(&p), chunk = std::max<int64_t>(1, CHUNK / p.block), width = chunk * p.block;
  const int64_t batch = unit / (p.heads * p.query_blocks), head = unit / p.query_blocks % p.heads;
  const int64_t row = p.first_row + unit % p.query_blocks, offset = p.keys - p.queries;
  const int64_t first = std::max(row * p.block, offset), rows = std::min((row + 1) * p.block, p.keys) - first;
  const int64_t block_size = p.block * (p.dim + wide), key_blocks = (p.keys + p.block - 1) / p.block;
  const float* packed = p.packed + (batch * p.groups + head / (p.heads / p.groups)) * key_blocks * block_size;

  float *query = space, *scores = query + p.block * p.dim, *output = scores + p.block * width;
  float *highest = output + p.block * wide, *total = highest + p.block, *fade = total + p.block;
  const float* from = p.query + batch * p.query_strides.batch + head * p.query_strides.head;
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t x = 0; x < p.dim; ++x)
      query[r * p.dim + x] = from[(first - offset + r) * p.query_strides.row + x] * p.scale;
  std::fill(output, output + rows * wide, 0.0f);
  std::fill(highest, highest + rows, -INFINITY);
  std::fill(total, total + rows, 0.0f);

  for (int64_t at = p.starts[unit]; at < p.starts[unit + 1]; at += chunk) {
    const int64_t count = std::min(chunk, p.starts[unit + 1] - at);
    for (int64_t c = 0; c < count; ++c)
      for (int64_t x = 0; x < p.block; x += PANEL) {
        const Part keys{packed + p.blocks[at + c] * block_size + x * p.dim, p.dim};
        product<false>(rows, query, p.dim, &keys, 1, scores + c * p.block + x, width, fade);
      }
    if (p.blocks[at + count - 1] == row)  // the block on the diagonal, which is the last
      for (int64_t r = 0; r < rows; ++r) {
        float* later = scores + r * width + (count - 1) * p.block;
        std::fill(later + first - row * p.block + r + 1, later + p.block, -INFINITY);
      }
    for (int64_t r = 0; r < rows; ++r)
      soften(scores + r * width, count * p.block, highest[r], total[r], fade[r]);
    for (int64_t x = 0; x < wide; x += PANEL) {
      Part values[CHUNK];
      for (int64_t c = 0; c < count; ++c)
        values[c] = {packed + p.blocks[at + c] * block_size + p.block * (p.dim + x), p.block};
      product<true>(rows, scores, width, values, count, output + x, wide, fade);
    }
  }

  float* to = p.output + batch * p.output_strides.batch + head * p.output_strides.head;
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t x = 0; x < p.dim; ++x)
      to[(first - offset + r) * p.output_strides.row + x] = total[r] == 0 ? 0 : output[r * wide + x] / total[r];
}

}  // namespace

extern "C" void attend(const Problem* p) {
  const int64_t block_size = p->block * (p->dim + padded(p));
  const int64_t blocks = packed_size(p) / block_size, space = space_size(p) / p->threads;
  parallel(blocks, p->threads, [&](int64_t i, int64_t) { pack(*p, i, p->packed + i * block_size); });
  parallel(p->batch * p->heads * p->query_blocks, p->threads,
           [&](int64_t unit, int64_t thread) { attend_unit(*p, unit, p->space + thread * space); });
}
