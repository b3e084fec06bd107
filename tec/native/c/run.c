/* A run: inputs are held against their types, sizes bound, addresses filled in, steps run, outputs handed over. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime.h"

#define SIZE_END ((int64_t)1 << 31) /* symbolic sizes are 32-bit numbers */

/* ---- inputs and sizes */

static DLDevice net_device(const tec_net *net) {
  DLDevice device = {net->gpu ? (DLDeviceType)net->device_type : kDLCPU, net->gpu ? net->ordinal : 0};
  return device;
}

static int32_t check_tensor(tec_net *net, const char *what, const tec_place *p, const DLTensor *t, int data) {
  DLDevice device = net_device(net);
  int32_t status = tec_check_tensor(net->error, what, t, p->code, p->bits, p->ndim, data, &device);
  if (!status && data && !tec_is_on_host(t) && !tec_is_compact(t)) return tec_fail(net->error, TEC_INVALID, "%s has strides; a tensor on the device must be compact", what);
  return status;
}

static int32_t check_inputs(tec_net *net, const DLTensor *const *inputs, int32_t n, int data) {
  if (n != net->n_inputs) return tec_fail(net->error, TEC_INVALID, "%d inputs given, the network has %d", (int)n, (int)net->n_inputs);
  if (n && !inputs) return tec_fail(net->error, TEC_INVALID, "the array of inputs is a null pointer");
  for (int32_t k = 0; k < n; k++) {
    const tec_place *p = &net->model->inputs[net->input_at[k]];
    char what[160];
    snprintf(what, sizeof what, "input %d (%.120s)", (int)k, p->name);
    int32_t status = check_tensor(net, what, p, inputs[k], data);
    if (status) return status;
  }
  return TEC_OK;
}

static int32_t wrong_shape(tec_net *net, const char *kind, const tec_place *p, const DLTensor *t) {
  char is[120], wanted[200];
  size_t at = 0;
  tec_shape_text(is, sizeof is, t->shape, t->ndim);
  wanted[0] = 0;
  for (int64_t d = 0; d < p->ndim && at < sizeof wanted - 1; d++)
    at += (size_t)snprintf(wanted + at, sizeof wanted - at, d ? ", %s" : "%s", p->sizes[d]);
  return tec_fail(net->error, TEC_INVALID, "%s %s has shape %s, the network takes (%s)", kind, p->name, is, wanted);
}

static int32_t bind_symbols(tec_net *net, const tec_place *p, const DLTensor *t) {
  const tec_exprs *e = &net->model->exprs;
  for (int64_t d = 0; d < p->ndim; d++) {
    int64_t s = p->symbol[d], n = t->shape[d];
    if (s < 0) continue;
    if (net->known[s] && net->env[s] != n)
      return tec_fail(net->error, TEC_INVALID, "size %s is %lld elsewhere and %lld in dimension %lld of input %s", e->names[s], (long long)net->env[s], (long long)n, (long long)d, p->name);
    if (n < e->least[s] || n >= SIZE_END)
      return tec_fail(net->error, TEC_INVALID, "dimension %lld of input %s, %s, is %lld; it is from %lld to %lld", (long long)d, p->name, e->names[s], (long long)n, (long long)e->least[s], (long long)SIZE_END - 1);
    net->env[s] = n;
    net->known[s] = 1;
  }
  return TEC_OK;
}

/* The sizes, from the states and the inputs' shapes. */
static int32_t find_sizes(tec_net *net, const DLTensor *const *inputs) {
  const tec_model *m = net->model;
  memset(net->env, 0, (size_t)m->exprs.n_env * sizeof *net->env);
  memset(net->known, 0, (size_t)m->exprs.n_env);
  int32_t status = tec_state_sizes(net);
  for (int32_t k = 0; k < net->n_inputs && !status; k++) status = bind_symbols(net, &m->inputs[net->input_at[k]], inputs[k]);
  for (int32_t k = 0; k < net->n_inputs && !status; k++) {
    const tec_place *p = &m->inputs[net->input_at[k]];
    for (int64_t d = 0; d < p->ndim && !status; d++) {
      int64_t n;
      if (!tec_evaluate(&m->exprs, p->expr[d], net->env, net->known, &n) || n != inputs[k]->shape[d]) status = wrong_shape(net, "input", p, inputs[k]);
    }
  }
  if (!status) status = tec_prepare_states(net);
  for (int64_t k = 0; k < m->exprs.n_env && !status; k++)
    if (!net->known[k]) status = tec_fail(net->error, TEC_INVALID, "the inputs do not say what size %s is", m->exprs.names[k]);
  return status ? status : tec_bind_sizes(net);
}

/* ---- memory */

static int64_t bytes_of(const tec_net *net, const tec_place *p) { return net->rows[net->model->value_bytes[p->value]]; }

