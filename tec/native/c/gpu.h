/* What the files for GPUs share: the functions of libcuda or libamdhip64 that are called, under one set of names. */
#ifndef TEC_GPU_H
#define TEC_GPU_H

#include "runtime.h"

/* Functions that both have, with the same arguments: addresses and handles are words. */
typedef struct {
  int32_t kind;                /* kDLCUDA or kDLROCM */
  int32_t no_memory;           /* the status that says so */
  int32_t (*init)(uint32_t);
  int32_t (*count)(int32_t *);
  int32_t (*alloc)(void **, size_t);
  int32_t (*free)(void *);
  int32_t (*memory)(size_t *, size_t *);
  int32_t (*set)(void *, int32_t, size_t, void *);
  int32_t (*function)(void **, void *, const char *);
  int32_t (*unload)(void *);
  int32_t (*launch)(void *, uint32_t, uint32_t, uint32_t, uint32_t, uint32_t, uint32_t, uint32_t, void *, void **, void **);
  int32_t (*stream)(void **, uint32_t);
  int32_t (*end_stream)(void *);
  int32_t (*wait)(void *);
  /* CUDA's */
  int32_t (*version)(int32_t *);
  int32_t (*device)(int32_t *, int32_t);
  int32_t (*retain)(void **, int32_t);
  int32_t (*push)(void *);
  int32_t (*pop)(void **);
  int32_t (*load_with)(void **, const void *, uint32_t, int32_t *, void **);
  int32_t (*to_device)(void *, const void *, size_t, void *);
  int32_t (*to_host)(void *, const void *, size_t, void *);
  int32_t (*within)(void *, const void *, size_t, void *);
  int32_t (*to_device_now)(void *, const void *, size_t);
  int32_t (*function_attribute)(int32_t *, int32_t, void *);
  int32_t (*set_function)(void *, int32_t, int32_t);
  int32_t (*launch_ex)(const void *, void *, void **, void **);
  int32_t (*encode_map)(void *, int32_t, uint32_t, void *, const uint64_t *, const uint64_t *, const uint32_t *, const uint32_t *, int32_t, int32_t, int32_t, int32_t);
  int32_t (*text_of)(int32_t, const char **);
  /* HIP's */
  int32_t (*get_device)(int32_t *);
  int32_t (*set_device)(int32_t);
  int32_t (*load)(void **, const void *);
  int32_t (*copy)(void *, const void *, size_t, int32_t, void *);
  int32_t (*copy_now)(void *, const void *, size_t, int32_t);
  const char *(*text)(int32_t);
} tec_driver;

/* What a thread had as its device. */
typedef struct {
  int32_t ordinal;
} tec_position;

/* A device's functions of some images. */
typedef struct {
  void **modules, **functions;
  int64_t *most_shared;        /* bytes of dynamic shared memory that each kernel may have */
} tec_loaded;

/* gpu_code.c. The lock guards the drivers' tables, what has been loaded, and how much shared memory kernels may have. */
extern pthread_mutex_t tec_gpu_lock;
int32_t tec_load_code(const tec_driver *d, const tec_images *g, const char *target, tec_loaded *code, char *error);
void tec_unload_code(const tec_driver *d, const tec_images *g, tec_loaded *code);
int32_t tec_raise_shared(const tec_driver *d, tec_loaded *code, int64_t kernel, int64_t bytes);
int32_t tec_make_map(const tec_driver *d, void *out, int64_t type, int64_t rank, int64_t item_bytes, int swizzle, int64_t address, const int64_t *sizes, const int64_t *strides, const int64_t *box, char *error);

/* gpu_driver.c. The first two under the lock. */
int32_t tec_find_driver(int32_t kind, const tec_driver **driver, char *error);
int32_t tec_check_ordinal(const tec_driver *d, int32_t ordinal, char *error);

const char *tec_driver_text(const tec_driver *d, int32_t status);
int32_t tec_to_device(const tec_driver *d, int32_t ordinal, tec_position *before);
void tec_from_device(const tec_driver *d, const tec_position *before);
int32_t tec_load_image(const tec_driver *d, void **module, const uint8_t *image, int64_t bytes, char *log, size_t room);
int32_t tec_copy(const tec_driver *d, void *to, const void *from, size_t bytes, int32_t way, void *stream);
int32_t tec_copy_now(const tec_driver *d, void *device, const void *host, size_t bytes);
int64_t tec_default_shared(const tec_driver *d, void *function);
int32_t tec_allow_shared(const tec_driver *d, void *function, int64_t bytes);
int32_t tec_launch_kernel(const tec_driver *d, void *function, const int64_t *geometry, void *stream, void **params, void *arguments, size_t bytes, int early);
int32_t tec_encode_map(const tec_driver *d, void *out, int64_t type, int64_t rank, void *address, const uint64_t *sizes, const uint64_t *strides, const uint32_t *box, int swizzle);

#endif
