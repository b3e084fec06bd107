// Networks that tec compiled to shared objects, from Go.
//
// `tec compile classifier.onnx -o classifier.so` writes the library and its header, classifier.h. Put both into the folder of
// this package and run `go build`. For a network of another name, change it in the first lines below.
package main

// #cgo CFLAGS: -I${SRCDIR}
// #cgo LDFLAGS: -L${SRCDIR} -l:classifier.so -Wl,-rpath,${SRCDIR}
// #include <stdlib.h>
// #include "classifier.h"
//
// /* A DLTensor in C's memory: Go's pointers may not lie in memory that C reads. */
// static DLTensor *tensor_of(void *data, uint8_t code, uint8_t bits, int64_t *shape, int32_t ndim) {
//   DLTensor *t = calloc(1, sizeof *t);
//   if (t) {
//     t->data = data, t->shape = shape, t->ndim = ndim, t->device.device_type = kDLCPU;
//     t->dtype.code = code, t->dtype.bits = bits, t->dtype.lanes = 1;
//   }
//   return t;
// }
import "C"

import (
	"fmt"
	"runtime"
	"unsafe"
)

// Element is a type whose memory is an element of a tensor.
type Element interface {
	int8 | int16 | int32 | int64 | uint8 | uint16 | uint32 | uint64 | float32 | float64
}

// Tensor is a host array in row-major order: DLPack's code and bits of an element, sizes, and the elements' bytes.
type Tensor struct {
	Code, Bits uint8
	Shape      []int64
	Bytes      []byte
}

func kind[T Element]() (code, bits uint8) {
	var zero T
	bits = uint8(8 * unsafe.Sizeof(zero))
	switch any(zero).(type) {
	case float32, float64:
		return 2, bits
	case uint8, uint16, uint32, uint64:
		return 1, bits
	}
	return 0, bits
}

// Of is a tensor over the memory of data, which must have as many elements as the shape.
func Of[T Element](data []T, shape ...int64) (Tensor, error) {
	count := int64(1)
	for _, d := range shape {
		count *= d
	}
	if count != int64(len(data)) {
		return Tensor{}, fmt.Errorf("%d elements do not make the shape %v", len(data), shape)
	}
	code, bits := kind[T]()
	t := Tensor{Code: code, Bits: bits, Shape: shape}
	if len(data) > 0 {
		t.Bytes = unsafe.Slice((*byte)(unsafe.Pointer(&data[0])), len(data)*int(bits/8))
	}
	return t, nil
}

// Data is the tensor's elements. T must be its type.
func Data[T Element](t Tensor) ([]T, error) {
	code, bits := kind[T]()
	if code != t.Code || bits != t.Bits {
		return nil, fmt.Errorf("the elements have DLPack's type %d of %d bits, not %d of %d", t.Code, t.Bits, code, bits)
	}
	if len(t.Bytes) == 0 {
		return nil, nil
	}
	return unsafe.Slice((*T)(unsafe.Pointer(&t.Bytes[0])), len(t.Bytes)/int(bits/8)), nil
}

// Net is a network that can run. Calls on one net wait for each other: use one for each goroutine that computes.
type Net struct{ net *C.tec_net }

// NewNet makes a net of the library that the program is linked with. Close gives its memory back.
func NewNet() (*Net, error) {
	n := &Net{}
	status := C.tec_net_create(nil, nil, &n.net)
	if err := n.failed(status); err != nil {
		n.Close()
		return nil, err
	}
	return n, nil
}

func (n *Net) failed(status C.int32_t) error {
	if status == C.TEC_OK {
		return nil
	}
	return fmt.Errorf("%s", C.GoString(C.tec_net_error(n.net)))
}

// Close may be called more than once.
func (n *Net) Close() {
	C.tec_net_destroy(n.net)
	n.net = nil
}

// Run gives copies of the outputs for inputs in the order of the header.
func (n *Net) Run(inputs ...Tensor) ([]Tensor, error) {
	rows := (*[1 << 20]*C.DLTensor)(C.calloc(C.size_t(len(inputs)+1), C.size_t(unsafe.Sizeof(uintptr(0)))))
	defer C.free(unsafe.Pointer(rows))
	for k, t := range inputs {
		data := C.CBytes(t.Bytes)
		defer C.free(data)
		shape := (*C.int64_t)(C.malloc(C.size_t(8*len(t.Shape) + 8)))
		defer C.free(unsafe.Pointer(shape))
		for d, size := range t.Shape {
			unsafe.Slice(shape, len(t.Shape))[d] = C.int64_t(size)
		}
		rows[k] = C.tensor_of(data, C.uint8_t(t.Code), C.uint8_t(t.Bits), shape, C.int32_t(len(t.Shape)))
		defer C.free(unsafe.Pointer(rows[k]))
	}
	defer runtime.KeepAlive(n)
	if err := n.failed(C.tec_net_run(n.net, &rows[0], C.int32_t(len(inputs)), nil, 0)); err != nil {
		return nil, err
	}
	results := make([]Tensor, int(C.tec_net_output_count(n.net)))
	for k := range results {
		var t C.DLTensor
		if err := n.failed(C.tec_net_result(n.net, C.int32_t(k), &t)); err != nil {
			return nil, err
		}
		if t.device.device_type != C.kDLCPU {
			return nil, fmt.Errorf("output %d lies on a GPU: compile for a CPU, or copy it in C", k)
		}
		r := Tensor{Code: uint8(t.dtype.code), Bits: uint8(t.dtype.bits), Shape: make([]int64, int(t.ndim))}
		count := int64(1)
		for d := range r.Shape {
			r.Shape[d] = int64(unsafe.Slice(t.shape, int(t.ndim))[d])
			count *= r.Shape[d]
		}
		if bytes := count * int64(r.Bits) / 8; bytes > 0 {
			r.Bytes = append([]byte(nil), unsafe.Slice((*byte)(unsafe.Add(t.data, t.byte_offset)), bytes)...)
		}
		results[k] = r
	}
	return results, nil
}
