// Further kernels in HIP, of algorithms that the others leave out; the same words stand at the beginning.
#define GLOBAL extern "C" __attribute__((global)) void
#define DEVICE static __attribute__((device)) inline
#define SHARED __attribute__((shared))
#define TID ((int)__builtin_amdgcn_workitem_id_x())
#define BID ((int)__builtin_amdgcn_workgroup_id_x())
#define SIZE 256
#define GID (BID * SIZE + TID)
#define SYNC (__builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup"), __builtin_amdgcn_s_barrier(), __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup"))
#define LANE ((int)__builtin_amdgcn_mbcnt_hi(-1, __builtin_amdgcn_mbcnt_lo(-1, 0)))
#define PART 32  // lanes that work at one row, in waves of either size
#define PLACE (TID % PART)
typedef unsigned int uint;
typedef unsigned long long u64;
typedef unsigned char byte;
typedef float f32x2 __attribute__((ext_vector_type(2)));
typedef float f32x4 __attribute__((ext_vector_type(4)));
typedef _Float16 f16x2 __attribute__((ext_vector_type(2)));

DEVICE int shuffled(int v, int lane) { return __builtin_amdgcn_ds_bpermute(lane << 2, v); }
DEVICE float shuffled(float v, int lane) { return __builtin_bit_cast(float, shuffled(__builtin_bit_cast(int, v), lane)); }

GLOBAL blelloch(const int *in, int *out) {  // exclusive, up and down a tree
  SHARED int s[SIZE];
  s[TID] = in[GID];
  for (int d = 1; d < SIZE; d <<= 1) {
    SYNC;
    int i = (TID + 1) * 2 * d - 1;
    if (i < SIZE) s[i] += s[i - d];
  }
  SYNC;
  if (TID == 0) s[SIZE - 1] = 0;
  for (int d = SIZE / 2; d > 0; d >>= 1) {
    SYNC;
    int i = (TID + 1) * 2 * d - 1;
    if (i < SIZE) { int t = s[i - d]; s[i - d] = s[i]; s[i] += t; }
  }
  SYNC;
  out[GID] = s[TID];
}

GLOBAL radix_pass(const uint *in, uint *out, int shift) {  // a block's keys by four bits, in order
  SHARED int counts[16][SIZE + 1];
  SHARED int starts[16];
  uint key = in[GID], digit = key >> shift & 15;
  for (int d = 0; d < 16; d++) counts[d][TID] = d == (int)digit;
  SYNC;
  if (TID < 16) {
    int sum = 0;
    for (int i = 0; i < SIZE; i++) { int c = counts[TID][i]; counts[TID][i] = sum; sum += c; }
    counts[TID][SIZE] = sum;
  }
  SYNC;
  if (TID == 0) {
    int sum = 0;
    for (int d = 0; d < 16; d++) { starts[d] = sum; sum += counts[d][SIZE]; }
  }
  SYNC;
  out[BID * SIZE + starts[digit] + counts[digit][TID]] = key;
}

GLOBAL double_buffered(const float *a, const float *b, float *c, int n) {  // the next tiles come while these are multiplied
  SHARED float as[2][16][17], bs[2][16][17];
  int x = TID & 15, y = TID >> 4, tiles = n / 16, row = BID / tiles * 16 + y, col = BID % tiles * 16 + x, at = 0;
  float sum = 0;
  as[0][y][x] = a[row * n + x];
  bs[0][y][x] = b[y * n + col];
  for (int k = 16; k <= n; k += 16) {
    SYNC;
    float next_a = k < n ? a[row * n + k + x] : 0, next_b = k < n ? b[(k + y) * n + col] : 0;
    for (int j = 0; j < 16; j++) sum += as[at][y][j] * bs[at][j][x];
    at ^= 1;
    as[at][y][x] = next_a;
    bs[at][y][x] = next_b;
  }
  c[row * n + col] = sum;
}

