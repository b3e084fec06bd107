/* DLPack tensors: what is wrong with one, where its elements lie, copies from and to strided ones. */
#include <stdlib.h>
#include <string.h>

#include "runtime.h"

int tec_is_on_host(const DLTensor *t) {
  return t->device.device_type == kDLCPU || t->device.device_type == kDLCUDAHost || t->device.device_type == kDLROCMHost;
}

/* data: whether its memory is looked at too. device: where it may lie beside the host's memory; NULL for nowhere. */
int32_t tec_check_tensor(char *error, const char *what, const DLTensor *t, int64_t code, int64_t bits, int64_t ndim, int data, const DLDevice *device) {
  if (!t) return tec_fail(error, TEC_INVALID, "%s: the tensor is a null pointer", what);
  if (t->dtype.code != code || t->dtype.bits != bits || t->dtype.lanes != 1) {
    char is[40], wanted[40];
    tec_type_text(is, sizeof is, t->dtype.code, t->dtype.bits, t->dtype.lanes);
    tec_type_text(wanted, sizeof wanted, code, bits, 1);
    return tec_fail(error, TEC_INVALID, "%s is of type %s, %s is wanted", what, is, wanted);
  }
  if (t->ndim != ndim) return tec_fail(error, TEC_INVALID, "%s has %d dimensions, %lld are wanted", what, (int)t->ndim, (long long)ndim);
  if (ndim && !t->shape) return tec_fail(error, TEC_INVALID, "%s: its shape is a null pointer", what);
  int64_t bytes = bits / 8;
  int empty = 0;
  for (int64_t d = 0; d < ndim; d++) {
    if (t->shape[d] < 0) return tec_fail(error, TEC_INVALID, "%s: dimension %lld is %lld", what, (long long)d, (long long)t->shape[d]);
    empty |= t->shape[d] == 0;
    if (t->shape[d] && __builtin_mul_overflow(bytes, t->shape[d], &bytes))
      return tec_fail(error, TEC_INVALID, "%s: its shape asks for more than 2^63 bytes", what);
  }
  if (!data) return TEC_OK;
  if (!tec_is_on_host(t)) {
    int is = (int)t->device.device_type;
    if (!device || device->device_type == kDLCPU) return tec_fail(error, TEC_INVALID, "%s is on DLPack device %d, it must be in the host's memory", what, is);
    if (is != (int)device->device_type || t->device.device_id != device->device_id)
      return tec_fail(error, TEC_INVALID, "%s is on DLPack device %d:%d, it must be in the host's memory or on %d:%d", what, is, (int)t->device.device_id, (int)device->device_type, (int)device->device_id);
  }
  if (!t->data && !empty) return tec_fail(error, TEC_INVALID, "%s: its data is a null pointer", what);
  return TEC_OK;
}

int64_t tec_elements(const DLTensor *t) {
  int64_t n = 1;
  for (int32_t d = 0; d < t->ndim; d++) n *= t->shape[d];
  return n;
}

int tec_is_compact(const DLTensor *t) {
  if (!t->strides || tec_elements(t) == 0) return 1;
  int64_t step = 1;
  for (int32_t d = t->ndim - 1; d >= 0; d--) {
    if (t->shape[d] != 1 && t->strides[d] != step) return 0;
    step *= t->shape[d];
  }
  return 1;
}

/* The bytes from the lowest address on that its elements take. */
void tec_extent(const DLTensor *t, uintptr_t *begin, uintptr_t *end) {
  int64_t low = 0, high = 0, width = t->dtype.bits / 8, step = 1;
  for (int32_t d = t->ndim - 1; d >= 0; d--) {
    int64_t reach = (t->shape[d] - 1) * (t->strides ? t->strides[d] : step);
    if (reach < 0)
      low += reach;
    else
      high += reach;
    step *= t->shape[d];
  }
  uintptr_t first = (uintptr_t)t->data + t->byte_offset;
  *begin = first + (uintptr_t)(low * width);
  *end = tec_elements(t) ? first + (uintptr_t)((high + 1) * width) : *begin;
}

/* Element by element, in row-major order; `compact` is what lies without gaps. */
void tec_copy_strided(char *compact, const DLTensor *t, int to_tensor) {
  int64_t n = tec_elements(t), width = t->dtype.bits / 8, index[64] = {0}, at = 0;
  char *data = (char *)t->data + t->byte_offset;
  if (!n) return;
  if (tec_is_compact(t)) {
    if (to_tensor)
      memcpy(data, compact, (size_t)(n * width));
    else
      memcpy(compact, data, (size_t)(n * width));
    return;
  }
  for (int64_t k = 0; k < n; k++) {
    if (to_tensor)
      memcpy(data + at * width, compact + k * width, (size_t)width);
    else
      memcpy(compact + k * width, data + at * width, (size_t)width);
    for (int32_t d = t->ndim - 1; d >= 0; d--) {
      at += t->strides[d];
      if (++index[d] < t->shape[d]) break;
      at -= t->strides[d] * t->shape[d];
      index[d] = 0;
    }
  }
}

/* Memory of at least so many bytes; what was in a smaller block is lost. 0 where there is none. */
int tec_grow(block *b, size_t bytes) {
  if (b->data && b->bytes >= bytes) return 1;
  free(b->data);
  b->data = NULL;
  b->bytes = 0;
  void *made = NULL;
  size_t wanted = (bytes + ALIGN) & ~(size_t)(ALIGN - 1);
  if (wanted < bytes || posix_memalign(&made, wanted >= 65536 ? 4096 : ALIGN, wanted)) return 0;
  b->data = made;
  b->bytes = wanted;
  return 1;
}
