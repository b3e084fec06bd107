/* The constant data of a network or a kernel, as tec/native/tables.py lays it out. Every member is 8 bytes: a number or a pointer. */
#ifndef TEC_MODEL_H
#define TEC_MODEL_H

#include "tec_abi.h"

#define TEC_MAGIC 0x6c65646f6d636574LL /* "tecmodel" */
#define TEC_LAYOUT 3

typedef int32_t (*tec_code)(void **buffers, int64_t *scalars);

/* Expressions over an environment of numbers, in postfix order; see `evaluate` in sizes.c. */
typedef struct {
  int64_t n_env;
  const char *const *names;   /* of the environment's entries */
  const int64_t *least;       /* the smallest size that each may be */
  int64_t n_exprs;
  const int64_t *begin;       /* n_exprs + 1: where each expression's code begins */
  const int64_t *code;
} tec_exprs;

/* Sums of products of atoms: all sizes of a network. */
typedef struct {
  int64_t n_atoms;
  const int64_t *atom;        /* the expression of each */
  int64_t n_products;
  const int64_t *product_begin, *product_atom;
  int64_t n_rows;
  const int64_t *row_begin, *row_product, *row_factor;
  int64_t n_limits;
  const int64_t *limit;       /* row, least, most of each */
  const char *const *limit_text; /* with \1 where the sizes stand */
  const int64_t *limit_status;
} tec_table;

/* An input or an output. */
typedef struct {
  const char *name;
  int64_t code, bits, ndim;
  const int64_t *shape;       /* -1 where the size is symbolic */
  const char *const *sizes;
  const int64_t *expr;        /* of each dimension */
  const int64_t *row;         /* of each dimension, in the table */
  const int64_t *symbol;      /* the number in the environment where the dimension is a name, else -1 */
  int64_t value, base;        /* base -1: it lies in another value */
  int64_t state;              /* -1 where it is none */
  const char *check;          /* of an output that is hidden: what to say where it is not true; else NULL */
} tec_place;

typedef struct {
  int64_t input, output, axis; /* axis -1: it does not grow */
  int64_t capacity, size;      /* numbers in the environment */
  int64_t grown;               /* the expression of the rows after a run */
  int64_t value;               /* of the input */
} tec_state;

typedef struct {
  tec_code code;               /* NULL copies */
  int64_t pointer, scalar;     /* where its arguments begin */
  const char *name;
  int64_t n_asserts;
  const char *const *asserts;
} tec_step;

/* A launch of a kernel on a GPU. */
typedef struct {
  int64_t kernel;
  int64_t begin, bytes;        /* of its arguments among all arguments */
  int64_t early;               /* 1: it may begin before the kernel ahead of it ends */
  int64_t n_offsets;
  const int64_t *offsets;      /* of the arguments from `begin` on */
} tec_launch;

/* A tensor map among a launch's arguments (CUtensorMap). */
typedef struct {
  int64_t begin, address;      /* where it goes; which address it is of, as in pointer_of */
  int64_t type, rank, item_bytes, swizzle;
  const int64_t *size, *stride, *box; /* rows of the table; numbers */
} tec_map;

/* Code for a GPU, and what is called of it. */
typedef struct {
  int64_t kind;                /* kDLCUDA or kDLROCM */
  int64_t n_images;
  const uint8_t *const *image;
  const int64_t *image_bytes;
  int64_t n_kernels;
  const char *const *kernels;
  const int64_t *kernel_image;
} tec_images;

/* The steps of a network for a GPU. */
typedef struct {
  tec_images code;
  int64_t n_launches;
  const tec_launch *launches;
  const int64_t *geometry;     /* rows: grid, work-group, bytes of dynamic shared memory; 7 of each launch */
  const int64_t *step_begin;   /* n_steps + 1: a step's launches */
  const int64_t *copies;       /* of each step: 1 where it copies a value */
  int64_t arguments_bytes;
  const int64_t *pointer_begin; /* n_launches + 1 */
  const int64_t *pointer_at, *pointer_of; /* where an address goes; which: an argument's number, behind them the scratch memory's */
  int64_t n_numbers;
  const int64_t *numbers;      /* where it goes, its bytes, the row */
  int64_t n_scratch_calls;
  const int64_t *scratch_begin;
  int64_t n_scratch;
  const int64_t *scratch_row;
  int64_t n_maps;
  const tec_map *maps;
  const int64_t *map_begin;    /* n_launches + 1 */
} tec_gpu;

