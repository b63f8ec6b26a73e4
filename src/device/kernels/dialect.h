/* dialect.h - the CUDA that our kernels are written in: what three compilers make of one source.
 *
 *     clang -x cuda   PTX, without any file of the CUDA SDK (tools/make-ptx.sh); what is shipped
 *     nvcc            for profilers and sanitizers on a machine that has it
 *     gcc, as C       each CUDA thread is a fiber (tests/cuda/emulator.h): tests without a GPU
 *
 * A kernel takes one struct by value, so that the host launches every kernel the same way and the
 * emulator needs no thunk of its own:
 *
 *     KERNEL(add_norm, 256, add_norm_args)         threads of a block at most, type of `a`
 *     {
 *         SHARED float sums[8];                    static shared memory
 *         SHARED_DYNAMIC(u8, stages);              as much as the launch asked for
 *         if (BLOCK_X >= a.tokens) return;
 *         ...
 *         SYNC_BLOCK();
 *     }
 *
 * Bits: kernels use + - * and FMA, division and square root as IEEE has them, and the functions
 * below; never approximations (ex2.approx, rsqrt.approx) nor contraction by the compiler. So the
 * emulator and every GPU compute the same bits. Matrix instructions round as the hardware does,
 * which the emulator models for sm_80 and sm_90.
 *
 * HOPPER is defined for the second PTX of a file, for sm_90a: wgmma, bulk tensor copies, dependent
 * launches. Sources without it are for sm_80 and newer. */
#ifndef DEVICE_KERNELS_DIALECT_H
#define DEVICE_KERNELS_DIALECT_H

typedef unsigned char u8;
typedef signed char i8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef int i32;
typedef unsigned long long u64;

#define NEG_INFINITY (-__builtin_inff())

#if defined(__CUDA__) || defined(__CUDACC__)
#define ON_GPU 1

#if defined(__clang__)
#define __global__ __attribute__((global))
#define __device__ __attribute__((device))
#define __shared__ __attribute__((shared))
#define INLINE static __device__ inline __attribute__((always_inline))
#define KERNEL(name, threads, args)                                                               \
    extern "C" __global__ __attribute__((launch_bounds(threads))) void name(const args a)
#define THREAD_X ((u32)__nvvm_read_ptx_sreg_tid_x())
#define BLOCK_X ((u32)__nvvm_read_ptx_sreg_ctaid_x())
#define BLOCK_Y ((u32)__nvvm_read_ptx_sreg_ctaid_y())
#define BLOCK_Z ((u32)__nvvm_read_ptx_sreg_ctaid_z())
#define GRID_X ((u32)__nvvm_read_ptx_sreg_nctaid_x())
#define GRID_Y ((u32)__nvvm_read_ptx_sreg_nctaid_y())
#define SYNC_BLOCK() __nvvm_bar_sync(0)
#define FMA(x, y, z) __builtin_fmaf(x, y, z)
#define SHARED_DYNAMIC(type, name)                                                                \
    extern __shared__ __attribute__((aligned(1024))) u8 dynamic_shared[];                         \
    type *name = (type *)dynamic_shared
INLINE float bits_float(u32 u)
{
    float f;
    __builtin_memcpy(&f, &u, 4);
    return f;
}
INLINE u32 float_bits(float f)
{
    u32 u;
    __builtin_memcpy(&u, &f, 4);
    return u;
}
INLINE u32 shared_address(const void *p)
{
    return (u32)(u64)(__attribute__((address_space(3))) const void *)p;
}
#else /* nvcc */
#define INLINE static __device__ __forceinline__
#define KERNEL(name, threads, args)                                                               \
    extern "C" __global__ void __launch_bounds__(threads) name(const __grid_constant__ args a)
#define THREAD_X ((u32)threadIdx.x)
#define BLOCK_X ((u32)blockIdx.x)
#define BLOCK_Y ((u32)blockIdx.y)
#define BLOCK_Z ((u32)blockIdx.z)
#define GRID_X ((u32)gridDim.x)
#define GRID_Y ((u32)gridDim.y)
#define SYNC_BLOCK() __syncthreads()
#define FMA(x, y, z) __fmaf_rn(x, y, z)
#define SHARED_DYNAMIC(type, name)                                                                \
    extern __shared__ __align__(1024) u8 dynamic_shared[];                                        \
    type *name = (type *)dynamic_shared
INLINE float bits_float(u32 u) { return __uint_as_float(u); }
INLINE u32 float_bits(float f) { return __float_as_uint(f); }
INLINE u32 shared_address(const void *p) { return (u32)__cvta_generic_to_shared(p); }
#endif

#define SHARED __shared__ __attribute__((aligned(16)))
#define UNROLL _Pragma("unroll")
#define LANE (THREAD_X & 31)
#define WARP (THREAD_X >> 5)

