/* Networks whose steps are launches on a GPU: code and weights on a device, once for all nets of a library; memory, copies and launches in a net's stream.
 *
 * tec/native/gpu_tables.py lays the launches out. Addresses are written into a launch's arguments when it is queued, so that loops may move values. */
#include <stdlib.h>
#include <string.h>

#include "gpu.h"

/* Code and weights of a model on a device. */
typedef struct shared {
  struct shared *next;
  const tec_model *model;
  int32_t ordinal;
  int64_t users;
  void *weights;
  tec_loaded code;
} shared;

struct tec_gpu_net {
  const tec_driver *driver;
  shared *on;
  tec_position before;         /* what the caller's thread had as its device */
  void *stream;
  int32_t own_stream;
  block arguments, scratch;
  int64_t *scratch_at, *geometry, *map_of, *arguments_bytes;
  void **params;               /* of the launch that is being queued */
};

static shared *all; /* of this library, under the lock */

static int32_t failed(tec_net *net, const char *what, int32_t status) {
  const tec_driver *d = net->gpu->driver;
  return tec_fail(net->error, status == d->no_memory ? TEC_OUT_OF_MEMORY : TEC_FAILED, "%s: %s", what, tec_driver_text(d, status));
}

/* ---- code and weights */

static void unload(const tec_driver *d, shared *s) {
  tec_unload_code(d, &s->model->gpu->code, &s->code);
  if (s->weights) d->free(s->weights);
  free(s);
}

static int32_t load_weights(tec_net *net, shared *s) {
  const tec_model *m = net->model;
  const tec_driver *d = net->gpu->driver;
  size_t wanted = (size_t)m->weights_bytes, there = 0, total = 0;
  if (!wanted) return TEC_OK;
  if (!d->memory(&there, &total) && there < wanted)
    return tec_fail(net->error, TEC_OUT_OF_MEMORY, "the weights have %zu bytes, and of the device's %zu bytes %zu are free", wanted, total, there);
  int32_t status = d->alloc(&s->weights, wanted);
  if (!status) status = tec_copy_now(d, s->weights, net->weights, wanted);
  return status ? failed(net, "the weights", status) : TEC_OK;
}

static int32_t find_shared(tec_net *net, int32_t ordinal) {
  shared *s = all;
  while (s && (s->model != net->model || s->ordinal != ordinal)) s = s->next;
  if (!s) {
    s = calloc(1, sizeof *s);
    if (!s) return tec_fail(net->error, TEC_OUT_OF_MEMORY, "there is no memory for the network's tables");
    s->model = net->model;
    s->ordinal = ordinal;
    int32_t status = tec_load_code(net->gpu->driver, &net->model->gpu->code, net->model->target, &s->code, net->error);
    if (!status) status = load_weights(net, s);
    if (status) {
      unload(net->gpu->driver, s);
      return status;
    }
    s->next = all;
    all = s;
  }
  s->users++;
  net->gpu->on = s;
  return TEC_OK;
}

/* ---- a net */

static int32_t enter(tec_net *net) {
  int32_t status = tec_to_device(net->gpu->driver, net->ordinal, &net->gpu->before);
  return status ? failed(net, "the device", status) : TEC_OK;
}

static void leave(tec_net *net) { tec_from_device(net->gpu->driver, &net->gpu->before); }

static int make_arrays(tec_net *net) {
  const tec_gpu *g = net->model->gpu;
  tec_gpu_net *n = net->gpu;
  int64_t most = 1;
  for (int64_t k = 0; k < g->n_launches; k++)
    if (g->launches[k].n_offsets > most) most = g->launches[k].n_offsets;
  n->scratch_at = calloc((size_t)g->n_scratch + 1, 8);
  n->geometry = calloc((size_t)g->n_launches * 7 + 1, 8);
  n->map_of = calloc((size_t)g->n_maps + 1, 8);
  n->params = calloc((size_t)most, sizeof *n->params);
  return n->scratch_at && n->geometry && n->map_of && n->params && tec_grow(&n->arguments, (size_t)g->arguments_bytes + 8);
}