typedef struct tec_api tec_api;
typedef struct tec_gpu_api tec_gpu_api;

struct tec_model {
  int64_t magic, layout;
  const tec_api *api;
  const char *name, *target;
  const int64_t *features;     /* pairs of (leaf << 32 | register, bit); see machine.c */
  int64_t n_features;
  const char *const *feature_names;
  const uint8_t *tables;
  int64_t tables_bytes, tables_hash;
  const uint8_t *weights;
  int64_t weights_bytes, weights_hash;
  const char *weights_file;    /* NULL where they are in the library */
  int64_t file_bytes;          /* of the library's file, 0 where it is not known */
  tec_exprs exprs;
  tec_table table;
  int64_t n_inputs;            /* all of them, states too */
  const tec_place *inputs;
  int64_t n_outputs;
  const tec_place *outputs;
  int64_t n_states;
  const tec_state *states;
  int64_t n_values;
  const int64_t *value_base, *value_offset, *value_slot, *value_bytes; /* value_slot: -1 for none */
  int64_t n_bases;             /* base 0 is the arena */
  const int64_t *base_weight;  /* the place among the weights, -1 for what is no weight */
  const int64_t *base_own;     /* the value of an output that nobody is given, else -1 */
  int64_t arena_row;           /* -1 where the arena is made of slots */
  int64_t n_slots;
  const int64_t *slot_begin, *slot_row;
  int64_t n_aligned;
  const int64_t *aligned_row;
  int64_t n_arguments;
  const int64_t *argument;     /* the value of each */
  int64_t n_scalars;
  const int64_t *scalar_row;
  int64_t n_steps;
  const tec_step *steps;
  int64_t n_nodes;             /* words; 0 where all steps follow one another */
  const int64_t *nodes;
  const tec_gpu *gpu;          /* NULL for a CPU */
  const tec_gpu_api *gpu_api;
  int64_t n_others;            /* the same network for other targets, which are tried in order where this machine cannot run this one */
  const tec_model *const *others;
};

/* A kernel: a function of tensors and numbers. */
typedef struct {
  const char *name;
  int64_t code, bits, ndim, writes, align, strided;
} tec_tensor;

typedef struct {
  int64_t op, tensor, dim;     /* what is looked at */
  int64_t to, expr;            /* the number in the environment that is set; the expression */
} tec_bind;

typedef struct tec_kernel_gpu_api tec_kernel_gpu_api;

/* A function for one target. */
typedef struct tec_kernel {
  tec_code code;               /* NULL for a GPU */
  const char *target;
  const char *name;
  const char *prototype;
  const int64_t *features;
  int64_t n_features;
  const char *const *feature_names;
  tec_exprs exprs;
  int64_t value;               /* the number in the environment that holds what an expression is solved for */
  int64_t n_tensors;
  const tec_tensor *tensors;
  int64_t n_scalars;
  const int64_t *scalar_env;   /* where shapes ask for it: its number in the environment, else -1 */
  const int64_t *scalar_bits;  /* of whole numbers, negative where signed; 0 for others */
  int64_t n_binds;
  const tec_bind *binds;
  int64_t n_implicit;
  const int64_t *implicit;
  int64_t alias_ok;
  int64_t n_asserts;
  const char *const *asserts;
  const tec_images *images;    /* NULL for a CPU */
  int64_t n_program;
  const int64_t *program;      /* what launches kernels: words, see gpu_kernels.c */
  int64_t n_scratch;
  const tec_kernel_gpu_api *gpu;
} tec_kernel;

/* An exported function: the same for each of its targets. */
typedef struct tec_function {
  int64_t magic, layout;
  const char *name;
  const char *targets;
  int64_t n_kernels;
  const tec_kernel *const *kernels;
} tec_function;

enum { BIND_SHAPE, BIND_STRIDE, CHECK_SHAPE, CHECK_STRIDE, SOLVE_SHAPE, SOLVE_STRIDE, SET_ZERO };
enum { NODE_STRETCH, NODE_LOOP, NODE_BRANCH };
enum { HOST_LAUNCH, HOST_ALLOC, HOST_FREE, HOST_FOR, HOST_IF, HOST_ASSERT };
enum { ARG_BUFFER, ARG_SCALAR, ARG_SIZE, ARG_CONSTANT, ARG_MAP };

#endif