INLINE void sync_warp(void)
{
    asm volatile("bar.warp.sync 0xffffffff;" ::: "memory");
}
INLINE u32 shuffle_xor_u32(u32 v, u32 mask)
{
    u32 r;
    asm volatile("shfl.sync.bfly.b32 %0, %1, %2, 31, 0xffffffff;" : "=r"(r) : "r"(v), "r"(mask));
    return r;
}
INLINE u32 shuffle_u32(u32 v, u32 lane)
{
    u32 r;
    asm volatile("shfl.sync.idx.b32 %0, %1, %2, 31, 0xffffffff;" : "=r"(r) : "r"(v), "r"(lane));
    return r;
}
INLINE u32 ballot(int predicate) /* a bit per lane */
{
    u32 r;
    asm volatile("{.reg .pred p; setp.ne.u32 p, %1, 0; vote.sync.ballot.b32 %0, p, 0xffffffff;}"
                 : "=r"(r)
                 : "r"(predicate));
    return r;
}
INLINE float divide(float x, float y) /* IEEE, to nearest even */
{
    float r;
    asm("div.rn.f32 %0, %1, %2;" : "=f"(r) : "f"(x), "f"(y));
    return r;
}
INLINE float square_root(float x)
{
    float r;
    asm("sqrt.rn.f32 %0, %1;" : "=f"(r) : "f"(x));
    return r;
}
/* 16 bytes of memory that no one writes meanwhile, past the L1 cache. */
INLINE void load16(u32 to[4], const void *from)
{
    asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "l"(from));
}
INLINE u32 atomic_add_u32(u32 *to, u32 v) /* device memory; returns what was there */
{
    u32 r;
    asm volatile("atom.global.add.u32 %0, [%1], %2;" : "=r"(r) : "l"(to), "r"(v) : "memory");
    return r;
}
INLINE void fence_device(void) /* what this thread wrote is seen before what it writes next */
{
    asm volatile("fence.acq_rel.gpu;" ::: "memory");
}

/* ---- copies to shared memory that go on while the thread computes ---- */
INLINE void copy16_async(void *shared, const void *global)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared_address(shared)),
                 "l"(global)
                 : "memory");
}
INLINE void copy_commit(void)
{
    asm volatile("cp.async.commit_group;" ::: "memory");
}
#define COPY_WAIT(groups) asm volatile("cp.async.wait_group %0;" ::"n"(groups) : "memory")

/* ---- matrices, 8x8 numbers of 16 bits each; d += a * b ---- */
INLINE void load_matrix4(u32 r[4], const void *shared_row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(shared_address(shared_row))
                 : "memory");
}
INLINE void load_matrix4_transposed(u32 r[4], const void *shared_row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(shared_address(shared_row))
                 : "memory");
}
INLINE void mma_bf16(float d[4], const u32 a[4], const u32 b[2]) /* m16n8k16 */
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, "
                 "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
INLINE void mma_i8(i32 d[4], const u32 a[4], const u32 b[2]) /* m16n8k32, exact */
{
    asm volatile("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, "
                 "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

/* ---- dependent launches: the next kernel of a stream begins before this one has ended ----
 * launch_next: the next kernel's blocks may begin. wait_previous: returns when all kernels before
 * are done and what they wrote is seen; every kernel calls it before it reads or writes anything
 * that another one writes, or reads. Weights are read before it. */
INLINE void launch_next(void)
{
#ifdef HOPPER
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}
INLINE void wait_previous(void)
{
#ifdef HOPPER
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

#else
#include "dialect_emulated.h" /* tests/cuda */
#endif

/* A macro, so that the emulator names the line that uses it. */
#define shuffle_xor(v, mask) bits_float(shuffle_xor_u32(float_bits(v), mask))
INLINE float bf16_float(u32 bits) /* the lower half of `bits` */
{
    return bits_float(bits << 16);
}
INLINE u32 float_bf16(float f) /* to nearest even; NaN stays NaN */
{
    u32 u = float_bits(f);
    if ((u & 0x7fffffff) > 0x7f800000) return (u >> 16) | 0x40;
    return (u + 0x7fff + ((u >> 16) & 1)) >> 16;
}
INLINE u32 pack_bf16(float low, float high)
{
    return float_bf16(low) | float_bf16(high) << 16;
}
INLINE u32 div_up(u32 a, u32 b)
{
    return (a + b - 1) / b;
}

/* e^x for x <= 0 and NaN, by FMA alone; 0 below -87. Within 2 units of the last place. */
INLINE float exp_negative(float x)
{
    if (x < -87.0f) return 0;
    float t = FMA(x, 1.44269504f, 12582912.0f), n = t - 12582912.0f;
    float r = FMA(n, -0.693145752f, x);
    r = FMA(n, -1.42860677e-6f, r);
    float p = FMA(r, 1.9875691500e-4f, 1.3981999507e-3f);
    p = FMA(p, r, 8.3334519073e-3f);
    p = FMA(p, r, 4.1665795894e-2f);
    p = FMA(p, r, 1.6666665459e-1f);
    p = FMA(p, r, 5.0000001201e-1f);
    p = FMA(p, r * r, r) + 1.0f;
    return bits_float(float_bits(p) + ((float_bits(t) - 0x4b400000u) << 23));
}

#endif
