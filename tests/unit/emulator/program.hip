// A program as hipcc compiles them, with what it needs of hip_runtime.h: clang alone compiles it. Right: status 0. With an argument: out of bounds.
#include <stddef.h>
#define __host__ __attribute__((host))
#define __device__ __attribute__((device))
#define __global__ __attribute__((global))
#define __shared__ __attribute__((shared))
#define __constant__ __attribute__((constant))
#define __managed__ __attribute__((managed))
struct dim3 { unsigned x, y, z; __host__ __device__ constexpr dim3(unsigned a=1,unsigned b=1,unsigned c=1):x(a),y(b),z(c){} };
typedef struct ihipStream_t *hipStream_t; typedef struct ihipEvent_t *hipEvent_t;
typedef int hipError_t;
extern "C" {
hipError_t hipLaunchKernel(const void*, dim3, dim3, void**, size_t, hipStream_t);
hipError_t __hipPushCallConfiguration(dim3, dim3, size_t, hipStream_t);
hipError_t __hipPopCallConfiguration(dim3*, dim3*, size_t*, hipStream_t*);
hipError_t hipMalloc(void**, size_t); hipError_t hipFree(void*); hipError_t hipMemcpy(void*, const void*, size_t, int);
hipError_t hipMemcpyToSymbol(const void*, const void*, size_t, size_t, int);
hipError_t hipMemcpyFromSymbol(void*, const void*, size_t, size_t, int);
hipError_t hipDeviceSynchronize(); hipError_t hipGetLastError(); const char* hipGetErrorString(hipError_t);
hipError_t hipStreamCreate(hipStream_t*); hipError_t hipStreamSynchronize(hipStream_t);
hipError_t hipEventCreate(hipEvent_t*); hipError_t hipEventRecord(hipEvent_t, hipStream_t); hipError_t hipEventElapsedTime(float*, hipEvent_t, hipEvent_t); hipError_t hipEventSynchronize(hipEvent_t);
hipError_t hipOccupancyMaxActiveBlocksPerMultiprocessor(int*, const void*, int, size_t);
hipError_t hipHostMalloc(void**, size_t, unsigned);
}
#define threadIdx_x __builtin_amdgcn_workitem_id_x()
#define blockIdx_x __builtin_amdgcn_workgroup_id_x()
#define blockDim_x __builtin_amdgcn_workgroup_size_x()
#define __syncthreads() (__builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup"), __builtin_amdgcn_s_barrier(), __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup"))

#include <cstdio>
#include <cstdlib>
#include <vector>
#include <thread>
#define CHECK(x) do { int st_ = (x); if (st_) { printf("%s: %s\n", #x, hipGetErrorString(st_)); exit(2); } } while (0)
__constant__ float factor[4];
__device__ int counter;
__managed__ int both[2] = {40, -7};
__global__ void count() { both[0] += 2; }
template <typename T> __global__ void axpy(T a, const T *x, T *y, int n) {
  int i = blockIdx_x * blockDim_x + threadIdx_x;
  if (i < n) { y[i] = a * factor[1] * x[i] + y[i]; __hip_atomic_fetch_add(&counter, 1, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT); }
}
__global__ void reverse(const int *in, int *out) {
  extern __shared__ int s[];
  int t = threadIdx_x;
  s[t] = in[t];
  __syncthreads();
  out[t] = s[255 - t];
}
struct Big { float v[5]; char c; double d; };
__global__ void bystruct(Big b, double *out) { if (threadIdx_x == 0) out[0] = b.v[4] + b.c + b.d; }
int main(int argc, char **) {
  int n = 1000; std::vector<float> x(n), y(n, 1.f);
  for (int i = 0; i < n; i++) x[i] = i;
  float f[4] = {0, 3, 0, 0}; int zero = 0;
  CHECK(hipMemcpyToSymbol((const void*)factor, f, sizeof f, 0, 1)); CHECK(hipMemcpyToSymbol((const void*)&counter, &zero, 4, 0, 1));
  float *dx, *dy; CHECK(hipMalloc((void**)&dx, 4 * n)); CHECK(hipMalloc((void**)&dy, 4 * n));
  CHECK(hipMemcpy(dx, x.data(), 4 * n, 1)); CHECK(hipMemcpy(dy, y.data(), 4 * n, 1));
  hipEvent_t a, b; CHECK(hipEventCreate(&a)); CHECK(hipEventCreate(&b)); CHECK(hipEventRecord(a, 0));
  axpy<float><<<dim3((n + 255) / 256), dim3(256), 0, 0>>>(2.f, dx, dy, argc > 1 ? 2000 : n);
  CHECK(hipGetLastError());
  CHECK(hipEventRecord(b, 0)); CHECK(hipEventSynchronize(b)); float ms; CHECK(hipEventElapsedTime(&ms, a, b));
  CHECK(hipMemcpy(y.data(), dy, 4 * n, 2));
  for (int i = 0; i < n; i++) if (y[i] != 6 * i + 1) { printf("wrong %d %f\n", i, y[i]); return 1; }
  int c; CHECK(hipMemcpyFromSymbol(&c, (const void*)&counter, 4, 0, 2)); if (c != n) { printf("counter %d\n", c); return 1; }
  int *in, *out; CHECK(hipHostMalloc((void**)&in, 1024, 0)); CHECK(hipHostMalloc((void**)&out, 1024, 0));
  for (int i = 0; i < 256; i++) in[i] = i;
  hipStream_t s; CHECK(hipStreamCreate(&s));
  reverse<<<dim3(1), dim3(256), 1024, s>>>(in, out); CHECK(hipStreamSynchronize(s));
  for (int i = 0; i < 256; i++) if (out[i] != 255 - i) { printf("reverse %d\n", i); return 1; }
  double *d; CHECK(hipMalloc((void**)&d, 8)); Big big{{1,2,3,4,5}, 7, 0.5};
  bystruct<<<dim3(1), dim3(64), 0, 0>>>(big, d); double r; CHECK(hipMemcpy(&r, d, 8, 2)); if (r != 12.5) { printf("struct %f\n", r); return 1; }
  int groups; CHECK(hipOccupancyMaxActiveBlocksPerMultiprocessor(&groups, (const void*)reverse, 256, 1024));
  both[1] += 1;
  count<<<dim3(1), dim3(1), 0, 0>>>(); CHECK(hipDeviceSynchronize()); if (both[0] != 42 || both[1] != -6) { printf("managed %d %d\n", both[0], both[1]); return 1; }
  std::thread t([&] { for (int i = 0; i < 3; i++) { reverse<<<dim3(1), dim3(256), 1024, s>>>(in, out); CHECK(hipDeviceSynchronize()); } }); 
  for (int i = 0; i < 3; i++) { axpy<float><<<dim3(4), dim3(256), 0, 0>>>(2.f, dx, dy, n); CHECK(hipDeviceSynchronize()); }
  t.join();
  printf("all right, %d groups, %.4f ms\n", groups, ms);
}
