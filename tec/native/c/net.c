/* Nets: making them, what they look like from outside, their end. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "runtime.h"

int32_t tec_copy_bytes(void **buffers, int64_t *scalars);
void tec_destroy(tec_net *net);

static void *zeros(int64_t n, size_t bytes, int *good) {
  void *made = calloc((size_t)(n > 0 ? n : 1), bytes);
  *good &= made != NULL;
  return made;
}

static int make_arrays(tec_net *net) {
  const tec_model *m = net->model;
  const tec_table *t = &m->table;
  int good = 1;
  int64_t n_ports = m->n_inputs + m->n_outputs, cells = m->n_nodes; /* a loop's places stand in its node */
  net->ports = zeros(n_ports, sizeof *net->ports, &good);
  net->input_at = zeros(m->n_inputs, sizeof *net->input_at, &good);
  net->output_at = zeros(m->n_outputs, sizeof *net->output_at, &good);
  net->env = zeros(m->exprs.n_env, 8, &good);
  net->bound_env = zeros(m->exprs.n_env, 8, &good);
  net->known = zeros(m->exprs.n_env, 1, &good);
  net->atoms = zeros(t->n_atoms, 8, &good);
  net->products = zeros(t->n_products, 8, &good);
  net->rows = zeros(t->n_rows, 8, &good);
  net->slot_start = zeros(m->n_slots, 8, &good);
  net->offset = zeros(m->n_values, 8, &good);
  net->staged = zeros(m->n_inputs, sizeof *net->staged, &good);
  net->own = zeros(m->n_bases, sizeof *net->own, &good);
  net->base = zeros(m->n_bases, 8, &good);
  net->pointers = zeros(m->n_arguments, 8, &good);
  net->scalars = zeros(m->n_scalars, 8, &good);
  net->steps = zeros(3 * m->n_steps, 8, &good);
  net->cells = zeros(4 * cells, 8, &good);
  net->before = zeros(cells, 8, &good);
  net->states = zeros(m->n_states, sizeof *net->states, &good);
  net->lengths = zeros(m->n_states, 8, &good);
  net->after = zeros(m->n_states, 8, &good);
  net->results = zeros(m->n_outputs, sizeof *net->results, &good);
  return good;
}

static void describe(tec_net *net, const tec_place *p, tec_port *port) {
  (void)net;
  port->name = p->name;
  port->dtype.code = (uint8_t)p->code;
  port->dtype.bits = (uint8_t)p->bits;
  port->dtype.lanes = 1;
  port->ndim = (int32_t)p->ndim;
  port->shape = p->shape;
  port->sizes = p->sizes;
}

static void find_ports(tec_net *net) {
  const tec_model *m = net->model;
  for (int64_t k = 0; k < m->n_inputs; k++)
    if (m->inputs[k].state < 0) {
      describe(net, &m->inputs[k], &net->ports[net->n_inputs]);
      net->input_at[net->n_inputs++] = (int32_t)k;
    }
  for (int64_t k = 0; k < m->n_outputs; k++)
    if (m->outputs[k].state < 0 && !m->outputs[k].check) {
      describe(net, &m->outputs[k], &net->ports[m->n_inputs + net->n_outputs]);
      net->output_at[net->n_outputs++] = (int32_t)k;
    }
}

static void fill_steps(tec_net *net) {
  const tec_model *m = net->model;
  for (int64_t k = 0; k < m->n_steps; k++) {
    tec_code code = m->steps[k].code ? m->steps[k].code : tec_copy_bytes;
    net->steps[3 * k] = (void *)code;
    net->steps[3 * k + 1] = net->pointers + m->steps[k].pointer;
    net->steps[3 * k + 2] = net->scalars + m->steps[k].scalar;
  }
  for (int64_t b = 0; b < m->n_bases; b++)
    if (m->base_weight[b] >= 0) net->base[b] = (int64_t)(net->weights + m->base_weight[b]);
}

static int32_t threads_of(int32_t asked) { return asked > 0 ? asked : tec_default_threads(); }