GLOBAL welford(const float *x, float *mean, float *var, int n) {  // a row a block; pairs of moments are joined in a tree
  SHARED float ms[SIZE], vs[SIZE], cs[SIZE];
  float m = 0, v = 0, c = 0;
  for (int i = TID; i < n; i += SIZE) {
    float d = x[BID * n + i] - m;
    c += 1;
    m += d / c;
    v += d * (x[BID * n + i] - m);
  }
  ms[TID] = m; vs[TID] = v; cs[TID] = c;
  for (int k = SIZE / 2; k > 0; k >>= 1) {
    SYNC;
    if (TID < k) {
      float d = ms[TID + k] - ms[TID], all = cs[TID] + cs[TID + k];
      if (all > 0) {
        ms[TID] += d * cs[TID + k] / all;
        vs[TID] += vs[TID + k] + d * d * cs[TID] * cs[TID + k] / all;
      }
      cs[TID] = all;
    }
  }
  if (TID == 0) { mean[BID] = ms[0]; var[BID] = vs[0] / n; }
}

GLOBAL online_softmax(const float *x, float *out, int n) {  // a row for each 32 lanes: the largest and the sum in one pass
  int rows = SIZE / PART, row = BID * rows + TID / PART;
  float m = -__builtin_inff(), s = 0;
  for (int i = PLACE; i < n; i += PART) {
    float v = x[row * n + i], most = __builtin_fmaxf(m, v);
    s = s * __builtin_exp2f(m - most) + __builtin_exp2f(v - most);
    m = most;
  }
  for (int k = PART / 2; k > 0; k >>= 1) {
    float om = shuffled(m, LANE ^ k), os = shuffled(s, LANE ^ k), most = __builtin_fmaxf(m, om);
    s = s * __builtin_exp2f(m - most) + os * __builtin_exp2f(om - most);
    m = most;
  }
  for (int i = PLACE; i < n; i += PART) out[row * n + i] = __builtin_exp2f(x[row * n + i] - m) / s;
}

GLOBAL argmax(const float *x, int *out, int n) {  // the first of equals
  SHARED float vs[SIZE];
  SHARED int is[SIZE];
  float v = -__builtin_inff();
  int at = n;
  for (int i = TID; i < n; i += SIZE)
    if (x[BID * n + i] > v) { v = x[BID * n + i]; at = i; }
  vs[TID] = v; is[TID] = at;
  for (int k = SIZE / 2; k > 0; k >>= 1) {
    SYNC;
    if (TID < k && (vs[TID + k] > vs[TID] || (vs[TID + k] == vs[TID] && is[TID + k] < is[TID]))) { vs[TID] = vs[TID + k]; is[TID] = is[TID + k]; }
  }
  if (TID == 0) out[BID] = is[0];
}

GLOBAL life(const byte *in, byte *out, int w, int h) {  // a tile with a rim of one
  SHARED byte s[18][18];
  int x = TID & 15, y = TID >> 4, tiles = w / 16, bx = BID % tiles * 16, by = BID / tiles * 16;
  for (int i = TID; i < 324; i += SIZE) {
    int gx = bx + i % 18 - 1, gy = by + i / 18 - 1;
    s[i / 18][i % 18] = gx >= 0 && gx < w && gy >= 0 && gy < h ? in[gy * w + gx] : 0;
  }
  SYNC;
  int sum = 0;
  for (int dy = 0; dy < 3; dy++)
    for (int dx = 0; dx < 3; dx++) sum += s[y + dy][x + dx];
  int self = s[y + 1][x + 1];
  out[(by + y) * w + bx + x] = sum == 3 || (self && sum == 4);
}

GLOBAL fft(const f32x2 *in, const f32x2 *roots, f32x2 *out) {  // 256 numbers, radix 2, in LDS
  SHARED f32x2 s[SIZE];
  s[__builtin_bitreverse32(TID) >> 24] = in[GID];
  for (int half = 1; half < SIZE; half <<= 1) {
    SYNC;
    if (TID < SIZE / 2) {
      int j = TID & (half - 1), i = (TID - j) * 2 + j;
      f32x2 w = roots[j * (SIZE / 2 / half)], a = s[i], b = s[i + half], t = {b.x * w.x - b.y * w.y, b.x * w.y + b.y * w.x};
      s[i] = a + t;
      s[i + half] = a - t;
    }
  }
  SYNC;
  out[GID] = s[TID];
}

GLOBAL floyd(const int *in, int *out) {  // shortest ways among 16 places
  SHARED int d[16][16];
  int x = TID & 15, y = TID >> 4;
  d[y][x] = in[GID];
  for (int k = 0; k < 16; k++) {
    SYNC;
    int via = d[y][k] + d[k][x];
    SYNC;
    if (via < d[y][x]) d[y][x] = via;
  }
  out[GID] = d[y][x];
}

