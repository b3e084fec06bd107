/* libcuda and libamdhip64, found by dlopen when a net is made. Sources: the CUDA driver API reference; the HIP runtime API reference. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gpu.h"

#define MOST_DEVICES 64
enum { CUDA_OUT_OF_MEMORY = 2, CUDA_UNSUPPORTED_PTX = 222, HIP_OUT_OF_MEMORY = 2 };
enum { JIT_ERROR_LOG = 5, JIT_ERROR_SIZE = 6, FUNCTION_STATIC_SHARED = 1, FUNCTION_MOST_SHARED = 8, DEFAULT_SHARED = 48 << 10 };

static tec_driver cuda, hip; /* filled once; kind is set where they are */
static void *contexts[MOST_DEVICES];

typedef struct {
  const char *name;
  size_t at;                   /* of the pointer in tec_driver */
  int optional;
} entry;
#define AT(field) offsetof(tec_driver, field)

static const entry cuda_entries[] = {
  {"cuInit", AT(init), 0}, {"cuDeviceGetCount", AT(count), 0}, {"cuMemAlloc_v2", AT(alloc), 0}, {"cuMemFree_v2", AT(free), 0},
  {"cuMemGetInfo_v2", AT(memory), 0}, {"cuMemsetD8Async", AT(set), 0}, {"cuModuleGetFunction", AT(function), 0}, {"cuModuleUnload", AT(unload), 0},
  {"cuLaunchKernel", AT(launch), 0}, {"cuStreamCreate", AT(stream), 0}, {"cuStreamDestroy_v2", AT(end_stream), 0}, {"cuStreamSynchronize", AT(wait), 0},
  {"cuDriverGetVersion", AT(version), 0}, {"cuDeviceGet", AT(device), 0}, {"cuDevicePrimaryCtxRetain", AT(retain), 0},
  {"cuCtxPushCurrent_v2", AT(push), 0}, {"cuCtxPopCurrent_v2", AT(pop), 0}, {"cuModuleLoadDataEx", AT(load_with), 0},
  {"cuMemcpyHtoDAsync_v2", AT(to_device), 0}, {"cuMemcpyDtoHAsync_v2", AT(to_host), 0}, {"cuMemcpyDtoDAsync_v2", AT(within), 0},
  {"cuMemcpyHtoD_v2", AT(to_device_now), 0}, {"cuFuncGetAttribute", AT(function_attribute), 0}, {"cuFuncSetAttribute", AT(set_function), 0},
  {"cuGetErrorString", AT(text_of), 0}, {"cuLaunchKernelEx", AT(launch_ex), 1}, {"cuTensorMapEncodeTiled", AT(encode_map), 1},
};
static const entry hip_entries[] = {
  {"hipInit", AT(init), 0}, {"hipGetDeviceCount", AT(count), 0}, {"hipMalloc", AT(alloc), 0}, {"hipFree", AT(free), 0}, {"hipMemGetInfo", AT(memory), 0},
  {"hipMemsetAsync", AT(set), 0}, {"hipModuleGetFunction", AT(function), 0}, {"hipModuleUnload", AT(unload), 0}, {"hipModuleLaunchKernel", AT(launch), 0},
  {"hipStreamCreateWithFlags", AT(stream), 0}, {"hipStreamDestroy", AT(end_stream), 0}, {"hipStreamSynchronize", AT(wait), 0},
  {"hipGetDevice", AT(get_device), 0}, {"hipSetDevice", AT(set_device), 0}, {"hipModuleLoadData", AT(load), 0}, {"hipMemcpyAsync", AT(copy), 0},
  {"hipMemcpy", AT(copy_now), 0}, {"hipGetErrorString", AT(text), 0},
};

static void *open_one(const char *name, char *why, size_t room) {
  void *library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
  if (!library && room) snprintf(why, room, "%s", dlerror());
  return library;
}

/* The library that a variable names, or the first one that loads. The first name's refusal is told: the later ones are guesses. */
static void *open_library(const char *chosen, const char *const *names, char *why, size_t room) {
  const char *name = getenv(chosen);
  if (name && *name) return open_one(name, why, room);
  void *library = NULL;
  for (int k = 0; names[k] && !library; k++) library = open_one(names[k], why, k ? 0 : room);
  const char *rocm = getenv("ROCM_PATH");
  if (!library && rocm && *names[0] == 'l' && strstr(names[0], "hip")) {
    char path[1024];
    snprintf(path, sizeof path, "%s/lib/libamdhip64.so", rocm);
    library = open_one(path, why, 0);
  }
  return library;
}

static const char *fill(tec_driver *d, void *library, const entry *entries, size_t n) {
  for (size_t k = 0; k < n; k++) {
    void *found = dlsym(library, entries[k].name);
    if (!found && !entries[k].optional) return entries[k].name;
    memcpy((char *)d + entries[k].at, &found, sizeof found);
  }
  return NULL;
}

