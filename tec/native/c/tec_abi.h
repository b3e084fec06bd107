/* The C interface of libraries that tec writes, the same in all of them. It stands in each library's own header.
 *
 * A tec_net is one network with working memory of its own. Nets of one library share its code and weights. There is no state
 * beside them: any number of nets of any number of libraries may run at the same time. Calls on one net wait for each other.
 */
#ifndef TEC_ABI_H
#define TEC_ABI_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* DLPack's tensors (github.com/dmlc/dlpack): include dlpack.h before this file, or take these, which are the same. */
#ifndef DLPACK_DLPACK_H_
#define DLPACK_DLPACK_H_
typedef enum { kDLCPU = 1, kDLCUDA = 2, kDLCUDAHost = 3, kDLROCM = 10, kDLROCMHost = 11 } DLDeviceType;
typedef struct { DLDeviceType device_type; int32_t device_id; } DLDevice;
typedef enum { kDLInt = 0U, kDLUInt = 1U, kDLFloat = 2U, kDLOpaqueHandle = 3U, kDLBfloat = 4U, kDLComplex = 5U, kDLBool = 6U } DLDataTypeCode;
typedef struct { uint8_t code; uint8_t bits; uint16_t lanes; } DLDataType;
typedef struct {
  void *data;
  DLDevice device;
  int32_t ndim;
  DLDataType dtype;
  int64_t *shape;      /* elements of each dimension */
  int64_t *strides;    /* in elements; NULL for a compact row-major tensor */
  uint64_t byte_offset;
} DLTensor;
#endif

#define TEC_ABI 2

/* What every call returns. tec_net_error has the text. */
enum {
  TEC_OK = 0,
  TEC_INVALID = 1,       /* an argument is wrong: null, another type, shape or device */
  TEC_OUT_OF_MEMORY = 2,
  TEC_DAMAGED = 3,       /* the library or its file of weights is cut off or changed */
  TEC_UNSUPPORTED = 4,   /* this machine cannot run the code */
  TEC_FAILED = 5         /* the network refused its data, such as an index that is outside */
};

typedef struct tec_model tec_model; /* a library's network: constant data */
typedef struct tec_net tec_net;     /* a network that can run */

/* Later members are 0 where `bytes` says that the caller does not know them. */
typedef struct tec_options {
  size_t bytes;         /* sizeof(tec_options) */
  int32_t threads;      /* of parallel loops, the caller's counted; 0: TEC_NUM_THREADS, or the cores that the process may use */
  int32_t skip_checksum; /* 1: do not read all weights at the start to verify them */
  const char *weights;  /* the file of weights of a library that has them beside it; NULL: in the library's folder */
  int64_t capacity;     /* rows that growing states have room for at first; 0: 64. It doubles where that is too little */
  int32_t device;       /* of a network for a GPU: which one */
  int32_t reserved;
  void *stream;         /* of a network for a GPU: the CUstream or hipStream_t to work in. NULL: a stream of the net's own, for which each run waits */
} tec_options;

/* An input or an output. */
typedef struct tec_port {
  const char *name;
  DLDataType dtype;
  int32_t ndim;
  const int64_t *shape;       /* of each dimension the elements, -1 where the inputs' shapes give it */
  const char *const *sizes;   /* the same in words: "3", "batch", "(n + 1)" */
} tec_port;

/* A network of `model`; NULL is that of the library which this function belongs to. options: NULL for defaults. *net is made where there is
 * memory for it, also if the call fails: tec_net_error(*net) then says why. It must be destroyed in either case. */
int32_t tec_net_create(const tec_model *model, const tec_options *options, tec_net **net);
void tec_net_destroy(tec_net *net);

/* What the last call on the net that failed had to say; "" if none did. It is valid until the next call on the net. */
const char *tec_net_error(const tec_net *net);

/* Inputs and outputs; NULL for an index that is out of range. States, which the net remembers from run to run, are neither. */
int32_t tec_net_input_count(const tec_net *net);
int32_t tec_net_output_count(const tec_net *net);
const tec_port *tec_net_input(const tec_net *net, int32_t index);
const tec_port *tec_net_output(const tec_net *net, int32_t index);

/* Run on inputs in order. outputs: tensors to write, of the shapes that come out; an entry or all of it may be NULL: the net then keeps that
 * output, and tec_net_result gives it. Inputs with strides, and such that are not aligned to their elements, are copied. An output must not share
 * memory with an input or another output. After a failure states are as they were, and what outputs hold is open.
 *
 * A network for a GPU takes tensors in the host's memory and compact ones on its device, in any mixture, and keeps its outputs on the device. It returns
 * when the outputs are there. With options.stream, a run on device tensors alone returns when its work is queued in that stream. */
int32_t tec_net_run(tec_net *net, const DLTensor *const *inputs, int32_t n_inputs, DLTensor *const *outputs, int32_t n_outputs);

/* The last run's output, in the net's memory, until its next run. Of the outputs that the caller gave, the caller's tensor. */
int32_t tec_net_result(tec_net *net, int32_t index, DLTensor *tensor);

/* The shape that output `index` will have for these inputs: `shape` has room for `room` numbers. Only dtype, ndim and shape of the inputs are read. */
int32_t tec_net_shape(tec_net *net, const DLTensor *const *inputs, int32_t n_inputs, int32_t index, int64_t *shape, int32_t room);

/* States: as before the first run; the rows that growing states have (the most of them); the first rows alone are kept. */
int32_t tec_net_reset(tec_net *net);
int64_t tec_net_rows(const tec_net *net);
int32_t tec_net_truncate(tec_net *net, int64_t rows);

/* How many threads the net's parallel loops use from now on, as in tec_options. */
int32_t tec_net_threads(tec_net *net, int32_t threads);

/* Where the net computes, and the target that its code was compiled for: of a library with several, the first that this machine can run. */
DLDevice tec_net_device(const tec_net *net);
const char *tec_net_target(const tec_net *net);

/* Bytes of working memory and of states that the net holds, the weights not counted. */
int64_t tec_net_bytes(const tec_net *net);

/* The model that the library of this function has; NULL for a library of kernels. Its name and its (first) target, as they were compiled. */
const tec_model *tec_library_model(void);
const char *tec_model_name(const tec_model *model);
const char *tec_model_target(const tec_model *model);

/* Of a library of kernels: what went wrong, written by a call that returns not TEC_OK. */
typedef struct tec_error {
  char text[500];
} tec_error;

#ifdef __cplusplus
}
#endif
#endif
