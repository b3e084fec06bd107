/* Code on a device: images that are loaded, their kernels, tensor maps. Networks (gpu.c) and functions (gpu_kernels.c) share it. */
#include <stdlib.h>

#include "gpu.h"

pthread_mutex_t tec_gpu_lock = PTHREAD_MUTEX_INITIALIZER;

void tec_unload_code(const tec_driver *d, const tec_images *g, tec_loaded *code) {
  for (int64_t k = 0; code->modules && k < g->n_images; k++)
    if (code->modules[k]) d->unload(code->modules[k]);
  free(code->modules);
  free(code->functions);
  free(code->most_shared);
}

/* After a failure the caller unloads what is there. */
int32_t tec_load_code(const tec_driver *d, const tec_images *g, const char *target, tec_loaded *code, char *error) {
  code->modules = calloc((size_t)g->n_images + 1, sizeof *code->modules);
  code->functions = calloc((size_t)g->n_kernels + 1, sizeof *code->functions);
  code->most_shared = calloc((size_t)g->n_kernels + 1, sizeof *code->most_shared);
  if (!code->modules || !code->functions || !code->most_shared) return tec_fail(error, TEC_OUT_OF_MEMORY, "there is no memory for the code's tables");
  for (int64_t k = 0; k < g->n_images; k++) {
    char log[300] = "";
    int32_t status = tec_load_image(d, &code->modules[k], g->image[k], g->image_bytes[k], log, sizeof log);
    if (status)
      return tec_fail(error, TEC_UNSUPPORTED, "the code, compiled for %s, could not be loaded: %s%s%s", target, tec_driver_text(d, status), *log ? "; " : "", log);
  }
  for (int64_t k = 0; k < g->n_kernels; k++) {
    int32_t status = d->function(&code->functions[k], code->modules[g->kernel_image[k]], g->kernels[k]);
    if (status) return tec_fail(error, TEC_FAILED, "%s: %s", g->kernels[k], tec_driver_text(d, status));
    code->most_shared[k] = tec_default_shared(d, code->functions[k]);
  }
  return TEC_OK;
}

/* All users of a device have one function of each kernel: without the lock one could lower what another has just raised. The driver's status. */
int32_t tec_raise_shared(const tec_driver *d, tec_loaded *code, int64_t kernel, int64_t bytes) {
  int32_t status = 0;
  pthread_mutex_lock(&tec_gpu_lock);
  if (bytes > code->most_shared[kernel]) {
    status = tec_allow_shared(d, code->functions[kernel], bytes);
    if (!status) code->most_shared[kernel] = bytes;
  }
  pthread_mutex_unlock(&tec_gpu_lock);
  return status;
}

/* Sizes and strides in elements, of the innermost dimension first; there are `rank` sizes, and one stride less. */
int32_t tec_make_map(const tec_driver *d, void *out, int64_t type, int64_t rank, int64_t item_bytes, int swizzle, int64_t address, const int64_t *sizes, const int64_t *strides, const int64_t *box, char *error) {
  uint64_t extents[5] = {0}, in_bytes[5] = {0};
  uint32_t boxes[5] = {0};
  int aligned = address % 16 == 0;
  for (int64_t k = 0; k < rank; k++) {
    extents[k] = sizes[k] > 0 ? (uint64_t)sizes[k] : 1;  /* nothing is copied of an empty tensor, but there is no map of it */
    boxes[k] = (uint32_t)box[k];
    if (k + 1 < rank) {
      in_bytes[k] = (uint64_t)(strides[k] * item_bytes);
      aligned = aligned && in_bytes[k] && in_bytes[k] % 16 == 0;
    }
  }
  if (!aligned) return tec_fail(error, TEC_INVALID, "a kernel copies rows that do not begin at multiples of 16 bytes; give such sizes and such an address");
  if (!d->encode_map) return tec_fail(error, TEC_UNSUPPORTED, "a kernel copies by tensor maps, which this driver does not have");
  int32_t status = tec_encode_map(d, out, type, rank, (void *)address, extents, in_bytes, boxes, swizzle);
  return status ? tec_fail(error, status == d->no_memory ? TEC_OUT_OF_MEMORY : TEC_FAILED, "a tensor map: %s", tec_driver_text(d, status)) : TEC_OK;
}