static int is_readable(const tec_net *net, const tec_place *p, const DLTensor *t) {
  uintptr_t data = (uintptr_t)t->data + t->byte_offset;
  if (!tec_elements(t) || !tec_is_compact(t)) return 0;
  return net->gpu ? tec_is_on_device(net, t) && data % ALIGN == 0 : data % (uintptr_t)(p->bits / 8) == 0;
}

/* Inputs are read where they are if they lie in one piece, at whole elements; on a GPU, if they lie there at a multiple of 64 bytes. */
static int32_t place_inputs(tec_net *net, const DLTensor *const *inputs) {
  const tec_model *m = net->model;
  for (int32_t k = 0; k < net->n_inputs; k++) {
    const tec_place *p = &m->inputs[net->input_at[k]];
    const DLTensor *t = inputs[k];
    if (p->base < 0) continue;
    char *data = (char *)t->data + t->byte_offset;
    if (!is_readable(net, p, t)) {
      block *b = &net->staged[net->input_at[k]];
      int32_t status = tec_take(net, b, (size_t)bytes_of(net, p), p->name);
      if (!status) status = tec_read_tensor(net, b->data, t);
      if (status) return status;
      data = b->data;
    }
    net->base[p->base] = (int64_t)data;
  }
  for (int64_t k = 0; k < m->n_states; k++) {
    const tec_place *p = &m->inputs[m->states[k].input];
    if (p->base >= 0) net->base[p->base] = (int64_t)net->states[k].held[m->states[k].axis >= 0 ? 0 : net->states[k].now].data;
  }
  return TEC_OK;
}

static int32_t check_target(tec_net *net, int32_t k, const tec_place *p, const DLTensor *t, const DLTensor *const *inputs, DLTensor *const *outputs, int32_t n) {
  char what[160];
  snprintf(what, sizeof what, "output %d (%.120s)", (int)k, p->name);
  int32_t status = check_tensor(net, what, p, t, 1);
  if (status) return status;
  for (int64_t d = 0; d < p->ndim; d++)
    if (t->shape[d] != net->rows[p->row[d]]) {
      char is[120], made[120];
      int64_t shape[64];
      for (int64_t j = 0; j < p->ndim; j++) shape[j] = net->rows[p->row[j]];
      tec_shape_text(is, sizeof is, t->shape, p->ndim);
      tec_shape_text(made, sizeof made, shape, p->ndim);
      return tec_fail(net->error, TEC_INVALID, "%s has shape %s, the network makes %s", what, is, made);
    }
  uintptr_t begin, end, b, e;
  DLDevice device = net_device(net);
  tec_extent(t, &begin, &end);
  for (int32_t j = 0; j < net->n_inputs + n; j++) {
    const DLTensor *other = j < net->n_inputs ? inputs[j] : outputs[j - net->n_inputs];
    if (!other || j - net->n_inputs == k) continue;
    if (j >= net->n_inputs && !other->data) continue; /* its own turn says what is wrong with it */
    if (j >= net->n_inputs && tec_check_tensor(NULL, "", other, other->dtype.code, other->dtype.bits, other->ndim, 1, &device)) continue;
    tec_extent(other, &b, &e);
    if (begin < e && b < end) return tec_fail(net->error, TEC_INVALID, "%s shares memory with an input or another output", what);
  }
  return TEC_OK;
}

/* Memory for all outputs: a caller's tensor, a state's other block, or the net's own. */
static int32_t place_outputs(tec_net *net, const DLTensor *const *inputs, DLTensor *const *outputs, int32_t n) {
  const tec_model *m = net->model;
  int32_t shown = 0;
  for (int64_t o = 0; o < m->n_outputs; o++) {
    const tec_place *p = &m->outputs[o];
    result *r = &net->results[o];
    DLTensor *t = NULL;
    if (p->state >= 0 && m->states[p->state].axis >= 0) continue; /* rows of the state */
    int is_shown = p->state < 0 && !p->check;
    if (is_shown && shown < n) t = outputs[shown];
    for (int64_t d = 0; d < p->ndim; d++) r->shape[d] = net->rows[p->row[d]];
    int32_t status = t ? check_target(net, shown, p, t, inputs, outputs, n) : TEC_OK;
    if (status) return status;
    shown += is_shown;
    char *direct = t ? (char *)t->data + t->byte_offset : NULL;
    r->device = net_device(net);
    if (t && tec_is_compact(t) && tec_elements(t) && (uintptr_t)direct % ALIGN == 0 && (!net->gpu || tec_is_on_device(net, t))) {
      r->data = direct;
    } else {
      state *s = p->state >= 0 ? &net->states[p->state] : NULL;
      block *b = s ? &s->held[!s->now] : &r->kept;
      if ((status = tec_take(net, b, (size_t)bytes_of(net, p), p->name))) return status;
      r->data = b->data;
    }
    if (p->base >= 0) net->base[p->base] = (int64_t)r->data;
  }
  for (int64_t b = 0; b < m->n_bases; b++)
    if (m->base_own[b] >= 0) {
      int64_t bytes = net->rows[m->value_bytes[m->base_own[b]]];
      int32_t status = tec_take(net, &net->own[b], (size_t)bytes, "a value");
      if (status) return status;
      net->base[b] = (int64_t)net->own[b].data;
    }
  return TEC_OK;
}

