// Kernels as people write them in HIP, for clang alone: no headers of ROCm's.
#define GLOBAL extern "C" __attribute__((global)) void
#define DEVICE __attribute__((device))
#define SHARED __attribute__((shared))
#define TID ((int)__builtin_amdgcn_workitem_id_x())
#define BID ((int)__builtin_amdgcn_workgroup_id_x())
#define SIZE 256
#define GID (BID * SIZE + TID)
#define SYNC (__builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup"), __builtin_amdgcn_s_barrier(), __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup"))
#define ADD(p, v) __hip_atomic_fetch_add(p, v, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT)
typedef unsigned int uint;
typedef unsigned long long u64;

GLOBAL saxpy(float a, const float *x, float *y, int n) { if (GID < n) y[GID] = a * x[GID] + y[GID]; }

GLOBAL reverse(const int *in, int *out) {
  SHARED int s[SIZE];
  s[TID] = in[GID];
  SYNC;
  out[GID] = s[SIZE - 1 - TID];
}

GLOBAL transpose(const float *in, float *out, int n) {  // tiles of 16 by 16, one word of padding
  SHARED float tile[16][17];
  int x = TID & 15, y = TID >> 4, tiles = n / 16, bx = BID % tiles, by = BID / tiles;
  tile[y][x] = in[(by * 16 + y) * n + bx * 16 + x];
  SYNC;
  out[(bx * 16 + y) * n + by * 16 + x] = tile[x][y];
}

GLOBAL gemm(const float *a, const float *b, float *c, int n) {
  SHARED float as[16][16], bs[16][16];
  int x = TID & 15, y = TID >> 4, tiles = n / 16, row = BID / tiles * 16 + y, col = BID % tiles * 16 + x;
  float sum = 0;
  for (int k = 0; k < n; k += 16) {
    as[y][x] = a[row * n + k + x];
    bs[y][x] = b[(k + y) * n + col];
    SYNC;
    for (int j = 0; j < 16; j++) sum += as[y][j] * bs[j][x];
    SYNC;
  }
  c[row * n + col] = sum;
}

GLOBAL reduce(const float *x, float *out, int n) {  // a tree in LDS, one sum a block
  SHARED float s[SIZE];
  float v = 0;
  for (int i = GID; i < n; i += SIZE * 4) v += x[i];
  s[TID] = v;
  SYNC;
  for (int k = SIZE / 2; k > 0; k >>= 1) {
    if (TID < k) s[TID] += s[TID + k];
    SYNC;
  }
  if (TID == 0) out[BID] = s[0];
}

GLOBAL shuffle_sum(const int *x, int *out) {  // lanes exchange by ds_bpermute, as __shfl_xor does
  int lane = __builtin_amdgcn_mbcnt_hi(-1, __builtin_amdgcn_mbcnt_lo(-1, 0)), v = x[GID];
  for (int k = 16; k > 0; k >>= 1) v += __builtin_amdgcn_ds_bpermute((lane ^ k) << 2, v);
  out[GID] = v;
}

GLOBAL scan(const int *in, int *out) {  // Hillis and Steele, two buffers
  SHARED int s[2][SIZE];
  int at = 0;
  s[0][TID] = in[GID];
  for (int k = 1; k < SIZE; k <<= 1) {
    SYNC;
    s[1 - at][TID] = s[at][TID] + (TID >= k ? s[at][TID - k] : 0);
    at = 1 - at;
  }
  out[GID] = s[at][TID];
}

GLOBAL histogram(const unsigned char *in, uint *bins, int n) {
  SHARED uint local[256];
  local[TID] = 0;
  SYNC;
  for (int i = GID; i < n; i += 2 * SIZE) __hip_atomic_fetch_add(&local[in[i]], 1u, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_WORKGROUP);
  SYNC;
  if (local[TID]) ADD(&bins[TID], local[TID]);
}