int32_t tec_find_driver(int32_t kind, const tec_driver **out, char *error) {
  static const char *const cuda_names[] = {"libcuda.so.1", "libcuda.so", "/usr/lib/wsl/lib/libcuda.so.1", NULL};
  static const char *const hip_names[] = {"libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so.5", "libamdhip64.so", "/opt/rocm/lib/libamdhip64.so", NULL};
  int is_cuda = kind == kDLCUDA;
  tec_driver *d = is_cuda ? &cuda : &hip;
  *out = d;
  if (d->kind) return TEC_OK;
  char why[200] = "";
  const char *what = is_cuda ? "libcuda" : "libamdhip64";
  void *library = is_cuda ? open_library("TEC_CUDA_LIBRARY", cuda_names, why, sizeof why) : open_library("TEC_HIP_LIBRARY", hip_names, why, sizeof why);
  if (!library)
    return tec_fail(error, TEC_UNSUPPORTED, "no %s GPU was found: %s could not be loaded (%s); %s names another file", is_cuda ? "NVIDIA" : "AMD", what, why, is_cuda ? "TEC_CUDA_LIBRARY" : "TEC_HIP_LIBRARY");
  const char *missing = is_cuda ? fill(d, library, cuda_entries, sizeof cuda_entries / sizeof *cuda_entries) : fill(d, library, hip_entries, sizeof hip_entries / sizeof *hip_entries);
  if (missing) return tec_fail(error, TEC_UNSUPPORTED, "%s has no %s", what, missing);
  d->no_memory = is_cuda ? CUDA_OUT_OF_MEMORY : HIP_OUT_OF_MEMORY;
  int32_t status = d->init(0);
  if (status) return tec_fail(error, TEC_UNSUPPORTED, "no %s GPU was found: %s", is_cuda ? "NVIDIA" : "AMD", tec_driver_text(d, status));
  d->kind = kind;
  return TEC_OK;
}

int32_t tec_check_ordinal(const tec_driver *d, int32_t ordinal, char *error) {
  int32_t n = 0, status = d->count(&n);
  if (status || !n) return tec_fail(error, TEC_UNSUPPORTED, "no %s GPU was found: %s", d->kind == kDLCUDA ? "NVIDIA" : "AMD", status ? tec_driver_text(d, status) : "there is none");
  if (ordinal < 0 || ordinal >= n || ordinal >= MOST_DEVICES) return tec_fail(error, TEC_INVALID, "options.device is %d, and there are %d devices", (int)ordinal, (int)n);
  if (d->kind == kDLCUDA && !contexts[ordinal]) { /* kept until the process ends, as other users of the primary context do */
    int32_t device = 0;
    status = d->device(&device, ordinal);
    if (!status) status = d->retain(&contexts[ordinal], device);
    if (status) return tec_fail(error, TEC_UNSUPPORTED, "device %d cannot be used: %s", (int)ordinal, tec_driver_text(d, status));
  }
  return TEC_OK;
}

const char *tec_driver_text(const tec_driver *d, int32_t status) {
  const char *text = NULL;
  if (d->text) text = d->text(status);
  if (d->text_of && d->text_of(status, &text)) text = NULL;
  return text ? text : "an unknown error";
}

int32_t tec_to_device(const tec_driver *d, int32_t ordinal, tec_position *before) {
  before->ordinal = ordinal;
  if (d->kind == kDLCUDA) return d->push(contexts[ordinal]);
  if (d->get_device(&before->ordinal)) before->ordinal = ordinal;
  return before->ordinal == ordinal ? 0 : d->set_device(ordinal);
}

void tec_from_device(const tec_driver *d, const tec_position *before) {
  void *context;
  if (d->kind == kDLCUDA) d->pop(&context);
  else d->set_device(before->ordinal);
}

static int32_t load_ptx(const tec_driver *d, void **module, const void *image, char *log, size_t room) {
  int32_t keys[2] = {JIT_ERROR_LOG, JIT_ERROR_SIZE};
  void *values[2] = {log, (void *)room};
  return d->load_with(module, image, 2, keys, values);
}

