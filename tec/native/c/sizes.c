/* Sizes: expressions over an environment of numbers, and all numbers of a network for given sizes. */
#include <stdio.h>
#include <string.h>

#include "runtime.h"

enum { OP_CONST, OP_ENV, OP_ADD, OP_SUB, OP_MUL, OP_DIV, OP_MOD, OP_MIN, OP_MAX, OP_EQ, OP_NE, OP_LT, OP_LE, OP_GT, OP_GE, OP_AND, OP_OR, OP_SELECT };
#define DEPTH 256

typedef struct {
  int64_t value;
  int good;                    /* not divided by 0, nothing unknown, no overflow */
} number;

static number binary(int64_t op, number a, number b) {
  number out = {0, a.good && b.good};
  int64_t x = a.value, y = b.value;
  switch (op) {
    case OP_ADD: out.good &= !__builtin_add_overflow(x, y, &out.value); break;
    case OP_SUB: out.good &= !__builtin_sub_overflow(x, y, &out.value); break;
    case OP_MUL: out.good &= !__builtin_mul_overflow(x, y, &out.value); break;
    case OP_DIV:
    case OP_MOD: {
      if (y == 0 || (y == -1 && x == INT64_MIN)) {
        out.good = 0;
        break;
      }
      int64_t q = x / y, r = x % y;
      if (r != 0 && (r < 0) != (y < 0)) { /* Python's: rounded down */
        q--;
        r += y;
      }
      out.value = op == OP_DIV ? q : r;
      break;
    }
    case OP_MIN: out.value = x < y ? x : y; break;
    case OP_MAX: out.value = x > y ? x : y; break;
    case OP_EQ: out.value = x == y; break;
    case OP_NE: out.value = x != y; break;
    case OP_LT: out.value = x < y; break;
    case OP_LE: out.value = x <= y; break;
    case OP_GT: out.value = x > y; break;
    case OP_GE: out.value = x >= y; break;
    case OP_AND: out.value = x && y; break;
    case OP_OR: out.value = x || y; break;
    default: out.good = 0;
  }
  return out;
}

/* Whether the expression has a value where `known` (NULL: all) says which numbers there are. */
int tec_evaluate(const tec_exprs *e, int64_t expr, const int64_t *env, const uint8_t *known, int64_t *value) {
  number stack[DEPTH];
  int depth = 0;
  for (int64_t at = e->begin[expr]; at < e->begin[expr + 1]; at++) {
    int64_t op = e->code[at];
    if (op <= OP_ENV) {
      if (depth == DEPTH) return 0;
      int64_t word = e->code[++at];
      stack[depth].good = op == OP_CONST || !known || known[word];
      stack[depth].value = op == OP_CONST ? word : env[word];
      depth++;
    } else if (op == OP_SELECT) {
      if (depth < 3) return 0;
      depth -= 2;
      number c = stack[depth - 1];
      number chosen = c.value ? stack[depth] : stack[depth + 1];
      chosen.good &= c.good;
      stack[depth - 1] = chosen;
    } else {
      if (depth < 2) return 0;
      depth--;
      stack[depth - 1] = binary(op, stack[depth - 1], stack[depth]);
    }
  }
  *value = depth == 1 ? stack[0].value : 0;
  return depth == 1 && stack[0].good;
}

/* "n = 4, m = 2" */
static void sizes_text(char *out, size_t room, const tec_exprs *e, const int64_t *env) {
  size_t at = 0;
  out[0] = 0;
  for (int64_t k = 0; k < e->n_env; k++) {
    int n = snprintf(out + at, room - at, "%s%s = %lld", k ? ", " : "", e->names[k], (long long)env[k]);
    if (n < 0 || (size_t)n >= room - at) return;
    at += (size_t)n;
  }
}

static int32_t limit_failed(tec_net *net, int64_t k) {
  const tec_model *m = net->model;
  char sizes[200];
  sizes_text(sizes, sizeof sizes, &m->exprs, net->env);
  const char *text = m->table.limit_text[k], *mark = strchr(text, 1);
  if (!mark) return tec_fail(net->error, (int32_t)m->table.limit_status[k], "%s", text);
  return tec_fail(net->error, (int32_t)m->table.limit_status[k], "%.*s%s%s", (int)(mark - text), text, sizes, mark + 1);
}

static int32_t table_rows(tec_net *net) {
  const tec_table *t = &net->model->table;
  for (int64_t k = 0; k < t->n_atoms; k++)
    if (!tec_evaluate(&net->model->exprs, t->atom[k], net->env, net->known, &net->atoms[k]))
      return tec_fail(net->error, TEC_INVALID, "a size cannot be worked out for these inputs: a quotient by 0, or a number past 64 bits");
  int bad = 0;
  for (int64_t k = 0; k < t->n_products; k++) {
    int64_t x = 1;
    for (int64_t j = t->product_begin[k]; j < t->product_begin[k + 1]; j++) bad |= __builtin_mul_overflow(x, net->atoms[t->product_atom[j]], &x);
    net->products[k] = x;
  }
  for (int64_t k = 0; k < t->n_rows; k++) {
    int64_t sum = 0;
    for (int64_t j = t->row_begin[k]; j < t->row_begin[k + 1]; j++) {
      int64_t x;
      bad |= __builtin_mul_overflow(net->products[t->row_product[j]], t->row_factor[j], &x);
      bad |= __builtin_add_overflow(sum, x, &sum);
    }
    net->rows[k] = sum;
  }
  return bad ? tec_fail(net->error, TEC_INVALID, "a size is past 64 bits for these inputs") : TEC_OK;
}

static int64_t rounded(int64_t n) { return (n + 255) & -(int64_t)256; }

/* All that follows from the sizes in net->env: places of values, numbers of calls, the bytes of the arena. */
int32_t tec_bind_sizes(tec_net *net) {
  const tec_model *m = net->model;
  const tec_table *t = &m->table;
  size_t env_bytes = (size_t)m->exprs.n_env * sizeof(int64_t);
  if (net->is_bound && !memcmp(net->env, net->bound_env, env_bytes)) return TEC_OK;
  net->is_bound = 0;
  int32_t status = table_rows(net);
  if (status) return status;
  for (int64_t k = 0; k < t->n_limits; k++) {
    int64_t x = net->rows[t->limit[3 * k]];
    if (x < t->limit[3 * k + 1] || x > t->limit[3 * k + 2]) return limit_failed(net, k);
  }
  for (int64_t k = 0; k < m->n_aligned; k++)
    if (net->rows[m->aligned_row[k]] & (ALIGN - 1))
      return tec_fail(net->error, TEC_DAMAGED, "a value begins between two multiples of the alignment");
  int64_t total = m->arena_row >= 0 ? net->rows[m->arena_row] : 0;
  for (int64_t s = 0; s < m->n_slots; s++) {
    int64_t most = 0;
    for (int64_t j = m->slot_begin[s]; j < m->slot_begin[s + 1]; j++) {
      int64_t n = rounded(net->rows[m->slot_row[j]]);
      if (n > most) most = n;
    }
    net->slot_start[s] = total;
    total += most;
  }
  net->arena_bytes = total;
  for (int64_t v = 0; v < m->n_values; v++)
    net->offset[v] = net->rows[m->value_offset[v]] + (m->value_slot[v] >= 0 ? net->slot_start[m->value_slot[v]] : 0);
  for (int64_t k = 0; k < m->n_scalars; k++) net->scalars[k] = net->rows[m->scalar_row[k]];
  memcpy(net->bound_env, net->env, env_bytes);
  net->is_bound = net->is_fresh = 1;
  return TEC_OK;
}