GLOBAL last_block(const int *x, int *partial, uint *count, int *out, int blocks) {  // whoever comes last adds what the others left
  SHARED int s[SIZE];
  SHARED bool last;
  s[TID] = x[GID];
  SYNC;
  for (int k = SIZE / 2; k > 0; k >>= 1) {
    if (TID < k) s[TID] += s[TID + k];
    SYNC;
  }
  if (TID == 0) {
    partial[BID] = s[0];
    last = __hip_atomic_fetch_add(count, 1u, __ATOMIC_ACQ_REL, __HIP_MEMORY_SCOPE_AGENT) == (uint)blocks - 1;
  }
  SYNC;
  if (last && TID == 0) {
    int sum = 0;
    for (int i = 0; i < blocks; i++) sum += partial[i];
    *out = sum;
  }
}

GLOBAL spin_lock(uint *lock, int *value) {
  if (TID == 0) {
    uint free = 0;
    while (!__hip_atomic_compare_exchange_strong(lock, &free, 1u, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT)) free = 0;
    *value = *value * 3 + 1;
    __hip_atomic_store(lock, 0u, __ATOMIC_RELEASE, __HIP_MEMORY_SCOPE_AGENT);
  }
}

GLOBAL stencil(const float *in, float *out, int n) {  // neighbours through LDS, with a halo
  SHARED float s[SIZE + 2];
  int i = GID;
  s[TID + 1] = i < n ? in[i] : 0.f;
  if (TID == 0) s[0] = i > 0 && i - 1 < n ? in[i - 1] : 0.f;
  if (TID == SIZE - 1) s[SIZE + 1] = i + 1 < n ? in[i + 1] : 0.f;
  SYNC;
  if (i < n) out[i] = 0.25f * s[TID] + 0.5f * s[TID + 1] + 0.25f * s[TID + 2];
}

GLOBAL bitonic(int *data) {
  SHARED int s[SIZE];
  s[TID] = data[GID];
  for (int k = 2; k <= SIZE; k <<= 1)
    for (int j = k >> 1; j > 0; j >>= 1) {
      SYNC;
      int other = TID ^ j, a = s[TID], b = s[other];
      bool up = (TID & k) == 0, first = TID < other;
      SYNC;
      s[TID] = (first == up) ? (a < b ? a : b) : (a < b ? b : a);
    }
  data[GID] = s[TID];
}

struct Line { float slope; double offset; int times; short step; };
GLOBAL by_struct(Line l, double *out, int n) { if (GID < n) out[GID] = l.slope * GID * l.times + l.offset - l.step; }

DEVICE __attribute__((noinline)) int fibonacci(int n) { return n < 2 ? n : fibonacci(n - 1) + fibonacci(n - 2); }
GLOBAL recursion(const int *in, int *out, int n) { if (GID < n) out[GID] = fibonacci(in[GID]); }

DEVICE __attribute__((noinline)) int plus(int a, int b) { return a + b; }
DEVICE __attribute__((noinline)) int times(int a, int b) { return a * b; }
DEVICE __attribute__((noinline)) int most(int a, int b) { return a > b ? a : b; }
DEVICE int (*const operators[3])(int, int) = {plus, times, most};
GLOBAL by_pointer(const int *a, const int *b, const int *which, int *out, int n) { if (GID < n) out[GID] = operators[which[GID]](a[GID], b[GID]); }

GLOBAL dot_double(const double *x, const double *y, double *out, int n) {
  SHARED double s[SIZE];
  double v = 0;
  for (int i = TID; i < n; i += SIZE) v = __builtin_fma(x[i], y[i], v);
  s[TID] = v;
  SYNC;
  if (TID == 0) {
    double sum = 0;
    for (int i = 0; i < SIZE; i++) sum += s[i];
    *out = sum;
  }
}

GLOBAL halves(const _Float16 *x, const _Float16 *y, _Float16 *out, int n) { if (GID < n) out[GID] = x[GID] * y[GID] + (_Float16)0.5f; }

