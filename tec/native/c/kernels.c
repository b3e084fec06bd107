/* Calls of kernels: arguments are held against the signature, as tec/runtime/modules/arguments.py does, and the variables of shapes bound. */
#include <stdio.h>
#include <string.h>

#include "runtime.h"

#define MOST_ENV 256
#define MOST_TENSORS 64

static int32_t wrong_size(char *error, const tec_kernel *k, const tec_bind *b, int64_t is, int64_t wanted) {
  return tec_fail(error, TEC_INVALID, "%s: %s %lld of argument %s is %lld, %lld is wanted; %s", k->name, b->op == CHECK_STRIDE || b->op == SOLVE_STRIDE ? "stride" : "dimension",
                  (long long)b->dim, k->tensors[b->tensor].name, (long long)is, (long long)wanted, k->prototype);
}

static int64_t stride_of(const DLTensor *t, int64_t dim) {
  if (t->strides) return t->strides[dim];
  int64_t step = 1;
  for (int32_t d = t->ndim - 1; d > dim; d--) step *= t->shape[d];
  return step;
}

static int32_t bind(char *error, const tec_kernel *k, const DLTensor *const *tensors, int64_t *env, uint8_t *known) {
  for (int64_t j = 0; j < k->n_binds; j++) {
    const tec_bind *b = &k->binds[j];
    if (b->op == SET_ZERO) {
      if (!known[b->to]) env[b->to] = 0;
      known[b->to] = 1;
      continue;
    }
    const DLTensor *t = tensors[b->tensor];
    int strides = b->op == BIND_STRIDE || b->op == CHECK_STRIDE || b->op == SOLVE_STRIDE;
    if (strides && tec_elements(t) == 0) continue;
    int64_t n = strides ? stride_of(t, b->dim) : t->shape[b->dim], value;
    if (b->op == BIND_SHAPE || b->op == BIND_STRIDE) {
      if (!known[b->to]) {
        env[b->to] = n;
        known[b->to] = 1;
      }
      value = env[b->to];
    } else if (b->op == SOLVE_SHAPE || b->op == SOLVE_STRIDE) {
      env[k->value] = n;
      known[k->value] = 1;
      if (!tec_evaluate(&k->exprs, b->expr, env, known, &value)) return wrong_size(error, k, b, n, 0);
      env[b->to] = value;
      known[b->to] = 1;
      continue;
    } else if (!tec_evaluate(&k->exprs, b->expr, env, known, &value)) {
      return tec_fail(error, TEC_INVALID, "%s: the shape of argument %s cannot be worked out; %s", k->name, k->tensors[b->tensor].name, k->prototype);
    }
    if (value != n && !(strides && t->shape[b->dim] == 1)) return wrong_size(error, k, b, n, value);
  }
  for (int64_t j = 0; j < k->n_implicit; j++)
    if (!known[k->implicit[j]]) env[k->implicit[j]] = 0; /* of strides of a tensor without elements */
  return TEC_OK;
}

/* device: where the function runs. Tensors of the host's memory are copied to a GPU, one behind the other in its memory. */
static int32_t check_forms(char *error, const tec_kernel *k, const DLTensor *const *tensors, const DLDevice *device) {
  for (int64_t j = 0; j < k->n_tensors; j++) {
    const tec_tensor *p = &k->tensors[j];
    char what[200];
    snprintf(what, sizeof what, "%.80s: argument %s", k->name, p->name);
    int32_t status = tec_check_tensor(error, what, tensors[j], p->code, p->bits, p->ndim, 1, device);
    if (status) return status;
    int is_copied = k->images && tec_is_on_host(tensors[j]);
    if ((!p->strided || is_copied) && !tec_is_compact(tensors[j]))
      return tec_fail(error, TEC_INVALID, "%s has strides, a compact tensor is wanted%s", what, p->strided ? " in the host's memory" : "");
    uintptr_t data = (uintptr_t)tensors[j]->data + tensors[j]->byte_offset;
    if (!is_copied && tec_elements(tensors[j]) && data % (uintptr_t)p->align)
      return tec_fail(error, TEC_INVALID, "%s begins at an address that is no multiple of %lld bytes", what, (long long)p->align);
  }
  return TEC_OK;
}

static int32_t check_overlaps(char *error, const tec_kernel *k, const DLTensor *const *tensors) {
  for (int64_t i = 0; i < k->n_tensors && !k->alias_ok; i++)
    for (int64_t j = 0; k->tensors[i].writes && j < k->n_tensors; j++) {
      if (i == j || (k->tensors[j].writes && j < i)) continue;
      uintptr_t a, b, c, d;
      tec_extent(tensors[i], &a, &b);
      tec_extent(tensors[j], &c, &d);
      if (a < d && c < b) return tec_fail(error, TEC_INVALID, "%s: argument %s is written and shares memory with argument %s", k->name, k->tensors[i].name, k->tensors[j].name);
    }
  return TEC_OK;
}