static int32_t start(tec_net *net, const tec_options *options) {
  const tec_model *m = net->model;
  if (m->magic != TEC_MAGIC) return tec_fail(net->error, TEC_INVALID, "tec_net_create: the model is none of tec's");
  if (m->layout != TEC_LAYOUT) return tec_fail(net->error, TEC_UNSUPPORTED, "tec_net_create: the model has layout %lld, this library reads %d", (long long)m->layout, TEC_LAYOUT);
  tec_options known = {0}; /* a program that was compiled with an older header has fewer members */
  if (options && (options->bytes < offsetof(tec_options, device) || options->bytes > sizeof *options))
    return tec_fail(net->error, TEC_INVALID, "tec_net_create: options.bytes is %zu, sizeof(tec_options) is %zu", options->bytes, sizeof *options);
  if (options) {
    memcpy(&known, options, options->bytes);
    options = &known;
  }
  if (options && (options->threads < 0 || options->capacity < 0))
    return tec_fail(net->error, TEC_INVALID, "tec_net_create: options.threads is %d and options.capacity %lld, neither may be negative", (int)options->threads, (long long)options->capacity);
  int32_t status = tec_check_file(net); /* before anything that lies behind the code is looked at */
  if (!status) status = tec_check_machine(net->error, m->target, m->features, m->n_features, m->feature_names);
  if (!status) status = tec_find_weights(net, options);
  if (status) return status;
  if (!make_arrays(net)) return tec_fail(net->error, TEC_OUT_OF_MEMORY, "there is no memory for the network's tables");
  net->capacity = options && options->capacity ? options->capacity : 64;
  net->threads = threads_of(options ? options->threads : 0);
  tec_grow_pool(net->threads);
  find_ports(net);
  if (m->gpu && (status = m->gpu_api->open(net, options))) return status;
  fill_steps(net);
  net->ready = 1;
  return TEC_OK;
}

static int32_t make(const tec_model *model, const tec_options *options, tec_net **out) {
  tec_net *net = calloc(1, sizeof *net);
  *out = net;
  if (!net) return TEC_OUT_OF_MEMORY;
  net->api = &tec_api_1;
  net->model = model;
  if (pthread_mutex_init(&net->lock, NULL)) {
    free(net);
    *out = NULL;
    return TEC_OUT_OF_MEMORY;
  }
  return start(net, options);
}

/* Of a library for several targets, the first that this machine can run. If it can run none, the text says so of the first and of the last. */
int32_t tec_create(const tec_model *model, const tec_options *options, tec_net **out) {
  char first[ERROR_BYTES / 2];
  int32_t status = make(model, options, out);
  if (status != TEC_UNSUPPORTED || model->magic != TEC_MAGIC || model->layout != TEC_LAYOUT || !model->n_others) return status;
  snprintf(first, sizeof first, "%s", (*out)->error);
  for (int64_t k = 0; k < model->n_others && status == TEC_UNSUPPORTED; k++) {
    tec_destroy(*out);
    status = make(model->others[k], options, out);
  }
  if (status != TEC_UNSUPPORTED) return status;
  char last[ERROR_BYTES / 2];
  snprintf(last, sizeof last, "%s", (*out)->error);
  return tec_fail((*out)->error, status, "%s; and %s", first, last);
}

void tec_destroy(tec_net *net) {
  const tec_model *m = net->model;
  if (net->ready) { /* before that nothing is in them */
    int32_t entered = net->gpu ? m->gpu_api->enter(net) : TEC_OK;
    if (net->gpu) m->gpu_api->wait(net);
    for (int64_t k = 0; k < m->n_inputs; k++) tec_give(net, &net->staged[k]);
    for (int64_t k = 0; k < m->n_bases; k++) tec_give(net, &net->own[k]);
    for (int64_t k = 0; k < m->n_states; k++) {
      tec_give(net, &net->states[k].held[0]);
      tec_give(net, &net->states[k].held[1]);
    }
    for (int64_t k = 0; k < m->n_outputs; k++) tec_give(net, &net->results[k].kept);
    tec_give(net, &net->arena);
    if (net->gpu && !entered) m->gpu_api->leave(net);
  }
  if (net->gpu) m->gpu_api->close(net);
  void *arrays[] = {net->ports, net->input_at, net->output_at, net->env, net->bound_env, net->known, net->atoms, net->products, net->rows, net->slot_start,
                    net->offset, net->staged, net->own, net->base, net->pointers, net->scalars, net->steps, net->cells, net->before, net->states,
                    net->lengths, net->after, net->results, net->host.data};
  for (size_t k = 0; k < sizeof arrays / sizeof *arrays; k++) free(arrays[k]);
  if (net->mapped) munmap(net->mapped, net->mapped_bytes);
  pthread_mutex_destroy(&net->lock);
  free(net);
}