static int32_t open_net(tec_net *net, const tec_options *options) {
  tec_gpu_net *n = net->gpu = calloc(1, sizeof *n);
  if (!n) return tec_fail(net->error, TEC_OUT_OF_MEMORY, "there is no memory for the network's tables");
  int32_t ordinal = options ? options->device : 0, status;
  net->device_type = (int32_t)net->model->gpu->code.kind;
  net->ordinal = ordinal;
  pthread_mutex_lock(&tec_gpu_lock);
  status = tec_find_driver(net->device_type, &n->driver, net->error);
  if (!status) status = tec_check_ordinal(n->driver, ordinal, net->error);
  if (!status && !(status = enter(net))) {
    status = find_shared(net, ordinal);
    if (!status && !make_arrays(net)) status = tec_fail(net->error, TEC_OUT_OF_MEMORY, "there is no memory for the network's tables");
    n->stream = options ? options->stream : NULL;
    n->own_stream = !n->stream;
    if (!status && n->own_stream) {
      int32_t made = n->driver->stream(&n->stream, 0); /* one that waits for the default stream, in which callers may have worked */
      if (made) status = failed(net, "a stream", made);
    }
    leave(net);
  }
  pthread_mutex_unlock(&tec_gpu_lock);
  if (!status) net->weights = n->on->weights;
  return status;
}

static void close_net(tec_net *net) {
  tec_gpu_net *n = net->gpu;
  if (!n) return;
  if (n->on && !enter(net)) {
    n->driver->wait(n->stream);
    if (n->own_stream && n->stream) n->driver->end_stream(n->stream);
    if (n->scratch.data) n->driver->free(n->scratch.data);
    pthread_mutex_lock(&tec_gpu_lock);
    if (--n->on->users == 0) {
      shared **at = &all;
      while (*at != n->on) at = &(*at)->next;
      *at = n->on->next;
      unload(n->driver, n->on);
    }
    pthread_mutex_unlock(&tec_gpu_lock);
    leave(net);
  }
  free(n->arguments.data);
  free(n->scratch_at);
  free(n->geometry);
  free(n->map_of);
  free(n->params);
  free(n);
  net->gpu = NULL;
}

/* ---- memory */

static int32_t take(tec_net *net, block *b, size_t bytes) {
  const tec_driver *d = net->gpu->driver;
  if (b->data && b->bytes >= bytes) return TEC_OK;
  if (b->data) {
    d->wait(net->gpu->stream); /* work on it may be under way */
    d->free(b->data);
  }
  b->data = NULL;
  b->bytes = 0;
  void *made = NULL;
  if (d->alloc(&made, bytes ? bytes : 1)) {
    size_t there = 0, total = 0;
    d->memory(&there, &total);
    return tec_fail(net->error, TEC_OUT_OF_MEMORY, "there is no memory on the device: %zu bytes are asked for, %zu of %zu are free", bytes, there, total);
  }
  b->data = made;
  b->bytes = bytes;
  return TEC_OK;
}

static void give(tec_net *net, block *b) {
  if (b->data) net->gpu->driver->free(b->data);
  b->data = NULL;
  b->bytes = 0;
}

static int32_t copy(tec_net *net, void *to, const void *from, size_t bytes, int32_t way) {
  if (!bytes) return TEC_OK;
  int32_t status = tec_copy(net->gpu->driver, to, from, bytes, way, net->gpu->stream);
  return status ? failed(net, "a copy", status) : TEC_OK;
}

static int32_t zero(tec_net *net, void *at, size_t bytes) {
  if (!bytes) return TEC_OK;
  int32_t status = net->gpu->driver->set(at, 0, bytes, net->gpu->stream);
  return status ? failed(net, "clearing memory", status) : TEC_OK;
}

static int32_t wait(tec_net *net) {
  int32_t status = net->gpu->driver->wait(net->gpu->stream);
  return status ? failed(net, "the run", status) : TEC_OK;
}

/* ---- launches */