static int32_t failed(char *error, const tec_kernel *k, int32_t status) {
  if (status > 0 && status <= k->n_asserts) return tec_fail(error, TEC_FAILED, "%s: %s", k->name, k->asserts[status - 1]);
  if (status == -1) return tec_fail(error, TEC_OUT_OF_MEMORY, "%s: no memory for the function's workspace", k->name);
  if (status == -2) return tec_fail(error, TEC_UNSUPPORTED, "%s: the system does not let this process use the processor's tile registers (AMX)", k->name);
  return tec_fail(error, TEC_FAILED, "%s: assertion %d in the compiled function failed", k->name, (int)status - 1);
}

static int32_t call_on(const tec_kernel *k, const DLDevice *device, void *code, const DLTensor *const *tensors, int64_t *scalars, void *stream, char *error) {
  int64_t env[MOST_ENV];
  uint8_t known[MOST_ENV] = {0};
  void *buffers[MOST_TENSORS];
  int32_t status = check_forms(error, k, tensors, device);
  if (status) return status;
  for (int64_t j = 0; j < k->n_scalars; j++)
    if (k->scalar_env[j] >= 0) {
      int64_t bits = k->scalar_bits[j], x = scalars[j];
      if (bits && bits > -64 && bits < 64) {
        int64_t shift = 64 - (bits < 0 ? -bits : bits);
        x = bits < 0 ? (int64_t)((uint64_t)x << shift) >> shift : (int64_t)((uint64_t)x << shift >> shift);
      }
      env[k->scalar_env[j]] = x;
      known[k->scalar_env[j]] = 1;
    }
  if ((status = bind(error, k, tensors, env, known)) || (status = check_overlaps(error, k, tensors))) return status;
  if (k->images) return k->gpu->call(k, code, tensors, scalars, env, known, stream, error);
  for (int64_t j = 0; j < k->n_tensors; j++) buffers[j] = (char *)tensors[j]->data + tensors[j]->byte_offset;
  for (int64_t j = 0; j < k->n_implicit; j++) scalars[k->n_scalars + j] = env[k->implicit[j]];
  tec_grow_pool(tec_default_threads());
  tec_after_fork();
  status = k->code(buffers, scalars);
  return status ? failed(error, k, status) : TEC_OK;
}

/* The device of the first tensor that is on one. */
static DLDevice device_of(const tec_kernel *k, const DLTensor *const *tensors) {
  DLDevice host = {kDLCPU, 0};
  for (int64_t j = 0; j < k->n_tensors; j++)
    if (tensors[j] && !tec_is_on_host(tensors[j])) return tensors[j]->device;
  return host;
}

/* What an exported function calls: its tensors, and its numbers with room for the variables of shapes behind them. Of several targets the first is taken
 * that this machine can run and whose device the tensors are on; all in the host's memory, they suit each target. */
__attribute__((visibility("hidden"))) int32_t tec_call_kernel(const tec_function *f, const DLTensor *const *tensors, int64_t *scalars, void *stream, tec_error *out) {
  char *error = out ? out->text : NULL;
  int32_t status = TEC_UNSUPPORTED, tried = 0;
  DLDevice device = device_of(f->kernels[0], tensors);
  if (error) error[0] = 0;
  for (int64_t j = 0; j < f->n_kernels; j++) {
    const tec_kernel *k = f->kernels[j];
    int64_t kind = k->images ? k->images->kind : kDLCPU;
    void *code = NULL;
    if (device.device_type != kDLCPU && (int64_t)device.device_type != kind) continue;
    DLDevice on = {(DLDeviceType)kind, device.device_id};
    tried = 1;
    status = k->images ? k->gpu->open(k, device.device_id, &code, error) : tec_check_machine(error, k->prototype, k->features, k->n_features, k->feature_names);
    if (!status && error) error[0] = 0; /* why an earlier target was not taken */
    if (!status) return call_on(k, &on, code, tensors, scalars, stream, error);
    if (status != TEC_UNSUPPORTED) return status;
  }
  if (!tried) return tec_fail(error, TEC_INVALID, "%s: a tensor is on DLPack device %d:%d, and the function was built for %s", f->name, (int)device.device_type, (int)device.device_id, f->targets);
  if (error && f->n_kernels > 1) {
    char last[300];
    snprintf(last, sizeof last, "%s", error);
    return tec_fail(error, status, "%s: this machine runs none of %s; the last that was tried: %s", f->name, f->targets, last);
  }
  return status;
}
