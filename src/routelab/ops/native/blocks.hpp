// What the kernels of this folder share: the problem they are given, vectors, a product of packed blocks, threads.
//
// Keys and values are packed block by block once, in the order in which the products read them. A product accumulates
// in registers: a tile of ROWS x PANEL numbers, for which each step loads PANEL numbers of the packed side and ROWS of
// the other.

#pragma once

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <system_error>
#include <thread>
#include <vector>

struct Strides {
  int64_t batch, head, row;
};

// Sizes and strides count numbers. Queries are the last of the keys' positions; row r of the grid holds positions
// r * block and on. A unit is one query block of one head, counted through batch rows and heads.
struct Problem {
  const float *query, *key, *value, *lse;
  float *output, *packed, *space;
  const int64_t *starts, *lengths;  // of each unit's key blocks in `blocks`, and one more; of each batch row
  const int32_t* blocks;            // ascending within a unit
  Strides query_strides, key_strides, value_strides, output_strides;
  int64_t batch, heads, groups, queries, keys, dim, block, first_row, query_blocks, threads;
  float scale;  // times log2(e)

  int64_t key_blocks() const { return (keys + block - 1) / block; }
  int64_t offset() const { return keys - queries; }
  int64_t group_of(int64_t unit) const {
    return unit / (heads * query_blocks) * groups + unit / query_blocks % heads / (heads / groups);
  }
};

namespace {

#if defined(__AVX512F__)
constexpr int LANES = 16, ROWS = 12;
#elif defined(__AVX2__)
constexpr int LANES = 8, ROWS = 6;
#else
constexpr int LANES = 4, ROWS = 6;
#endif
constexpr int PANEL = 16, VECTORS = PANEL / LANES;

typedef float Floats __attribute__((vector_size(LANES * 4), aligned(4), may_alias));
typedef int32_t Ints __attribute__((vector_size(LANES * 4), aligned(4), may_alias));

inline Floats load(const float* from) { return *reinterpret_cast<const Floats*>(from); }
inline void store(float* to, Floats value) { *reinterpret_cast<Floats*>(to) = value; }
inline Floats splat(float value) { return value - Floats{}; }
inline float total_of(Floats value) {
  float sum = 0;
  for (int lane = 0; lane < LANES; ++lane) sum += value[lane];
  return sum;
}

// 2^x to 2e-7, zero below 2^-126, infinite from 2^128 on, NaN for NaN: 2^round(x) from its bits, 2^rest from its Taylor
// series.
inline Floats exp2(Floats x) {
  const Floats lowest = splat(-126.0f), highest = splat(128.0f), rounding = splat(12582912.0f);  // 1.5 * 2^23
  const Ints vanished = x < lowest;
  x = vanished ? lowest : x > highest ? highest : x;
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
  for (; rows >= R; rows -= R, a += R * a_row, c += R * c_row, fade += ADD ? R : 0)
    tile<R, ADD>(a, a_row, parts, count, c, c_row, fade);
  if constexpr (R > 1)
    if (rows > 0) product<ADD, R - 1>(rows, a, a_row, parts, count, c, c_row, fade);
}

// A key block as [block / PANEL, dim, PANEL]; zero beyond the last key.
void pack_keys(const Problem& p, int64_t group, int64_t block, float* to) {
  const float* key = p.key + group / p.groups * p.key_strides.batch + group % p.groups * p.key_strides.head;
  const int64_t first = block * p.block;
  std::memset(to, 0, sizeof(float) * p.block * p.dim);
  for (int64_t j = 0; j < std::min(p.block, p.keys - first); ++j) {
    const float* from = key + (first + j) * p.key_strides.row;
    float* column = to + j / PANEL * PANEL * p.dim + j % PANEL;
    for (int64_t x = 0; x < p.dim; ++x) column[x * PANEL] = from[x];
  }
}

// The positions of a unit, and its queries times the scale, [rows, dim].
struct Unit {
  int64_t row, first, rows;

  Unit(const Problem& p, int64_t unit, float* query) {
    row = p.first_row + unit % p.query_blocks;
    first = std::max(row * p.block, p.offset());
    rows = std::min((row + 1) * p.block, p.keys) - first;
    const float* from = p.query + unit / (p.heads * p.query_blocks) * p.query_strides.batch +
                        unit / p.query_blocks % p.heads * p.query_strides.head +
                        (first - p.offset()) * p.query_strides.row;
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t x = 0; x < p.dim; ++x) query[r * p.dim + x] = from[r * p.query_strides.row + x] * p.scale;
  }
};

// Scores of a unit's rows with one key block, packed by pack_keys, to base 2.
void score(const Problem& p, const Unit& unit, const float* query, const float* keys, float* scores, int64_t width) {
  for (int64_t x = 0; x < p.block; x += PANEL) {
    const Part part{keys + x * p.dim, p.dim};
    product<false>(unit.rows, query, p.dim, &part, 1, scores + x, width, nullptr);
  }
}

// Minus infinity for keys later than the query, in the scores of the block on the diagonal.
void hide_later(const Problem& p, const Unit& unit, float* scores, int64_t width) {
  for (int64_t r = 0; r < unit.rows; ++r)
    std::fill(scores + r * width + unit.first - unit.row * p.block + r + 1, scores + r * width + p.block, -INFINITY);
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