int32_t tec_count(const tec_net *net, int32_t outputs) { return outputs ? net->n_outputs : net->n_inputs; }

const tec_port *tec_port_at(const tec_net *net, int32_t outputs, int32_t index) {
  if (!net->ready || index < 0 || index >= tec_count(net, outputs)) return NULL;
  return &net->ports[outputs ? net->model->n_inputs + index : index];
}

const char *tec_error_text(const tec_net *net) { return net->error; }

static int32_t locked(tec_net *net) {
  pthread_mutex_lock(&net->lock);
  if (net->ready) return TEC_OK;
  return TEC_INVALID; /* the text says why it could not be made */
}

int32_t tec_reset(tec_net *net) {
  int32_t status = locked(net);
  for (int64_t k = 0; !status && k < net->model->n_states; k++) {
    net->lengths[k] = 0;
    net->states[k].filled = 0;
  }
  pthread_mutex_unlock(&net->lock);
  return status;
}

int64_t tec_rows(const tec_net *net) {
  int64_t most = 0;
  tec_net *own = (tec_net *)net;
  if (!locked(own))
    for (int64_t k = 0; k < net->model->n_states; k++)
      if (net->lengths[k] > most) most = net->lengths[k];
  pthread_mutex_unlock(&own->lock);
  return most;
}

static int32_t truncate_rows(tec_net *net, int64_t rows) {
  const tec_model *m = net->model;
  if (!m->n_states) return tec_fail(net->error, TEC_INVALID, "tec_net_truncate: the network has no states");
  for (int64_t k = 0; k < m->n_states; k++) {
    if (m->states[k].axis < 0) return tec_fail(net->error, TEC_INVALID, "tec_net_truncate: state %s has no rows that could be cut off", m->inputs[m->states[k].input].name);
    if (rows < 0 || rows > net->lengths[k])
      return tec_fail(net->error, TEC_INVALID, "tec_net_truncate: %lld rows of state %s are asked for, it has %lld", (long long)rows, m->inputs[m->states[k].input].name, (long long)net->lengths[k]);
  }
  for (int64_t k = 0; k < m->n_states; k++) net->lengths[k] = rows;
  return TEC_OK;
}

int32_t tec_truncate(tec_net *net, int64_t rows) {
  int32_t status = locked(net);
  if (!status) status = truncate_rows(net, rows);
  pthread_mutex_unlock(&net->lock);
  return status;
}

int32_t tec_set_threads(tec_net *net, int32_t threads) {
  int32_t status = locked(net);
  if (!status && threads < 0) status = tec_fail(net->error, TEC_INVALID, "tec_net_threads: %d threads are asked for", (int)threads);
  if (!status) {
    net->threads = threads_of(threads);
    tec_grow_pool(net->threads);
  }
  pthread_mutex_unlock(&net->lock);
  return status;
}

int64_t tec_bytes(const tec_net *net) {
  const tec_model *m = net->model;
  tec_net *own = (tec_net *)net;
  size_t sum = 0;
  if (!locked(own)) {
    sum = net->arena.bytes;
    for (int64_t k = 0; k < m->n_inputs; k++) sum += net->staged[k].bytes;
    for (int64_t k = 0; k < m->n_bases; k++) sum += net->own[k].bytes;
    for (int64_t k = 0; k < m->n_states; k++) sum += net->states[k].held[0].bytes + net->states[k].held[1].bytes;
    for (int64_t k = 0; k < m->n_outputs; k++) sum += net->results[k].kept.bytes;
    if (net->gpu) sum += (size_t)m->gpu_api->held(net);
  }
  pthread_mutex_unlock(&own->lock);
  return (int64_t)sum;
}
