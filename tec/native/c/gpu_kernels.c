/* Functions of kernels on a GPU: their code, loaded once for a device; the host program that launches kernels; tensors in the host's memory.
 *
 * A program is words (tec/native/host_programs.py writes them): an operation, how many words it has, and its operands. Expressions go by their number. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gpu.h"

#define MOST_TENSORS 64
#define MOST_SCRATCH 64
#define MOST_ARGUMENTS 256
#define ARGUMENT_BYTES 4096
#define MOST_FREE 64 /* blocks that wait for another call */

/* Code on a device, or why there is none. */
typedef struct module {
  struct module *next;
  const tec_images *images;
  const tec_driver *driver;
  int32_t ordinal, status;
  tec_loaded code;
  char why[ERROR_BYTES];
} module;

/* Memory that a call has given back. Work on it may be under way in its stream, in which the next call that takes it comes later. */
typedef struct piece {
  struct piece *next;
  const tec_driver *driver;
  int32_t ordinal;
  void *stream, *data;
  size_t bytes;
} piece;

typedef struct {
  const tec_kernel *kernel;
  module *on;
  const int64_t *scalars;
  int64_t *env;
  uint8_t *known;
  void *stream;
  void *address[MOST_TENSORS + MOST_SCRATCH]; /* of tensors, of scratch memory */
  piece *held[MOST_TENSORS + MOST_SCRATCH];
  char *error;
} call;

static module *modules; /* under the lock, as are these: */
static piece *pieces;
static int32_t n_pieces;

static int32_t failed(const call *c, const char *what, int32_t status) {
  const tec_driver *d = c->on->driver;
  return tec_fail(c->error, status == d->no_memory ? TEC_OUT_OF_MEMORY : TEC_FAILED, "%s: %s: %s", c->kernel->name, what, tec_driver_text(d, status));
}

/* ---- code */

static int32_t load(module *m, const char *target) {
  tec_position before;
  int32_t status = tec_find_driver((int32_t)m->images->kind, &m->driver, m->why);
  if (!status) status = tec_check_ordinal(m->driver, m->ordinal, m->why);
  if (status) return status;
  status = tec_to_device(m->driver, m->ordinal, &before);
  if (status) return tec_fail(m->why, TEC_FAILED, "the device: %s", tec_driver_text(m->driver, status));
  status = tec_load_code(m->driver, m->images, target, &m->code, m->why);
  if (status) {
    tec_unload_code(m->driver, m->images, &m->code);
    memset(&m->code, 0, sizeof m->code);
  }
  tec_from_device(m->driver, &before);
  return status;
}

/* That this machine cannot run the code is remembered: what comes behind it in a list of targets is then found without a delay. */
static int32_t open_code(const tec_kernel *k, int32_t ordinal, void **out, char *error) {
  pthread_mutex_lock(&tec_gpu_lock);
  module *m = modules;
  while (m && (m->images != k->images || m->ordinal != ordinal)) m = m->next;
  int32_t status = m ? m->status : TEC_OK;
  if (m && status) tec_fail(error, status, "%s", m->why);
  if (!m) {
    m = calloc(1, sizeof *m);
    if (!m) {
      status = tec_fail(error, TEC_OUT_OF_MEMORY, "there is no memory for the code's tables");
    } else {
      m->images = k->images;
      m->ordinal = ordinal;
      status = m->status = load(m, k->target);
      if (status) tec_fail(error, status, "%s", m->why);
      if (status && status != TEC_UNSUPPORTED) {
        free(m);
      } else {
        m->next = modules;
        modules = m;
      }
    }
  }
  pthread_mutex_unlock(&tec_gpu_lock);
  *out = m;
  return status;
}

/* ---- memory */

/* cuMemFree and hipFree wait for the work that uses the memory. The stream is not waited for: its owner may have ended it. */
static void free_piece(piece *p) {
  p->driver->free(p->data);
  free(p);
}