static int32_t take_arena(tec_net *net) {
  int32_t status = tec_take(net, &net->arena, (size_t)(net->arena_bytes ? net->arena_bytes : 1), "what the network works in");
  if (status) return status;
  net->base[0] = (int64_t)net->arena.data;
  return TEC_OK;
}

static void fill_pointers(tec_net *net) {
  const tec_model *m = net->model;
  for (int64_t k = 0; k < m->n_arguments; k++) net->pointers[k] = (void *)tec_address(net, m->argument[k]);
}

/* ---- results */

static int32_t check_hidden(tec_net *net) {
  const tec_model *m = net->model;
  for (int64_t o = 0; o < m->n_outputs; o++) {
    const tec_place *p = &m->outputs[o];
    int64_t bytes = p->check ? bytes_of(net, p) : 0, width = p->bits / 8;
    const void *host = NULL;
    int32_t status = bytes ? tec_read(net, net->results[o].data, (size_t)bytes, &host) : TEC_OK;
    if (status) return status;
    const uint8_t *data = host;
    for (int64_t at = 0; at < bytes; at += width) {
      int any = 0;
      for (int64_t j = 0; j < width; j++) any |= data[at + j];
      if (!any) return tec_fail(net->error, TEC_FAILED, "%s", p->check);
    }
  }
  return TEC_OK;
}

/* Outputs that lie in other values, and caller's tensors that the steps could not write. */
static int32_t hand_over(tec_net *net, DLTensor *const *outputs, int32_t n) {
  const tec_model *m = net->model;
  int32_t shown = 0;
  for (int64_t o = 0; o < m->n_outputs; o++) {
    const tec_place *p = &m->outputs[o];
    result *r = &net->results[o];
    if (p->state >= 0 && m->states[p->state].axis >= 0) continue;
    const void *made = (const void *)tec_address(net, p->value);
    int32_t status = made != r->data && bytes_of(net, p) ? tec_move(net, r->data, made, (size_t)bytes_of(net, p)) : TEC_OK;
    if (status) return status;
    if (p->state >= 0 || p->check) continue;
    DLTensor *t = shown < n ? outputs[shown] : NULL;
    shown++;
    if (!t) continue;
    if (r->data == r->kept.data && (status = tec_write_tensor(net, r->data, t))) return status;
    r->data = (char *)t->data + t->byte_offset;
    r->device = t->device;
  }
  return TEC_OK;
}

static int32_t run(tec_net *net, const DLTensor *const *inputs, int32_t n_inputs, DLTensor *const *outputs, int32_t n_outputs) {
  net->has_run = 0;
  int32_t status = check_inputs(net, inputs, n_inputs, 1);
  if (status) return status;
  if (!outputs) n_outputs = 0;
  if (n_outputs < 0 || n_outputs > net->n_outputs) return tec_fail(net->error, TEC_INVALID, "%d outputs given, the network has %d", (int)n_outputs, (int)net->n_outputs);
  if ((status = find_sizes(net, inputs)) || (status = place_inputs(net, inputs)) || (status = place_outputs(net, inputs, outputs, n_outputs)) || (status = take_arena(net)))
    return status;
  fill_pointers(net);
  if (net->gpu) {
    if (net->is_fresh && (status = net->model->gpu_api->bind(net))) return status;
    net->is_fresh = 0;
    status = tec_run_plan(net);
  } else {
    tec_after_fork();
    tec_use_threads(net->threads);
    status = tec_run_plan(net);
    tec_use_threads(0);
  }
  if (status || (status = hand_over(net, outputs, n_outputs)) || (status = check_hidden(net))) return status;
  tec_advance_states(net);
  net->has_run = 1;
  return TEC_OK;
}