/* What new sizes change: geometry, numbers among the arguments, scratch memory. */
static int32_t bind(tec_net *net) {
  const tec_gpu *g = net->model->gpu;
  tec_gpu_net *n = net->gpu;
  for (int64_t k = 0; k < 7 * g->n_launches; k++) n->geometry[k] = net->rows[g->geometry[k]];
  for (int64_t k = 0; k < g->n_numbers; k++) {
    const int64_t *at = g->numbers + 3 * k; /* little-endian machines alone: the low bytes come first */
    memcpy(n->arguments.data + at[0], &net->rows[at[2]], (size_t)at[1]);
  }
  int64_t most = 0;
  for (int64_t call = 0; call < g->n_scratch_calls; call++) {
    int64_t end = 0;
    for (int64_t k = g->scratch_begin[call]; k < g->scratch_begin[call + 1]; k++) {
      n->scratch_at[k] = end;
      end += (net->rows[g->scratch_row[k]] + 255) & -(int64_t)256;
    }
    if (end > most) most = end;
  }
  memset(n->map_of, 0, (size_t)g->n_maps * 8);
  return take(net, &n->scratch, (size_t)most);
}

static int64_t address(const tec_net *net, int64_t of) {
  int64_t arguments = net->model->n_arguments;
  return of < arguments ? (int64_t)net->pointers[of] : (int64_t)net->gpu->scratch.data + net->gpu->scratch_at[of - arguments];
}

static int32_t make_map(tec_net *net, int64_t k) {
  const tec_map *m = &net->model->gpu->maps[k];
  tec_gpu_net *n = net->gpu;
  int64_t at = address(net, m->address), sizes[5] = {0}, strides[5] = {0};
  if (n->map_of[k] == at) return TEC_OK;
  for (int64_t d = 0; d < m->rank; d++) {
    sizes[d] = net->rows[m->size[d]];
    if (d + 1 < m->rank) strides[d] = net->rows[m->stride[d]];
  }
  int32_t status = tec_make_map(n->driver, n->arguments.data + m->begin, m->type, m->rank, m->item_bytes, (int)m->swizzle, at, sizes, strides, m->box, net->error);
  if (!status) n->map_of[k] = at;
  return status;
}

static int32_t launch(tec_net *net, int64_t k) {
  const tec_gpu *g = net->model->gpu;
  tec_gpu_net *n = net->gpu;
  const tec_launch *l = &g->launches[k];
  const int64_t *geometry = n->geometry + 7 * k;
  for (int j = 0; j < 6; j++)
    if (geometry[j] <= 0) return TEC_OK; /* nothing to do */
  for (int64_t j = g->pointer_begin[k]; j < g->pointer_begin[k + 1]; j++) {
    int64_t at = address(net, g->pointer_of[j]);
    memcpy(n->arguments.data + g->pointer_at[j], &at, 8);
  }
  for (int64_t j = g->map_begin[k]; j < g->map_begin[k + 1]; j++) {
    int32_t status = make_map(net, j);
    if (status) return status;
  }
  if (geometry[6]) {
    int32_t status = tec_raise_shared(n->driver, &n->on->code, l->kernel, geometry[6]);
    if (status) return failed(net, g->code.kernels[l->kernel], status);
  }
  for (int64_t j = 0; j < l->n_offsets; j++) n->params[j] = n->arguments.data + l->begin + l->offsets[j];
  int32_t status = tec_launch_kernel(n->driver, n->on->code.functions[l->kernel], geometry, n->stream, n->params, n->arguments.data + l->begin, (size_t)l->bytes, (int)l->early);
  return status ? failed(net, g->code.kernels[l->kernel], status) : TEC_OK;
}

static int32_t run_steps(tec_net *net, int64_t first, int64_t count) {
  const tec_model *m = net->model;
  const tec_gpu *g = m->gpu;
  for (int64_t k = first; k < first + count; k++) {
    if (g->copies[k]) {
      void *const *p = net->pointers + m->steps[k].pointer;
      int32_t status = p[0] == p[1] ? TEC_OK : copy(net, p[0], p[1], (size_t)net->scalars[m->steps[k].scalar], TEC_WITHIN);
      if (status) return status;
    }
    for (int64_t j = g->step_begin[k]; j < g->step_begin[k + 1]; j++) {
      int32_t status = launch(net, j);
      if (status) return status;
    }
  }
  return TEC_OK;
}

static int32_t is_queued(const tec_net *net) { return !net->gpu->own_stream; }

static int64_t held(const tec_net *net) { return (int64_t)net->gpu->scratch.bytes; }

__attribute__((visibility("hidden"))) const tec_gpu_api tec_gpu_api_1 = {open_net, close_net, enter, leave, take, give, copy, zero, wait, bind, run_steps, is_queued, held};