/* The smallest piece of the stream that has room and is not much larger. */
static piece *found_piece(const call *c, size_t bytes) {
  piece **best = NULL;
  for (piece **at = &pieces; *at; at = &(*at)->next) {
    piece *p = *at;
    if (p->driver != c->on->driver || p->ordinal != c->on->ordinal || p->stream != c->stream || p->bytes < bytes || p->bytes / 4 > bytes + (1 << 20)) continue;
    if (!best || p->bytes < (*best)->bytes) best = at;
  }
  piece *p = best ? *best : NULL;
  if (p) {
    *best = p->next;
    n_pieces--;
  }
  return p;
}

static void free_pieces(const tec_driver *d, int32_t ordinal) {
  for (piece **at = &pieces; *at;) {
    piece *p = *at;
    if (p->driver == d && p->ordinal == ordinal) {
      *at = p->next;
      n_pieces--;
      free_piece(p);
    } else {
      at = &p->next;
    }
  }
}

static int32_t take(call *c, int64_t slot, size_t bytes) {
  const tec_driver *d = c->on->driver;
  bytes = bytes ? (bytes + 255) & ~(size_t)255 : 256;
  pthread_mutex_lock(&tec_gpu_lock);
  piece *p = found_piece(c, bytes);
  pthread_mutex_unlock(&tec_gpu_lock);
  if (!p) {
    p = calloc(1, sizeof *p);
    if (!p) return tec_fail(c->error, TEC_OUT_OF_MEMORY, "%s: there is no memory", c->kernel->name);
    p->driver = d;
    p->ordinal = c->on->ordinal;
    p->stream = c->stream;
    p->bytes = bytes;
    if (d->alloc(&p->data, bytes)) {
      pthread_mutex_lock(&tec_gpu_lock);
      free_pieces(d, c->on->ordinal);
      pthread_mutex_unlock(&tec_gpu_lock);
      if (d->alloc(&p->data, bytes)) {
        size_t there = 0, total = 0;
        d->memory(&there, &total);
        free(p);
        return tec_fail(c->error, TEC_OUT_OF_MEMORY, "%s: there is no memory on the device: %zu bytes are asked for, %zu of %zu are free", c->kernel->name, bytes, there, total);
      }
    }
  }
  c->held[slot] = p;
  c->address[slot] = p->data;
  return TEC_OK;
}

static void give(call *c, int64_t slot) {
  piece *p = c->held[slot];
  c->held[slot] = NULL;
  if (!p) return;
  pthread_mutex_lock(&tec_gpu_lock);
  int full = n_pieces >= MOST_FREE;
  if (!full) {
    p->next = pieces;
    pieces = p;
    n_pieces++;
  }
  pthread_mutex_unlock(&tec_gpu_lock);
  if (full) free_piece(p);
}

/* ---- the program */

static int32_t value(const call *c, int64_t expr, int64_t *out) {
  if (tec_evaluate(&c->kernel->exprs, expr, c->env, c->known, out)) return TEC_OK;
  return tec_fail(c->error, TEC_INVALID, "%s: a size cannot be worked out: a quotient by 0, or a number past 64 bits", c->kernel->name);
}

static int32_t put_map(const call *c, const int64_t *a, uint8_t *arguments) { /* kind, place, slot, type, rank, bytes of an element, swizzle; sizes, strides, box */
  int64_t rank = a[4], sizes[5] = {0}, strides[5] = {0};
  int32_t status = TEC_OK;
  for (int64_t d = 0; d < rank && !status; d++) status = value(c, a[7 + d], &sizes[d]);
  for (int64_t d = 0; d + 1 < rank && !status; d++) status = value(c, a[7 + rank + d], &strides[d]);
  if (status) return status;
  return tec_make_map(c->on->driver, arguments + a[1], a[3], rank, a[5], (int)a[6], (int64_t)c->address[a[2]], sizes, strides, a + 7 + 2 * rank - 1, c->error);
}

