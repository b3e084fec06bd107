/* Draws calls of a library: two networks and a function. hostile SEED COUNT; see test_programs.py. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "cache.h"
#include "cnn.h"
#include "k.h"

static uint64_t state;
static uint32_t draw(uint32_t n) {
  state = state * 6364136223846793005ULL + 1442695040888963407ULL;
  return (uint32_t)(state >> 33) % n;
}

/* Memory of its own for each tensor, as much as its shape and strides reach: what is read or written behind it is seen. */
typedef struct { DLTensor t; int64_t shape[70], strides[70]; char *slab; } made;

static int64_t odd(void) {
  static const int64_t some[] = {0, -1, 1, 2, 3, 10, 12, 13, (int64_t)1 << 31, (int64_t)1 << 40, INT64_MAX, INT64_MIN};
  return some[draw(sizeof some / sizeof *some)];
}

static DLTensor *tensor(made *m, int code, int bits, int rank, const int64_t *shape) {
  memset(m, 0, sizeof *m);
  m->t.device.device_type = kDLCPU;
  m->t.dtype.code = (uint8_t)code, m->t.dtype.bits = (uint8_t)bits, m->t.dtype.lanes = 1;
  m->t.ndim = rank;
  m->t.shape = m->shape;
  int64_t width = bits / 8, total = 1, step = 1;
  for (int d = 0; d < rank; d++) m->shape[d] = shape[d], total *= shape[d];
  int gaps = draw(3) == 0 ? 2 : 1, order[8], n = rank;
  for (int d = 0; d < rank; d++) order[d] = d;
  if (draw(4) == 0)
    while (n > 1) { int k = (int)draw((uint32_t)n--), x = order[k]; order[k] = order[n]; order[n] = x; }
  for (int d = rank - 1; d >= 0; d--) m->strides[order[d]] = step * gaps, step *= shape[order[d]];
  int plain = gaps == 1;
  for (int d = 0; d < rank; d++) plain &= order[d] == d;
  if (!plain || draw(2)) m->t.strides = m->strides;
  size_t lead = draw(4) ? 0 : draw(9), bytes = (size_t)(total * gaps * width);
  if (posix_memalign((void **)&m->slab, 64, bytes + lead ? bytes + lead : 1)) exit(8);
  for (size_t k = 0; k < bytes + lead; k++) m->slab[k] = 0;
  if (code == kDLInt) for (size_t k = 0; k + 8 <= bytes + lead; k += 8) m->slab[k] = (char)draw(draw(20) ? 5 : 100);
  m->t.data = m->slab;
  m->t.byte_offset = lead;
  return &m->t;
}

/* Sizes that no memory has, or that the memory has: of others nobody but the caller can know. */
static int64_t odd_size(void) {
  int64_t n = odd();
  return n > 1 && n < (int64_t)1 << 31 ? 1 : n;
}

static DLTensor *spoiled(made *m) {
  DLTensor *t = &m->t;
  switch (draw(12)) {
    case 0: return NULL;
    case 1: t->data = NULL; break;
    case 2: t->shape = NULL; break;
    case 3: t->ndim = (int32_t)odd(); break;
    case 4: t->dtype.bits = (uint8_t)draw(256); break;
    case 5: t->dtype.code = (uint8_t)draw(20); break;
    case 6: t->dtype.lanes = (uint16_t)draw(5); break;
    case 7: if (t->ndim) m->shape[draw((uint32_t)t->ndim)] = odd_size(); break;
    case 8: t->device.device_type = (DLDeviceType)draw(15); break;
    case 9: if (t->ndim) m->shape[draw((uint32_t)t->ndim)] = (int64_t)1 << (31 + draw(32)); break;
    default: break; /* as it is */
  }
  return t;
}

static void check(int32_t status, const char *text) {
  if (status < 0 || status > 5) abort();
  if (status && !*text) abort();
  if (strlen(text) >= 500) abort();
}

static void one_net(const tec_model *model, int is_cache) {
  tec_options o = {.bytes = draw(8) ? sizeof o : draw(80), .threads = draw(8) ? (int32_t)draw(4) : (int32_t)odd(), .capacity = draw(8) ? draw(5) : odd()};
  if (o.capacity > 1000) o.capacity = 1000;
  if (o.threads > 8) o.threads = 8;
  tec_net *net = NULL;
  int32_t status = tec_net_create(model, draw(6) ? &o : NULL, &net);
  if (status) check(status, tec_net_error(net));
  for (int step = 0; step < 12; step++) {
    int64_t n = 1 + draw(4), in_shape[4] = {n, 3, 12, 12}, ids[2] = {2, 1 + draw(6)}, out_shape[2] = {n, 10};
    made in, out;
    tensor(&in, is_cache ? kDLInt : kDLFloat, is_cache ? 64 : 32, is_cache ? 2 : 4, is_cache ? ids : in_shape);
    if (is_cache) out_shape[0] = 2, out_shape[1] = 4;
    tensor(&out, kDLFloat, 32, 2, out_shape);
    int bad = draw(3) == 0;
    const DLTensor *inputs[2] = {bad ? spoiled(&in) : &in.t, &in.t};
    DLTensor *outputs[2] = {bad && draw(2) ? spoiled(&out) : &out.t, &out.t};
    int32_t n_in = bad && draw(6) == 0 ? (int32_t)draw(3) : 1, n_out = bad && draw(6) == 0 ? (int32_t)draw(3) : 1;
    switch (draw(9)) {
      case 0: status = tec_net_reset(net); break;
      case 1: status = tec_net_truncate(net, bad ? odd() : (int64_t)draw((uint32_t)tec_net_rows(net) + 1)); break;
      case 2: { DLTensor r; status = tec_net_result(net, (int32_t)draw(3) - 1, draw(5) ? &r : NULL);
                break; }
      case 3: { int64_t shape[8]; status = tec_net_shape(net, draw(5) ? inputs : NULL, n_in, (int32_t)draw(3) - 1, shape, (int32_t)draw(8)); break; }
      case 4: status = tec_net_threads(net, bad ? -1 : (int32_t)draw(4)); tec_net_bytes(net); tec_net_device(net); tec_net_target(net); break;
      default: status = tec_net_run(net, draw(12) ? inputs : NULL, n_in, draw(4) ? outputs : NULL, n_out);
    }
    if (status) check(status, tec_net_error(net));
    free(in.slab), free(out.slab);
  }
  tec_net_destroy(net);
}

static void one_call(void) {
  int64_t n = 1 + draw(5), shape[2] = {n, 4};
  made a, b;
  tensor(&a, kDLFloat, 32, 2, shape), tensor(&b, kDLFloat, 32, 2, shape);
  int bad = draw(2);
  const DLTensor *A = bad ? spoiled(&a) : &a.t;
  DLTensor *B = bad && draw(2) ? spoiled(&b) : &b.t;
  tec_error e;
  int32_t status = k_scaled(A, draw(20) ? B : (DLTensor *)A, 2, STREAM draw(5) ? &e : NULL);
  if (status < 0 || status > 5) abort();
  free(a.slab), free(b.slab);
}

int main(int argc, char **argv) {
  long first = argc > 1 ? atol(argv[1]) : 0, count = argc > 2 ? atol(argv[2]) : 200;
  for (long seed = first; seed < first + count; seed++) {
    state = (uint64_t)seed * 0x9E3779B97F4A7C15ULL + 1;
    draw(2);
    one_net(tec_model_cnn, 0);
    one_net(tec_model_cache, 1);
    for (int k = 0; k < 20; k++) one_call();
  }
  puts("done");
  return 0;
}
