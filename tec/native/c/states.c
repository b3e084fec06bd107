/* What a net remembers from run to run: as tec/runtime/networks/state.py says. */
#include <stdlib.h>
#include <string.h>

#include "runtime.h"

#define FIRST_ROWS 64

static const tec_place *input_of(const tec_net *net, int64_t k) { return &net->model->inputs[net->model->states[k].input]; }

/* The sizes that states give, before the inputs are looked at. */
int32_t tec_state_sizes(tec_net *net) {
  const tec_model *m = net->model;
  for (int64_t k = 0; k < m->n_states; k++) {
    const tec_state *s = &m->states[k];
    if (s->axis >= 0) {
      net->env[s->size] = net->lengths[k];
      net->known[s->size] = 1;
      continue;
    }
    const state *is = &net->states[k];
    const tec_place *p = input_of(net, k);
    for (int64_t d = 0; is->filled && d < p->ndim; d++)
      if (p->symbol[d] >= 0) {
        net->env[p->symbol[d]] = is->shape[is->now][d];
        net->known[p->symbol[d]] = 1;
      }
  }
  return TEC_OK;
}

static int32_t shape_of(tec_net *net, const tec_place *p, int64_t *shape) {
  for (int64_t d = 0; d < p->ndim; d++)
    if (!tec_evaluate(&net->model->exprs, p->expr[d], net->env, net->known, &shape[d]) || shape[d] < 0)
      return tec_fail(net->error, TEC_INVALID, "state %s: the inputs do not say how large dimension %lld is", p->name, (long long)d);
  return TEC_OK;
}

static int bytes_of(const int64_t *shape, int64_t ndim, int64_t width, int64_t *bytes) {
  *bytes = width;
  for (int64_t d = 0; d < ndim; d++)
    if (__builtin_mul_overflow(*bytes, shape[d], bytes)) return 0;
  return 1;
}

static int32_t too_large(tec_net *net, const tec_place *p) {
  return tec_fail(net->error, TEC_OUT_OF_MEMORY, "state %s is larger than any memory", p->name);
}

static int32_t changed(tec_net *net, const tec_place *p, const int64_t *is, const int64_t *wanted) {
  char a[120], b[120];
  tec_shape_text(a, sizeof a, is, p->ndim);
  tec_shape_text(b, sizeof b, wanted, p->ndim);
  return tec_fail(net->error, TEC_INVALID, "state %s has shape %s, a run with these inputs takes %s; tec_net_reset begins anew", p->name, a, b);
}

/* The capacity of the states of a size: as it is or as given, doubled until the rows fit. */
static int64_t capacity_for(const tec_net *net, int64_t size, int64_t rows) {
  const tec_model *m = net->model;
  int64_t capacity = net->capacity;
  for (int64_t k = 0; k < m->n_states; k++) {
    const tec_state *s = &m->states[k];
    if (s->axis >= 0 && s->size == size && net->states[k].held[0].data && net->states[k].shape[0][s->axis] > capacity)
      capacity = net->states[k].shape[0][s->axis];
  }
  while (capacity < rows) capacity *= 2;
  return capacity;
}

/* Memory of a state that grows, with room for the rows after the run and with the rows that there are. */
static int32_t make_room(tec_net *net, int64_t k) {
  const tec_state *s = &net->model->states[k];
  const tec_place *p = input_of(net, k);
  state *is = &net->states[k];
  int64_t shape[64], filled = net->lengths[k], width = p->bits / 8, bytes;
  int32_t status = shape_of(net, p, shape);
  if (status) return status;
  int same = is->held[0].data != NULL;
  for (int64_t d = 0; d < p->ndim; d++) same = same && (d == s->axis || is->shape[0][d] == shape[d]);
  if (is->held[0].data && filled && !same) {
    int64_t kept[64];
    memcpy(kept, is->shape[0], sizeof kept);
    kept[s->axis] = filled;
    return changed(net, p, kept, shape);
  }
  if (!same || is->shape[0][s->axis] < net->after[k]) {
    shape[s->axis] = capacity_for(net, s->size, net->after[k]);
    block made = {0};
    if (!bytes_of(shape, p->ndim, width, &bytes)) return too_large(net, p);
    if ((status = tec_take(net, &made, (size_t)bytes, p->name))) return status;
    if (same && filled) {
      int64_t outer = 1, row = width;
      for (int64_t d = 0; d < s->axis; d++) outer *= shape[d];
      for (int64_t d = s->axis + 1; d < p->ndim; d++) row *= shape[d];
      for (int64_t j = 0; j < outer && !status; j++)
        status = tec_move(net, made.data + j * shape[s->axis] * row, is->held[0].data + j * is->shape[0][s->axis] * row, (size_t)(filled * row));
    }
    if (status) {
      tec_give(net, &made);
      return status;
    }
    tec_give(net, &is->held[0]);
    is->held[0] = made;
    memcpy(is->shape[0], shape, sizeof shape);
  }
  net->env[s->capacity] = is->shape[0][s->axis];
  net->known[s->capacity] = 1;
  return TEC_OK;
}

static int32_t make_other(tec_net *net, int64_t k) {
  const tec_place *p = input_of(net, k);
  state *is = &net->states[k];
  int64_t shape[64], bytes;
  int32_t status = shape_of(net, p, shape);
  if (status) return status;
  if (is->filled) {
    if (memcmp(is->shape[is->now], shape, (size_t)p->ndim * sizeof *shape)) return changed(net, p, is->shape[is->now], shape);
    return TEC_OK;
  }
  if (!bytes_of(shape, p->ndim, p->bits / 8, &bytes)) return too_large(net, p);
  if ((status = tec_take(net, &is->held[is->now], (size_t)bytes, p->name)) || (status = tec_clear(net, is->held[is->now].data, (size_t)bytes))) return status;
  memcpy(is->shape[is->now], shape, sizeof shape);
  return TEC_OK;
}

/* Room for what the run appends. Puts the capacities, and sizes that nothing else gives, into the environment. */
int32_t tec_prepare_states(tec_net *net) {
  const tec_model *m = net->model;
  int32_t status = TEC_OK;
  for (int64_t k = 0; k < m->n_states; k++) {
    const tec_place *p = input_of(net, k);
    for (int64_t d = 0; m->states[k].axis < 0 && d < p->ndim; d++)
      if (p->symbol[d] >= 0 && !net->known[p->symbol[d]] && m->exprs.least[p->symbol[d]] == 0) net->known[p->symbol[d]] = 1;
  }
  for (int64_t k = 0; k < m->n_states; k++)
    if (m->states[k].axis >= 0 && !tec_evaluate(&m->exprs, m->states[k].grown, net->env, net->known, &net->after[k]))
      return tec_fail(net->error, TEC_INVALID, "the inputs do not say how many rows state %s gets", input_of(net, k)->name);
  for (int64_t k = 0; k < m->n_states && !status; k++) status = m->states[k].axis >= 0 ? make_room(net, k) : make_other(net, k);
  return status;
}

/* A run is done: rows are filled, and outputs are the next run's inputs. */
void tec_advance_states(tec_net *net) {
  const tec_model *m = net->model;
  for (int64_t k = 0; k < m->n_states; k++) {
    const tec_state *s = &m->states[k];
    state *is = &net->states[k];
    if (s->axis >= 0) {
      net->lengths[k] = net->after[k];
    } else {
      const tec_place *p = &m->outputs[s->output];
      is->now ^= 1;
      is->filled = 1;
      for (int64_t d = 0; d < p->ndim; d++) is->shape[is->now][d] = net->rows[p->row[d]];
    }
  }
}
