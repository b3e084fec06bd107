/* What the files of the runtime share. */
#ifndef TEC_RUNTIME_H
#define TEC_RUNTIME_H

#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>

#include "model.h"

#define ALIGN 64
#define ERROR_BYTES 500

typedef struct {
  char *data;
  size_t bytes;
} block;

/* A state's memory. One that does not grow has two blocks: the run reads one and writes the other. */
typedef struct {
  block held[2];
  int now;                     /* which block has the state */
  int filled;                  /* whether a run made it */
  int64_t shape[2][64];        /* of the blocks; that of a growing state has its capacity */
} state;

enum { TEC_TO_DEVICE = 1, TEC_TO_HOST = 2, TEC_WITHIN = 3 };

typedef struct {
  block kept;                  /* memory of the net's own */
  void *data;                  /* where the run wrote it */
  DLDevice device;
  int64_t shape[64];
} result;

typedef struct tec_gpu_net tec_gpu_net;

struct tec_net {
  const tec_api *api;          /* stays first: other libraries' functions find their way by it */
  pthread_mutex_t lock;
  const tec_model *model;
  int32_t ready, has_run, threads;
  int64_t capacity;            /* of growing states at first */
  const uint8_t *weights;
  void *mapped;
  size_t mapped_bytes;
  tec_port *ports;             /* of the inputs and outputs that callers see */
  int32_t *input_at, *output_at; /* their numbers among all */
  int32_t n_inputs, n_outputs;
  int64_t *env, *bound_env;    /* of this run, and of the numbers that are there */
  int64_t *atoms, *products, *rows, *stack, *slot_start, *offset;
  uint8_t *known;
  int32_t is_bound;
  int64_t arena_bytes;
  block arena;
  block *staged;               /* inputs that could not be read where they are, by their number */
  block *own;                  /* outputs that nobody is given, by their base */
  int64_t *base;               /* addresses */
  void **pointers;
  int64_t *scalars;
  void **steps;                /* three words a step */
  int64_t *cells;              /* of loops: room for four words for each argument */
  int64_t *before;
  state *states;
  int64_t *lengths;            /* of each state's rows */
  int64_t *after;
  result *results;             /* of all outputs */
  int32_t is_fresh;            /* sizes were bound that the GPU's launches do not know yet */
  int32_t device_type, ordinal;
  int32_t has_waited;          /* the last run's work is done */
  block host;                  /* on the way to or from a device */
  tec_gpu_net *gpu;            /* NULL for a CPU */
  char error[ERROR_BYTES];
};

/* text.c */
int32_t tec_fail(char *text, int32_t status, const char *format, ...) __attribute__((format(printf, 3, 4)));
void tec_shape_text(char *out, size_t room, const int64_t *shape, int64_t ndim);
void tec_type_text(char *out, size_t room, int64_t code, int64_t bits, int64_t lanes);

/* sizes.c */
int tec_evaluate(const tec_exprs *e, int64_t expr, const int64_t *env, const uint8_t *known, int64_t *value);
int32_t tec_bind_sizes(tec_net *net);

/* memory.c: where the net computes */
int32_t tec_take(tec_net *net, block *b, size_t bytes, const char *what);
void tec_give(tec_net *net, block *b);
int32_t tec_move(tec_net *net, void *to, const void *from, size_t bytes);
int32_t tec_clear(tec_net *net, void *at, size_t bytes);
int32_t tec_read(tec_net *net, const void *at, size_t bytes, const void **host);
int32_t tec_write_tensor(tec_net *net, const void *from, const DLTensor *t);
int32_t tec_read_tensor(tec_net *net, void *to, const DLTensor *t);
int tec_is_on_device(const tec_net *net, const DLTensor *t);

