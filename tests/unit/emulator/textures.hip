// HIP's texture and surface functions, one a kernel: compiled with HIP's own headers.
#include <hip/hip_runtime.h>
extern "C" __device__ const __attribute__((address_space(4))) int __oclc_ISA_version = ISA; // what ROCm's device library asks
#define ARGS hipTextureObject_t t, const float *x, const float *y, const float *z, float4 *o
#define I threadIdx.x
extern "C" __global__ void one(ARGS) { o[I] = tex1D<float4>(t, x[I]); }
extern "C" __global__ void two(ARGS) { o[I] = tex2D<float4>(t, x[I], y[I]); }
extern "C" __global__ void three(ARGS) { o[I] = tex3D<float4>(t, x[I], y[I], z[I]); }
extern "C" __global__ void layers(ARGS) { o[I] = tex2DLayered<float4>(t, x[I], y[I], (int)z[I]); }
#ifndef __gfx90a__
extern "C" __global__ void gather(ARGS) { o[I] = tex2Dgather<float4>(t, x[I], y[I], 2); }
#endif
extern "C" __global__ void surface(hipSurfaceObject_t s) {
  if (I < 9) {
    float4 v;
    surf2Dread(&v, s, I * 16, 1);
    v.x += 1; v.y += 1; v.z += 1; v.w += 1;
    surf2Dwrite(v, s, I * 16 + 16, 2);
  }
}