/* On a GPU a run's work is waited for, unless the caller has a stream and nothing of the run is in the host's memory. */
static int32_t run_there(tec_net *net, const DLTensor *const *inputs, int32_t n_inputs, DLTensor *const *outputs, int32_t n_outputs) {
  const tec_gpu_api *gpu = net->model->gpu_api;
  if (!net->gpu) return run(net, inputs, n_inputs, outputs, n_outputs);
  int32_t status = gpu->enter(net);
  if (status) return status;
  net->has_waited = 1;
  status = run(net, inputs, n_inputs, outputs, n_outputs);
  if (status || !net->has_waited || !gpu->is_queued(net)) {
    char text[ERROR_BYTES];
    memcpy(text, net->error, sizeof text);
    int32_t waited = gpu->wait(net);
    if (status) memcpy(net->error, text, sizeof text); /* what failed first */
    if (!status && waited) {
      status = waited;
      net->has_run = 0;
    }
  }
  gpu->leave(net);
  return status;
}

/* ---- calls */

int32_t tec_run(tec_net *net, const DLTensor *const *inputs, int32_t n_inputs, DLTensor *const *outputs, int32_t n_outputs) {
  pthread_mutex_lock(&net->lock);
  int32_t status = TEC_INVALID; /* of a net that could not be made the text says why */
  if (net->ready) {
    net->error[0] = 0;
    status = run_there(net, inputs, n_inputs, outputs, n_outputs);
  }
  pthread_mutex_unlock(&net->lock);
  return status;
}

static int32_t give_result(tec_net *net, int32_t index, DLTensor *t) {
  if (!t) return tec_fail(net->error, TEC_INVALID, "tec_net_result: the tensor is a null pointer");
  if (index < 0 || index >= net->n_outputs) return tec_fail(net->error, TEC_INVALID, "tec_net_result: output %d of %d", (int)index, (int)net->n_outputs);
  if (!net->has_run) return tec_fail(net->error, TEC_INVALID, "tec_net_result: the net has not run, or its last run failed");
  const tec_place *p = &net->model->outputs[net->output_at[index]];
  result *r = &net->results[net->output_at[index]];
  memset(t, 0, sizeof *t);
  t->data = r->data;
  t->device = r->device;
  t->ndim = (int32_t)p->ndim;
  t->dtype.code = (uint8_t)p->code;
  t->dtype.bits = (uint8_t)p->bits;
  t->dtype.lanes = 1;
  t->shape = r->shape;
  return TEC_OK;
}

int32_t tec_result(tec_net *net, int32_t index, DLTensor *t) {
  pthread_mutex_lock(&net->lock);
  int32_t status = net->ready ? give_result(net, index, t) : TEC_INVALID;
  pthread_mutex_unlock(&net->lock);
  return status;
}

static int32_t give_shape(tec_net *net, const DLTensor *const *inputs, int32_t n_inputs, int32_t index, int64_t *shape, int32_t room) {
  int32_t status = check_inputs(net, inputs, n_inputs, 0);
  if (!status && (index < 0 || index >= net->n_outputs)) status = tec_fail(net->error, TEC_INVALID, "tec_net_shape: output %d of %d", (int)index, (int)net->n_outputs);
  if (!status && net->gpu) status = net->model->gpu_api->enter(net); /* states may be made */
  if (status) return status;
  status = find_sizes(net, inputs);
  if (net->gpu) net->model->gpu_api->leave(net);
  if (status) return status;
  const tec_place *p = &net->model->outputs[net->output_at[index]];
  if (room < p->ndim || (p->ndim && !shape)) return tec_fail(net->error, TEC_INVALID, "tec_net_shape: there is room for %d numbers, the output has %lld dimensions", (int)room, (long long)p->ndim);
  for (int64_t d = 0; d < p->ndim; d++) shape[d] = net->rows[p->row[d]];
  return TEC_OK;
}

int32_t tec_shape(tec_net *net, const DLTensor *const *inputs, int32_t n_inputs, int32_t index, int64_t *shape, int32_t room) {
  pthread_mutex_lock(&net->lock);
  int32_t status = net->ready ? give_shape(net, inputs, n_inputs, index, shape, room) : TEC_INVALID;
  pthread_mutex_unlock(&net->lock);
  return status;
}

int32_t tec_create(const tec_model *, const tec_options *, tec_net **);
void tec_destroy(tec_net *);
int32_t tec_reset(tec_net *);
int64_t tec_rows(const tec_net *);
int32_t tec_truncate(tec_net *, int64_t);
int32_t tec_set_threads(tec_net *, int32_t);
int64_t tec_bytes(const tec_net *);
const char *tec_error_text(const tec_net *);
int32_t tec_count(const tec_net *, int32_t);
const tec_port *tec_port_at(const tec_net *, int32_t, int32_t);

static const char *net_target(const tec_net *net) { return net->model->target; }

const tec_api tec_api_1 = {TEC_ABI, tec_create, tec_destroy, tec_run, tec_result, tec_shape, tec_reset, tec_rows, tec_truncate, tec_set_threads, tec_bytes, tec_error_text, tec_count, tec_port_at, net_device, net_target};
