/* Runs a network's steps; loops and branches as tec/runtime/networks/host_steps.py says. */
#include <string.h>

#include "runtime.h"

#define STEP_WORDS 3
#define MOST_TRIPS ((int64_t)1 << 31)

int64_t tec_address(const tec_net *net, int64_t value) { return net->offset[value] + net->base[net->model->value_base[value]]; }

static int32_t failed(tec_net *net, int64_t answer, int64_t first) {
  const tec_step *s = &net->model->steps[first + (answer >> 32) - 1];
  int32_t status = (int32_t)(uint32_t)answer;
  if (status > 0 && status <= s->n_asserts) return tec_fail(net->error, TEC_FAILED, "%s: %s", s->name, s->asserts[status - 1]);
  if (status == -1) return tec_fail(net->error, TEC_OUT_OF_MEMORY, "%s: no memory for the function's workspace", s->name);
  if (status == -2)
    return tec_fail(net->error, TEC_UNSUPPORTED, "%s: the system does not let this process use the processor's tile registers (AMX)", s->name);
  return tec_fail(net->error, TEC_FAILED, "%s: assertion %d in the compiled function failed", s->name, (int)status - 1);
}

static int32_t stretch(tec_net *net, int64_t first, int64_t count) {
  if (net->gpu) return net->model->gpu_api->steps(net, first, count);
  int64_t answer = tec_run_steps(net->steps + STEP_WORDS * first, count);
  return answer ? failed(net, answer, first) : TEC_OK;
}

static int32_t run_nodes(tec_net *net, const int64_t *node, const int64_t *end);

/* A number of one or eight bytes that steps have made. */
static int32_t read_number(tec_net *net, int64_t value, size_t bytes, int64_t *number) {
  const void *host;
  int32_t status = tec_read(net, (const void *)tec_address(net, value), bytes, &host);
  *number = 0;
  if (!status) memcpy(number, host, bytes); /* little-endian machines alone */
  return status;
}

static int32_t run_branch(tec_net *net, const int64_t *node) {
  const int64_t *then = node + 4, *orelse = then + node[3];
  int64_t holds;
  int32_t status = read_number(net, node[2], 1, &holds);
  if (status) return status;
  if (holds) return run_nodes(net, then, orelse);
  return run_nodes(net, orelse, node + node[1]);
}

/* Words of a loop's node. */
enum { LENGTH = 1, BEGIN, COUNT, PLAIN, TRIPS, ASKED, START, GOING, CELLS, PLACES, STATES, ITEMS, HEADER };

static int32_t trips_of(tec_net *net, const int64_t *node, int64_t *trips) {
  int64_t bound = node[TRIPS] >= 0 ? net->rows[node[TRIPS]] : MOST_TRIPS;
  *trips = bound;
  if (node[ASKED] >= 0) {
    int64_t n;
    int32_t status = read_number(net, node[ASKED], 8, &n);
    if (status) return status;
    if (n < 0) return tec_fail(net->error, TEC_FAILED, "a loop is asked for %lld trips", (long long)n);
    if (node[GOING] < 0 && node[START] < 0 && n >= MOST_TRIPS)
      return tec_fail(net->error, TEC_FAILED, "a loop is asked for %lld trips, and has no condition that ends it", (long long)n);
    *trips = node[TRIPS] >= 0 && bound < n ? bound : n;
  }
  int64_t begins = 1;
  int32_t status = node[START] >= 0 ? read_number(net, node[START], 1, &begins) : TEC_OK;
  if (!begins) *trips = 0;
  return status;
}

/* One trip after the other, for a body that holds loops or branches. */
static int32_t one_by_one(tec_net *net, const int64_t *node, const int64_t *body, int64_t trips, int64_t *done) {
  int64_t *cells = net->cells + 4 * node[CELLS];
  for (*done = 0; *done < trips;) {
    for (int64_t k = 0; k < node[PLACES]; k++)
      *(int64_t *)cells[4 * k] = cells[4 * k + 1] + *done * cells[4 * k + 3] + (*done & 1) * cells[4 * k + 2];
    int32_t status = run_nodes(net, body, node + node[LENGTH]);
    if (status) return status;
    ++*done;
    int64_t goes_on = 1;
    if (node[GOING] >= 0 && (status = read_number(net, node[GOING], 1, &goes_on))) return status;
    if (!goes_on) break;
  }
  return TEC_OK;
}

static int32_t run_loop(tec_net *net, const int64_t *node) {
  const tec_model *m = net->model;
  int64_t n = node[PLACES], trips, *cells = net->cells + 4 * node[CELLS], *before = net->before + node[CELLS];
  int32_t status = trips_of(net, node, &trips);
  if (status) return status;
  const int64_t *at = node + HEADER;
  for (int64_t k = 0; k < n; k++) {
    cells[4 * k] = (int64_t)(net->pointers + at[k]);
    before[k] = cells[4 * k + 1] = (int64_t)net->pointers[at[k]];
    cells[4 * k + 2] = cells[4 * k + 3] = 0;
  }
  at += n;
  const int64_t *states = at;
  for (int64_t s = 0; s < node[STATES]; s++) {
    int64_t gap = tec_address(net, at[1]) - tec_address(net, at[0]);
    at += 2;
    for (int64_t j = *at++; j > 0; j--) cells[4 * *at++ + 2] += gap;
    for (int64_t j = *at++; j > 0; j--) cells[4 * *at++ + 2] -= gap;
  }
  for (int64_t i = 0; i < node[ITEMS]; i++) {
    int64_t bytes = net->rows[m->value_bytes[at[0]]], back = at[1];
    at += 2;
    for (int64_t j = *at++; j > 0; j--, at++) {
      cells[4 * *at + 3] += bytes * back;
      if (back < 0) cells[4 * *at + 1] += bytes * (trips - 1);
    }
  }
  int64_t done = 0;
  if (node[PLAIN] && !net->gpu) {
    int64_t words[7] = {(int64_t)(net->steps + STEP_WORDS * node[BEGIN]), node[COUNT], trips,
                        node[GOING] >= 0 ? tec_address(net, node[GOING]) : 0, n, (int64_t)cells, 0};
    int64_t answer = tec_run_trips(words);
    status = answer ? failed(net, answer, node[BEGIN]) : TEC_OK;
    done = words[6];
  } else {
    status = one_by_one(net, node, at, trips, &done);
  }
  for (int64_t k = 0; k < n; k++) *(int64_t *)cells[4 * k] = before[k]; /* a loop around this one runs it again */
  if (status) return status;
  for (int64_t s = 0; s < node[STATES] && done & 1; s++) { /* the states are to be where they began */
    status = tec_move(net, (void *)tec_address(net, states[0]), (const void *)tec_address(net, states[1]), (size_t)net->rows[m->value_bytes[states[0]]]);
    if (status) return status;
    states += 2;
    states += 1 + *states;
    states += 1 + *states;
  }
  return TEC_OK;
}

static int32_t run_nodes(tec_net *net, const int64_t *node, const int64_t *end) {
  int32_t status = TEC_OK;
  for (; node < end && !status; node += node[1])
    status = node[0] == NODE_STRETCH ? stretch(net, node[2], node[3]) : node[0] == NODE_LOOP ? run_loop(net, node) : run_branch(net, node);
  return status;
}

int32_t tec_run_plan(tec_net *net) {
  const tec_model *m = net->model;
  return m->n_nodes ? run_nodes(net, m->nodes, m->nodes + m->n_nodes) : stretch(net, 0, m->n_steps);
}
