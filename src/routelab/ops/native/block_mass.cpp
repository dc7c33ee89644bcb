// Mean attention mass of every query block on every key block from the log-sum-exp of the rows, float32: Eq. 5 of WISE
// (arXiv 2609.27373). The scores of one query block with one key block are all that is held.

#include "blocks.hpp"

namespace {

int64_t space_of_thread(const Problem& p) { return p.block * (p.dim + p.block); }

// The output is [batch, heads, query blocks, key blocks], and zero where nothing is written.
void mass_of_unit(const Problem& p, int64_t index, float* space) {
  float *query = space, *scores = query + p.block * p.dim;
  Unit unit(p, index, query);
  const int64_t batch = index / (p.heads * p.query_blocks);
  unit.rows = std::min(unit.rows, p.lengths[batch] - unit.first);  // the real ones
  if (unit.rows <= 0) return;
  const float* keys = p.packed + p.group_of(index) * p.key_blocks() * p.block * p.dim;
  const float* lse = p.lse + index / p.query_blocks * p.queries + unit.first - p.offset();
  for (int64_t block = 0; block <= unit.row; ++block) {
    score(p, unit, query, keys + block * p.block * p.dim, scores, p.block);
    if (block == unit.row) hide_later(p, unit, scores, p.block);
    Floats sum{};
    for (int64_t r = 0; r < unit.rows; ++r) {
      const Floats base = splat(lse[r] * float(M_LOG2E));
      Floats of_row{};  // of its own, so that the sum of many small numbers keeps its digits
      for (int64_t x = 0; x < p.block; x += LANES) of_row += exp2(load(scores + r * p.block + x) - base);
      sum += of_row;
    }
    p.output[index * p.key_blocks() + block] = total_of(sum) / unit.rows;
  }
}

}  // namespace

extern "C" int64_t mass_packed(const Problem* p) { return p->batch * p->groups * p->key_blocks() * p->block * p->dim; }
extern "C" int64_t mass_space(const Problem* p) { return p->threads * space_of_thread(*p); }

extern "C" void mass(const Problem* p) {
  parallel(p->batch * p->groups * p->key_blocks(), p->threads, [&](int64_t i, int64_t) {
    pack_keys(*p, i / p->key_blocks(), i % p->key_blocks(), p->packed + i * p->block * p->dim);
  });
  parallel(p->batch * p->heads * p->query_blocks, p->threads, [&](int64_t unit, int64_t thread) {
    mass_of_unit(*p, unit, p->space + thread * space_of_thread(*p));
  });
}