GLOBAL compact(const int *in, int *out, uint *count, int n) {  // the positive ones, places by ballot
  int v = GID < n ? in[GID] : 0;
  u64 mask = __builtin_amdgcn_ballot_w64(v > 0);
  int before = __builtin_amdgcn_mbcnt_hi((uint)(mask >> 32), __builtin_amdgcn_mbcnt_lo((uint)mask, 0)), total = __builtin_popcountll(mask);
  uint base = 0;
  int lane = __builtin_amdgcn_mbcnt_hi(-1, __builtin_amdgcn_mbcnt_lo(-1, 0));
  if (lane == 0) base = ADD(count, (uint)total);
  base = __builtin_amdgcn_readfirstlane(base);
  if (v > 0) out[base + before] = v;
}

GLOBAL dynamic(const float *in, float *out, int width) {  // LDS whose size the launch says
  extern SHARED float room[];
  for (int i = TID; i < width; i += SIZE) room[i] = in[BID * width + i];
  SYNC;
  for (int i = TID; i < width; i += SIZE) out[BID * width + i] = room[width - 1 - i] + room[0];
}

GLOBAL divide(const long long *a, const long long *b, long long *quotient, long long *rest, int n) {
  if (GID < n) { quotient[GID] = a[GID] / b[GID]; rest[GID] = a[GID] % b[GID]; }
}

GLOBAL mandelbrot(int *out, int w, int h) {
  if (GID >= w * h) return;
  float cx = -2.f + 3.f * (GID % w) / w, cy = -1.f + 2.f * (GID / w) / h, x = 0, y = 0;
  int i = 0;
  while (i < 60 && x * x + y * y < 4.f) { float t = x * x - y * y + cx; y = 2 * x * y + cy; x = t; i++; }
  out[GID] = i;
}

GLOBAL spmv(const int *start, const int *column, const float *value, const float *x, float *y, int rows) {
  if (GID >= rows) return;
  float sum = 0;
  for (int k = start[GID]; k < start[GID + 1]; k++) sum += value[k] * x[column[k]];
  y[GID] = sum;
}

GLOBAL crc32(const unsigned char *data, uint *out, int length, int n) {
  if (GID >= n) return;
  uint c = ~0u;
  for (int i = 0; i < length; i++) {
    c ^= data[GID * length + i];
    for (int k = 0; k < 8; k++) c = c & 1 ? c >> 1 ^ 0xEDB88320u : c >> 1;
  }
  out[GID] = ~c;
}

GLOBAL cases(const int *op, const float *x, float *out, int n) {
  if (GID >= n) return;
  float v = x[GID];
  switch (op[GID]) {
    case 0: v = v * v; break;
    case 1: v = __builtin_sqrtf(v); break;
    case 2: v = 1.f / v; break;
    case 3: v = __builtin_floorf(v) - v; break;
    case 5: v = -v; break;
    default: v = 0.f;
  }
  out[GID] = v;
}

GLOBAL bodies(const float *x, const float *y, float *ax, float *ay, int n) {
  SHARED float sx[SIZE], sy[SIZE];
  float px = x[GID], py = y[GID], fx = 0, fy = 0;
  for (int t = 0; t < n; t += SIZE) {
    sx[TID] = x[t + TID];
    sy[TID] = y[t + TID];
    SYNC;
    for (int j = 0; j < SIZE; j++) {
      float dx = sx[j] - px, dy = sy[j] - py, r2 = dx * dx + dy * dy + 0.01f;
      fx += dx / r2;
      fy += dy / r2;
    }
    SYNC;
  }
  ax[GID] = fx;
  ay[GID] = fy;
}

GLOBAL spill(const int *in, int *out, int n) {  // an array that lies in scratch
  int a[40];
  if (GID >= n) return;
  for (int i = 0; i < 40; i++) a[i] = in[GID] * i;
  int k = in[GID] & 31, sum = 0;
  for (int i = 0; i < 9; i++) { sum += a[k]; a[k] = -sum; k = (k * 5 + 3) & 31; }
  out[GID] = sum;
}