/* kernel, may begin early, grid and group and bytes of shared memory (7 expressions), bytes of arguments, number of arguments; of each its words. */
static int32_t launch(call *c, const int64_t *w) {
  const tec_driver *d = c->on->driver;
  const tec_images *g = c->kernel->images;
  int64_t geometry[7], kernel = w[0], n = w[10];
  _Alignas(64) uint8_t arguments[ARGUMENT_BYTES];
  void *params[MOST_ARGUMENTS];
  for (int k = 0; k < 7; k++) {
    int32_t status = value(c, w[2 + k], &geometry[k]);
    if (status) return status;
  }
  for (int k = 0; k < 6; k++)
    if (geometry[k] <= 0) return TEC_OK; /* nothing to do */
  for (int k = 0; k < 7; k++)
    if (geometry[k] > UINT32_MAX) return tec_fail(c->error, TEC_INVALID, "%s: a launch of %s has an extent of %lld", c->kernel->name, g->kernels[kernel], (long long)geometry[k]);
  memset(arguments, 0, (size_t)w[9]);
  const int64_t *a = w + 11;
  for (int64_t k = 0; k < n; k++) {
    uint8_t *to = arguments + a[1];
    int64_t number;
    int32_t status = TEC_OK;
    params[k] = to;
    if (a[0] == ARG_MAP) {
      status = put_map(c, a, arguments);
      a += 7 + 3 * a[4] - 1;
    } else {
      int64_t bits = a[3], size = (bits < 0 ? -bits : bits) / 8;
      if (a[0] == ARG_BUFFER) memcpy(to, &c->address[a[2]], 8);
      else if (a[0] == ARG_SCALAR) memcpy(to, &c->scalars[a[2]], (size_t)size); /* little-endian machines alone: the low bytes come first */
      else if (a[0] == ARG_CONSTANT) memcpy(to, &a[2], (size_t)size);
      else if (!(status = value(c, a[2], &number))) {
        int64_t most = size < 8 ? ((int64_t)1 << (bits < 0 ? -bits - 1 : bits)) - 1 : INT64_MAX;
        if (number > most || number < (bits < 0 ? -most - 1 : size < 8 ? 0 : INT64_MIN))
          status = tec_fail(c->error, TEC_INVALID, "%s: a size is %lld, and its code counts with %lld bits", c->kernel->name, (long long)number, (long long)(8 * size));
        memcpy(to, &number, (size_t)size);
      }
      a += 4;
    }
    if (status) return status;
  }
  int32_t status = geometry[6] ? tec_raise_shared(d, &c->on->code, kernel, geometry[6]) : 0;
  if (!status) status = tec_launch_kernel(d, c->on->code.functions[kernel], geometry, c->stream, params, arguments, (size_t)w[9], (int)w[1]);
  return status ? failed(c, g->kernels[kernel], status) : TEC_OK;
}

static int32_t run(call *c, const int64_t *at, const int64_t *end);

static int32_t loop(call *c, const int64_t *w, const int64_t *end) { /* variable, first, extent; what is done */
  int64_t first, extent;
  int32_t status = value(c, w[1], &first);
  if (!status) status = value(c, w[2], &extent);
  for (int64_t k = 0; !status && k < extent; k++) {
    c->env[w[0]] = first + k;
    c->known[w[0]] = 1;
    status = run(c, w + 3, end);
  }
  return status;
}

static int32_t step(call *c, int64_t op, const int64_t *w, const int64_t *end) {
  int64_t n = 0, slot = c->kernel->n_tensors + w[0];
  int32_t status;
  switch (op) {
    case HOST_LAUNCH: return launch(c, w);
    case HOST_ALLOC: /* slot, elements, bytes of one */
      if ((status = value(c, w[1], &n))) return status;
      if (n < 0) n = 0;
      if (__builtin_mul_overflow(n, w[2], &n)) return tec_fail(c->error, TEC_OUT_OF_MEMORY, "%s: a workspace is past 64 bits", c->kernel->name);
      give(c, slot);
      return take(c, slot, (size_t)n);
    case HOST_FREE: give(c, slot); return TEC_OK;
    case HOST_FOR: return loop(c, w, end);
    case HOST_IF: /* condition, words of what is done if it holds; that, and what is done if not */
      if ((status = value(c, w[0], &n))) return status;
      return n ? run(c, w + 2, w + 2 + w[1]) : run(c, w + 2 + w[1], end);
    default: /* condition, text */
      if ((status = value(c, w[0], &n))) return status;
      return n ? TEC_OK : tec_fail(c->error, TEC_INVALID, "%s: %s", c->kernel->name, c->kernel->asserts[w[1]]);
  }
}