/* A driver that is older than the PTX: its version line is lowered to what the driver knows. CUDA 11.x brought PTX 7.x, 12.x 8.x, 13.x 9.x. */
static int32_t load_older(const tec_driver *d, void **module, const char *image, size_t bytes, char *log, size_t room) {
  int32_t version = 0, major = 0, minor = 0, length = 0, status = CUDA_UNSUPPORTED_PTX;
  char *text = malloc(bytes), *line = text ? (memcpy(text, image, bytes), strstr(text, ".version ")) : NULL;
  if (line && !d->version(&version) && sscanf(line, ".version %d.%d%n", &major, &minor, &length) == 2 && length == 12)
    for (int32_t m = version / 1000 - 4, n = version % 1000 / 10; status == CUDA_UNSUPPORTED_PTX && m > 5; n > 0 ? n-- : (m--, n = 9)) {
      if (m > major || (m == major && n >= minor) || m > 9 || n > 9) continue;
      line[9] = (char)('0' + m);
      line[11] = (char)('0' + n);
      status = load_ptx(d, module, text, log, room);
    }
  free(text);
  return status;
}

int32_t tec_load_image(const tec_driver *d, void **module, const uint8_t *image, int64_t bytes, char *log, size_t room) {
  if (d->kind != kDLCUDA) return d->load(module, image);
  int32_t status = load_ptx(d, module, image, log, room);
  return status == CUDA_UNSUPPORTED_PTX ? load_older(d, module, (const char *)image, (size_t)bytes, log, room) : status;
}

int32_t tec_copy(const tec_driver *d, void *to, const void *from, size_t bytes, int32_t way, void *stream) {
  if (d->kind != kDLCUDA) return d->copy(to, from, bytes, way, stream); /* hipMemcpyKind has these numbers */
  return way == TEC_TO_DEVICE ? d->to_device(to, from, bytes, stream) : way == TEC_TO_HOST ? d->to_host(to, from, bytes, stream) : d->within(to, from, bytes, stream);
}

int32_t tec_copy_now(const tec_driver *d, void *device, const void *host, size_t bytes) {
  return d->kind == kDLCUDA ? d->to_device_now(device, host, bytes) : d->copy_now(device, host, bytes, TEC_TO_DEVICE);
}

/* Dynamic shared memory that a kernel may have without being asked for. */
int64_t tec_default_shared(const tec_driver *d, void *function) {
  int32_t fixed = 0;
  if (d->kind != kDLCUDA) return INT64_MAX;
  if (d->function_attribute(&fixed, FUNCTION_STATIC_SHARED, function)) fixed = 0;
  return fixed < DEFAULT_SHARED ? DEFAULT_SHARED - fixed : 0;
}

int32_t tec_allow_shared(const tec_driver *d, void *function, int64_t bytes) { return d->set_function(function, FUNCTION_MOST_SHARED, (int32_t)bytes); }

/* CUlaunchConfig and its attribute. */
typedef struct {
  uint32_t which, padding, value, rest[15];
} launch_attribute;
typedef struct {
  uint32_t grid[3], group[3], shared_bytes;
  void *stream, *attributes;
  uint32_t n_attributes;
} launch_config;
enum { PROGRAMMATIC_STREAM_SERIALIZATION = 6 };

int32_t tec_launch_kernel(const tec_driver *d, void *function, const int64_t *n, void *stream, void **params, void *arguments, size_t bytes, int early) {
  if (d->kind != kDLCUDA) { /* HIP_LAUNCH_PARAM_BUFFER_POINTER, _SIZE, _END */
    void *extra[5] = {(void *)1, arguments, (void *)2, &bytes, (void *)3};
    return d->launch(function, (uint32_t)n[0], (uint32_t)n[1], (uint32_t)n[2], (uint32_t)n[3], (uint32_t)n[4], (uint32_t)n[5], (uint32_t)n[6], stream, NULL, bytes ? extra : NULL);
  }
  if (early && d->launch_ex) {
    launch_attribute attribute = {PROGRAMMATIC_STREAM_SERIALIZATION, 0, 1, {0}};
    launch_config config = {{(uint32_t)n[0], (uint32_t)n[1], (uint32_t)n[2]}, {(uint32_t)n[3], (uint32_t)n[4], (uint32_t)n[5]}, (uint32_t)n[6], stream, &attribute, 1};
    return d->launch_ex(&config, function, params, NULL);
  }
  return d->launch(function, (uint32_t)n[0], (uint32_t)n[1], (uint32_t)n[2], (uint32_t)n[3], (uint32_t)n[4], (uint32_t)n[5], (uint32_t)n[6], stream, params, NULL);
}

int32_t tec_encode_map(const tec_driver *d, void *out, int64_t type, int64_t rank, void *address, const uint64_t *sizes, const uint64_t *strides, const uint32_t *box, int swizzle) {
  static const uint32_t ones[5] = {1, 1, 1, 1, 1};
  enum { SWIZZLE_128B = 3, L2_PROMOTION_128B = 2 };
  return d->encode_map(out, (int32_t)type, (uint32_t)rank, address, sizes, strides, box, ones, 0, swizzle ? SWIZZLE_128B : 0, L2_PROMOTION_128B, 0);
}