/* tensors.c */
int32_t tec_check_tensor(char *error, const char *what, const DLTensor *t, int64_t code, int64_t bits, int64_t ndim, int data, const DLDevice *device);
int tec_is_on_host(const DLTensor *t);
int64_t tec_elements(const DLTensor *t);
int tec_is_compact(const DLTensor *t);
void tec_extent(const DLTensor *t, uintptr_t *begin, uintptr_t *end);
void tec_copy_strided(char *compact, const DLTensor *t, int to_tensor);
int tec_grow(block *b, size_t bytes);

/* machine.c */
int32_t tec_check_machine(char *error, const char *target, const int64_t *features, int64_t n, const char *const *names);

/* weights.c */
uint64_t tec_hash(const uint8_t *data, size_t bytes);
int32_t tec_check_file(tec_net *net);
int32_t tec_find_weights(tec_net *net, const tec_options *options);

/* states.c */
int32_t tec_state_sizes(tec_net *net);
int32_t tec_prepare_states(tec_net *net);
void tec_advance_states(tec_net *net);

/* steps.c */
int32_t tec_run_plan(tec_net *net);
int64_t tec_address(const tec_net *net, int64_t value);

/* threads.c */
int32_t tec_default_threads(void);
void tec_use_threads(int32_t threads);  /* of the calling thread's loops, until it is said again */
void tec_grow_pool(int32_t threads);
void tec_after_fork(void);

/* The pool's object (tec/codegen/support): the thread pool, and the loops over steps. */
int32_t pool_parallel_work(int32_t (*body)(void *, int64_t, int64_t), void *closure, int64_t n, int64_t clocks);
void tec_pool_configure(int32_t threads);
void tec_pool_reset(void);
void tec_pool_stop(void);
void tec_heap_trim(void);
int64_t tec_run_steps(void **steps, int64_t n);
int64_t tec_run_trips(int64_t *loop);

/* What a network for a GPU has beside the rest (gpu.c). Each of these but `open` is called with the device entered. */
struct tec_gpu_api {
  int32_t (*open)(tec_net *, const tec_options *);
  void (*close)(tec_net *);
  int32_t (*enter)(tec_net *);
  void (*leave)(tec_net *);
  int32_t (*take)(tec_net *, block *, size_t);
  void (*give)(tec_net *, block *);
  int32_t (*copy)(tec_net *, void *, const void *, size_t, int32_t);
  int32_t (*zero)(tec_net *, void *, size_t);
  int32_t (*wait)(tec_net *);
  int32_t (*bind)(tec_net *);
  int32_t (*steps)(tec_net *, int64_t, int64_t);
  int32_t (*is_queued)(const tec_net *); /* a run on device tensors need not be waited for */
  int64_t (*held)(const tec_net *);
};

/* What functions for a GPU have beside the rest (gpu_kernels.c). */
struct tec_kernel_gpu_api {
  int32_t (*open)(const tec_kernel *, int32_t ordinal, void **code, char *error);
  int32_t (*call)(const tec_kernel *, void *code, const DLTensor *const *, const int64_t *scalars, int64_t *env, uint8_t *known, void *stream, char *error);
};

struct tec_api {
  int64_t abi;
  int32_t (*create)(const tec_model *, const tec_options *, tec_net **);
  void (*destroy)(tec_net *);
  int32_t (*run)(tec_net *, const DLTensor *const *, int32_t, DLTensor *const *, int32_t);
  int32_t (*result)(tec_net *, int32_t, DLTensor *);
  int32_t (*shape)(tec_net *, const DLTensor *const *, int32_t, int32_t, int64_t *, int32_t);
  int32_t (*reset)(tec_net *);
  int64_t (*rows)(const tec_net *);
  int32_t (*truncate)(tec_net *, int64_t);
  int32_t (*set_threads)(tec_net *, int32_t);
  int64_t (*bytes)(const tec_net *);
  const char *(*error)(const tec_net *);
  int32_t (*count)(const tec_net *, int32_t);
  const tec_port *(*port)(const tec_net *, int32_t, int32_t);
  DLDevice (*device)(const tec_net *);
  const char *(*target)(const tec_net *); /* from abi 2 on */
};
extern const tec_api tec_api_1;

#endif