static int32_t run(call *c, const int64_t *at, const int64_t *end) {
  int32_t status = TEC_OK;
  for (; at < end && !status; at += at[1]) status = step(c, at[0], at + 2, at + at[1]);
  return status;
}

/* ---- a call */

static size_t bytes_of(const DLTensor *t) { return (size_t)(tec_elements(t) * (t->dtype.bits / 8)); }

static char *data_of(const DLTensor *t) { return (char *)t->data + t->byte_offset; }

/* Tensors of the host's memory get memory of the device. What is written is read too: a function may write parts of it. */
static int32_t stage(call *c, const DLTensor *const *tensors, int *staged) {
  const tec_kernel *k = c->kernel;
  for (int64_t j = 0; j < k->n_tensors; j++) {
    const DLTensor *t = tensors[j];
    c->address[j] = data_of(t);
    if ((int64_t)t->device.device_type == k->images->kind) continue;
    *staged = 1;
    int32_t status = take(c, j, bytes_of(t));
    if (status) return status;
    status = bytes_of(t) ? tec_copy(c->on->driver, c->address[j], data_of(t), bytes_of(t), TEC_TO_DEVICE, c->stream) : 0;
    if (status) return failed(c, k->tensors[j].name, status);
  }
  return TEC_OK;
}

static int32_t unstage(call *c, const DLTensor *const *tensors) {
  const tec_kernel *k = c->kernel;
  for (int64_t j = 0; j < k->n_tensors; j++) {
    const DLTensor *t = tensors[j];
    if (!c->held[j] || !k->tensors[j].writes || !bytes_of(t)) continue;
    int32_t status = tec_copy(c->on->driver, data_of(t), c->address[j], bytes_of(t), TEC_TO_HOST, c->stream);
    if (status) return failed(c, k->tensors[j].name, status);
  }
  return TEC_OK;
}

static int32_t call_code(const tec_kernel *k, void *code, const DLTensor *const *tensors, const int64_t *scalars, int64_t *env, uint8_t *known, void *stream, char *error) {
  call c = {k, code, scalars, env, known, stream, {0}, {0}, error};
  tec_position before;
  int staged = 0;
  int32_t status = tec_to_device(c.on->driver, c.on->ordinal, &before);
  if (status) return failed(&c, "the device", status);
  status = stage(&c, tensors, &staged);
  if (!status) status = run(&c, k->program, k->program + k->n_program);
  if (!status && staged) status = unstage(&c, tensors);
  if (staged || !stream) {
    int32_t waited = c.on->driver->wait(stream);
    if (waited && !status) status = failed(&c, "the call", waited);
  }
  for (int64_t j = 0; j < k->n_tensors + k->n_scratch; j++) give(&c, j);
  tec_from_device(c.on->driver, &before);
  return status;
}

/* What a library exports as NAME_release. */
__attribute__((visibility("hidden"))) void tec_release_kernels(void) {
  pthread_mutex_lock(&tec_gpu_lock);
  while (modules) {
    module *m = modules;
    tec_position before;
    modules = m->next;
    if (!m->status && !tec_to_device(m->driver, m->ordinal, &before)) {
      free_pieces(m->driver, m->ordinal);
      tec_unload_code(m->driver, m->images, &m->code);
      tec_from_device(m->driver, &before);
    }
    free(m);
  }
  pthread_mutex_unlock(&tec_gpu_lock);
}

__attribute__((visibility("hidden"))) const tec_kernel_gpu_api tec_kernel_gpu_api_1 = {open_code, call_code};