GLOBAL lu(const float *in, float *out) {  // of a matrix of 16, without pivots
  SHARED float m[16][16];
  int x = TID & 15, y = TID >> 4;
  m[y][x] = in[GID];
  for (int k = 0; k < 15; k++) {
    SYNC;
    float l = m[y][k] / m[k][k], u = m[k][x];
    SYNC;
    if (y > k) m[y][x] = x > k ? m[y][x] - l * u : x == k ? l : m[y][x];
  }
  out[GID] = m[y][x];
}

GLOBAL nbody(const f32x4 *bodies, f32x4 *pull, int n) {
  SHARED f32x4 s[SIZE];
  f32x4 me = bodies[GID], sum = 0;
  for (int first = 0; first < n; first += SIZE) {
    s[TID] = bodies[first + TID];
    SYNC;
    for (int j = 0; j < SIZE; j++) {
      f32x4 d = s[j] - me;
      float r2 = d.x * d.x + d.y * d.y + d.z * d.z + 0.01f, inv = s[j].w / (r2 * __builtin_sqrtf(r2));
      sum += d * inv;
    }
    SYNC;
  }
  sum.w = 0;
  pull[GID] = sum;
}

GLOBAL sieve(uint *composite, int n) {  // bits of numbers that have a divisor below 32
  if (GID >= 480) return;
  int p = 2 + GID % 30;
  for (int m = p * (2 + GID / 30); m < n; m += p * 16) __hip_atomic_fetch_or(&composite[m >> 5], 1u << (m & 31), __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
}

GLOBAL union_find(const int *edges, int *parent, int n) {  // compare and swap until both ends have one root
  if (GID >= n) return;
  int a = edges[2 * GID], b = edges[2 * GID + 1];
  for (;;) {
    int p;
    while ((p = __hip_atomic_load(&parent[a], __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT)) != a) a = p;
    while ((p = __hip_atomic_load(&parent[b], __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT)) != b) b = p;
    if (a == b) return;
    if (a < b) { int t = a; a = b; b = t; }
    int want = a;
    if (__hip_atomic_compare_exchange_strong(&parent[a], &want, b, __ATOMIC_RELAXED, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT)) return;
  }
}

GLOBAL rope(const float *x, const float *cosine, const float *sine, float *out, int d) {
  int row = BID, half = d / 2;
  for (int i = TID; i < half; i += SIZE) {
    float a = x[row * d + i], b = x[row * d + i + half], c = cosine[row * half + i], s = sine[row * half + i];
    out[row * d + i] = a * c - b * s;
    out[row * d + i + half] = a * s + b * c;
  }
}

GLOBAL quantise(const float *x, signed char *q, float *scale) {  // a row of 256 a block, to bytes by its largest
  SHARED float s[SIZE];
  float v = x[GID];
  s[TID] = __builtin_fabsf(v);
  for (int k = SIZE / 2; k > 0; k >>= 1) { SYNC; if (TID < k) s[TID] = __builtin_fmaxf(s[TID], s[TID + k]); }
  SYNC;
  float most = s[0];
  q[GID] = (signed char)__builtin_rintf(most > 0 ? v * (127.0f / most) : 0);
  if (TID == 0) scale[BID] = most / 127.0f;
}

GLOBAL dot_halves(const f16x2 *a, const f16x2 *b, float *out, int n) {
  SHARED float s[SIZE];
  float sum = 0;
  for (int i = TID; i < n; i += SIZE) sum += (float)a[i].x * (float)b[i].x + (float)a[i].y * (float)b[i].y;
  s[TID] = sum;
  for (int k = SIZE / 2; k > 0; k >>= 1) { SYNC; if (TID < k) s[TID] += s[TID + k]; }
  if (TID == 0) *out = s[0];
}

GLOBAL top_of_block(const int *x, int *out) {  // the eight largest, one after another
  SHARED int s[SIZE], best[SIZE];
  s[TID] = x[GID];
  for (int turn = 0; turn < 8; turn++) {
    SYNC;
    best[TID] = TID;
    for (int k = SIZE / 2; k > 0; k >>= 1) {
      SYNC;
      if (TID < k && s[best[TID + k]] > s[best[TID]]) best[TID] = best[TID + k];
    }
    SYNC;
    if (TID == 0) { out[BID * 8 + turn] = s[best[0]]; s[best[0]] = -2147483647 - 1; }
  }
}

GLOBAL merge(const int *a, const int *b, int *out, int n) {  // each finds its place in the other's sorted row
  if (GID >= n) return;
  int va = a[GID], vb = b[GID], low = 0, high = n;
  while (low < high) { int m = (low + high) / 2; if (b[m] < va) low = m + 1; else high = m; }
  out[GID + low] = va;
  low = 0, high = n;
  while (low < high) { int m = (low + high) / 2; if (a[m] <= vb) low = m + 1; else high = m; }
  out[GID + low] = vb;
}

GLOBAL segments(const float *x, const int *ends, float *out) {  // ragged rows, 32 lanes each
  int row = BID * (SIZE / PART) + TID / PART, first = row ? ends[row - 1] : 0;
  float sum = 0;
  for (int i = first + PLACE; i < ends[row]; i += PART) sum += x[i];
  for (int k = PART / 2; k > 0; k >>= 1) sum += shuffled(sum, LANE ^ k);
  if (PLACE == 0) out[row] = sum;
}

GLOBAL wide_sums(const u64 *a, const u64 *b, u64 *sum, u64 *high) {  // carries and products of 64 bits
  sum[GID] = a[GID] + b[GID];
  high[GID] = (u64)((unsigned __int128)a[GID] * b[GID] >> 64);
}

GLOBAL unpack(const uint *packed, float *out) {  // 4-bit codes, a word a work-item, through LDS
  SHARED float s[SIZE * 8 + 8];
  uint word = packed[GID];
  for (int i = 0; i < 8; i++) s[TID * 8 + i] = (float)((int)(word >> 4 * i & 15) - 8);
  SYNC;
  for (int i = 0; i < 8; i++) out[BID * SIZE * 8 + i * SIZE + TID] = s[i * SIZE + TID];
}

GLOBAL median(const float *in, float *out, int w, int h) {  // of three by three, by exchanges
  int x = GID % w, y = GID / w;
  float v[9];
  for (int i = 0; i < 9; i++) {
    int gx = x + i % 3 - 1, gy = y + i / 3 - 1;
    v[i] = gx >= 0 && gx < w && gy >= 0 && gy < h ? in[gy * w + gx] : 0;
  }
  for (int i = 0; i < 5; i++)
    for (int j = i + 1; j < 9; j++) { float a = __builtin_fminf(v[i], v[j]), b = __builtin_fmaxf(v[i], v[j]); v[i] = a; v[j] = b; }
  out[GID] = v[4];
}

GLOBAL producers(const int *in, int *out) {  // waves at one ring of LDS, by atomics on its ends
  SHARED int ring[SIZE];
  SHARED int end;
  if (TID == 0) end = 0;
  SYNC;
  if (in[GID] > 0) ring[__hip_atomic_fetch_add(&end, 1, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_WORKGROUP)] = in[GID];
  SYNC;
  out[GID] = TID < end ? ring[TID] : 0;
}

GLOBAL gray_rows(const byte *rgb, byte *out, int n) {  // bytes three by three
  if (GID >= n) return;
  out[GID] = (byte)((rgb[3 * GID] * 77 + rgb[3 * GID + 1] * 150 + rgb[3 * GID + 2] * 29) >> 8);
}

GLOBAL ballot_ranks(const int *x, int *out) {  // places among the odd ones of a wave
  u64 odd = __builtin_amdgcn_ballot_w64(x[GID] & 1);
  u64 below = odd & ((1ull << LANE) - 1);
  out[GID] = x[GID] & 1 ? __builtin_popcountll(below) : -1;
}

GLOBAL recurrence(const float *x, const float *decay, float *out, int n) {  // a channel a work-item
  float h = 0;
  for (int t = 0; t < n; t++) { h = h * decay[GID] + x[t * SIZE + GID]; out[t * SIZE + GID] = h; }
}

GLOBAL strided_copy(const f32x4 *in, f32x4 *out, int pitch) { out[BID * SIZE + TID] = in[BID * pitch + TID]; }
