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
 * KERNEL_ALONE is a kernel that has a multiprocessor's registers to itself.
 *
 * Bits: kernels use + - * and FMA, division and square root as IEEE has them, and the functions
 * below; never approximations (ex2.approx, rsqrt.approx) nor contraction by the compiler. So the
 * emulator and every GPU compute the same bits. Matrix instructions round as the hardware does,
 * which the emulator models for sm_80 and sm_90.
 *
 * HOPPER is defined for the second PTX of a file, for sm_90a: wgmma, bulk tensor copies, dependent
 * launches. Sources without it are for sm_80 and newer. A file that begins with #define ONE_FORM has
 * dependent launches alone of these and one PTX, out of which the program makes the second when it
 * loads it (cuda_ptx.h). */
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
#define KERNEL_ALONE(name, threads, args)                                                         \
    extern "C" __global__ __attribute__((launch_bounds(threads, 1))) void name(const args a)
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
#define KERNEL_ALONE(name, threads, args)                                                         \
    extern "C" __global__ void __launch_bounds__(threads, 1) name(const __grid_constant__ args a)
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
#define ROLLED _Pragma("unroll 1")
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
/* A bit per lane. nvcc has a function of this name, which takes a bool. */
#define ballot(predicate) ballot_of((predicate) ? 1 : 0)
INLINE u32 ballot_of(int predicate)
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
INLINE float larger(float x, float y) /* the number, where one is NaN */
{
    return __builtin_fmaxf(x, y);
}
INLINE u32 pack_bf16_numbers(float low, float high) /* pack_bf16 where neither is NaN */
{
    u32 r;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
    return r;
}
INLINE float square_root(float x)
{
    float r;
    asm("sqrt.rn.f32 %0, %1;" : "=f"(r) : "f"(x));
    return r;
}
INLINE float half_float(u32 bits) /* the lower half of `bits` is f16; exact */
{
    float r;
    asm("cvt.f32.f16 %0, %1;" : "=f"(r) : "h"((u16)bits));
    return r;
}
/* Byte i is byte `n` of the eight of low and high, n the lower three bits of nibble i of the
 * selector; where the nibble's fourth bit is set, all of its bits are that byte's sign. */
INLINE u32 permute_bytes(u32 low, u32 high, u32 selector)
{
    u32 r;
    asm("prmt.b32 %0, %1, %2, %3;" : "=r"(r) : "r"(low), "r"(high), "r"(selector));
    return r;
}
INLINE u32 fma_bf16x2(u32 x, u32 y, u32 z) /* of both halves, as IEEE has it */
{
    u32 r;
    asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(r) : "r"(x), "r"(y), "r"(z));
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
INLINE void copy16_async_if(void *shared, const void *global, int yes) /* else zeros land */
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(shared)),
                 "l"(global), "r"(yes ? 16 : 0)
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
#if defined(HOPPER)
#define OF_HOPPER(instruction) asm volatile(instruction ::: "memory")
#elif defined(ONE_FORM) /* a comment that is taken away when a GPU of sm_90 loads it */
#define OF_HOPPER(instruction) asm volatile("//" instruction ::: "memory")
#else
#define OF_HOPPER(instruction)
#endif
INLINE void launch_next(void)
{
    OF_HOPPER("griddepcontrol.launch_dependents;");
}
INLINE void wait_previous(void)
{
    OF_HOPPER("griddepcontrol.wait;");
}

#ifdef HOPPER
/* ---- bulk copies and barriers that count bytes ----
 * A barrier's phase ends when all its arrivals were made and all bytes that were expected in it
 * have come. A wait for a parity returns once the phase of that parity has ended: the first phase
 * has parity 0, and a new barrier lets waits for parity 1 pass. */
#define KERNEL_ARGUMENT_(kernel) #kernel "_param_0"
#ifdef __clang__ /* which would copy the whole argument to the stack to have its address */
#define ARGUMENT_ADDRESS(kernel, type, field)                                                      \
    ({                                                                                             \
        u64 address_;                                                                              \
        asm("{.reg .u64 t; mov.u64 t, " KERNEL_ARGUMENT_(kernel) "; cvta.param.u64 %0, t;}"        \
            : "=l"(address_));                                                                     \
        address_ + __builtin_offsetof(type, field);                                                \
    })
#else
#define ARGUMENT_ADDRESS(kernel, type, field) ((u64)&a.field)
#endif
INLINE void barrier_init(u64 *barrier, u32 arrivals)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)),
                 "r"(arrivals)
                 : "memory");
}
INLINE void barriers_ready(void) /* after barrier_init, before SYNC_BLOCK */
{
    asm volatile("fence.mbarrier_init.release.cluster;\n\tfence.proxy.async.shared::cta;" ::
                     : "memory");
}
INLINE void barrier_arrive(u64 *barrier)
{
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(barrier))
                 : "memory");
}
INLINE void barrier_expect(u64 *barrier, u32 bytes) /* and arrives */
{
    asm volatile(
        "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)),
        "r"(bytes)
        : "memory");
}
INLINE void barrier_wait(u64 *barrier, u32 parity)
{
    asm volatile("{.reg .pred p; wait_more: mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1; "
                 "@!p bra wait_more;}" ::"r"(shared_address(barrier)),
                 "r"(parity)
                 : "memory");
}
/* The box of 64 x 64 numbers of 16 bits at column x and row y of a matrix comes to `shared`, 8 KB
 * on a multiple of 1 KB: 16-byte piece c of row r at 128 r + 16 (c ^ (r & 7)). What lies outside of
 * the matrix is zero. Its bytes are counted by `barrier`. */
INLINE void copy_box(void *shared, u64 map, u32 x, u32 y, u64 *barrier)
{
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes "
                 "[%0], [%1, {%2, %3}], [%4];" ::"r"(shared_address(shared)),
                 "l"(map), "r"(x), "r"(y), "r"(shared_address(barrier))
                 : "memory");
}

/* ---- matrices in shared memory, multiplied by four warps at once ----
 * warpgroup_mma: d[64][n] (+)= a[64][16] * b[n][16], transposed; n is 16, 32, 64, 128, 192 or 256.
 * It begins now and has ended when WARPGROUP_WAIT says so; d must not be touched meanwhile. Thread t
 * has in d[i] row 16 (t / 32) + t % 32 / 4 + 8 (i / 2 % 2), column 8 (i / 4) + 2 (t % 4) + i % 2. */
INLINE u64 matrix_descriptor(const void *shared) /* rows of 128 bytes as copy_box lays them */
{
    /* bits 0-13 address / 16; 16-29 unused by this layout; 32-45 bytes from 8 rows to the next 8,
     * / 16; 62-63 the swizzle. The next k16 is at + 2, 64 rows on is + 512. */
    return (shared_address(shared) & 0x3ffff) >> 4 | (u64)1 << 16 | (u64)64 << 32 | (u64)1 << 62;
}
INLINE void warpgroup_fence(void) /* before the first that uses registers written otherwise */
{
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
INLINE void warpgroup_commit(void)
{
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
#define WARPGROUP_WAIT(groups)                                                                     \
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(groups) : "memory")
INLINE void fence_shared(void) /* ordinary stores are seen by copies and warpgroup_mma */
{
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}
/* setmaxnreg: every warp of a warpgroup has n registers a thread from here on */
#define REGISTERS_AT_MOST(n)  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(n))
#define REGISTERS_AT_LEAST(n) asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(n))
#define REGS4_(d, i)  "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define REGS16_(d, i) REGS4_(d, i), REGS4_(d, i + 4), REGS4_(d, i + 8), REGS4_(d, i + 12)
#define REGS32_(d, i) REGS16_(d, i), REGS16_(d, i + 16)
#define REGS128_(d)   REGS32_(d, 0), REGS32_(d, 32), REGS32_(d, 64), REGS32_(d, 96)
/* The places of d in the instruction; behind them are those of a, b and accumulate. */
#define PLACES8_  "%0,%1,%2,%3,%4,%5,%6,%7"
#define PLACES16_ PLACES8_ ",%8,%9,%10,%11,%12,%13,%14,%15"
#define PLACES32_                                                                                  \
    PLACES16_                                                                                      \
    ",%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31"
#define PLACES64_                                                                                  \
    PLACES32_                                                                                      \
    ",%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47"                             \
    ",%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63"
#define PLACES96_                                                                                  \
    PLACES64_                                                                                      \
    ",%64,%65,%66,%67,%68,%69,%70,%71,%72,%73,%74,%75,%76,%77,%78,%79"                             \
    ",%80,%81,%82,%83,%84,%85,%86,%87,%88,%89,%90,%91,%92,%93,%94,%95"
#define PLACES128_                                                                                 \
    PLACES96_                                                                                      \
    ",%96,%97,%98,%99,%100,%101,%102,%103,%104,%105,%106,%107,%108,%109,%110,%111"                 \
    ",%112,%113,%114,%115,%116,%117,%118,%119,%120,%121,%122,%123,%124,%125,%126,%127"
#define WARPGROUP_MMA_(n, places, place_a, place_b, place_accumulate, ...)                         \
    INLINE void warpgroup_mma##n(float *d, u64 a, u64 b, u32 accumulate)                           \
    {                                                                                              \
        asm volatile("{.reg .pred p; setp.ne.u32 p, " place_accumulate ", 0; "                     \
                     "wgmma.mma_async.sync.aligned.m64n" #n "k16.f32.bf16.bf16 {" places           \
                     "}, " place_a ", " place_b ", p, 1, 1, 0, 0;}"                                \
                     : __VA_ARGS__                                                                 \
                     : "l"(a), "l"(b), "r"(accumulate));                                           \
    }
WARPGROUP_MMA_(16, PLACES8_, "%8", "%9", "%10", REGS4_(d, 0), REGS4_(d, 4))
WARPGROUP_MMA_(32, PLACES16_, "%16", "%17", "%18", REGS16_(d, 0))
WARPGROUP_MMA_(64, PLACES32_, "%32", "%33", "%34", REGS32_(d, 0))
WARPGROUP_MMA_(128, PLACES64_, "%64", "%65", "%66", REGS32_(d, 0), REGS32_(d, 32))
WARPGROUP_MMA_(192, PLACES96_, "%96", "%97", "%98", REGS32_(d, 0), REGS32_(d, 32), REGS32_(d, 64))
WARPGROUP_MMA_(256, PLACES128_, "%128", "%129", "%130", REGS128_(d))
INLINE void warpgroup_mma(u32 n, float *d, u64 a, u64 b, u32 accumulate) /* n: a constant */
{
    if (n == 16) warpgroup_mma16(d, a, b, accumulate);
    if (n == 32) warpgroup_mma32(d, a, b, accumulate);
    if (n == 64) warpgroup_mma64(d, a, b, accumulate);
    if (n == 128) warpgroup_mma128(d, a, b, accumulate);
    if (n == 192) warpgroup_mma192(d, a, b, accumulate);
    if (n == 256) warpgroup_mma256(d, a, b, accumulate);
}
#endif /* HOPPER */

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

/* All but the latest `pending` (1 at least) groups of this thread's copies are there; more of them
 * where it is not 1, 2, 4 or 6. */
INLINE void wait_copies(u32 pending)
{
    if (pending >= 6)
        COPY_WAIT(6);
    else if (pending >= 4)
        COPY_WAIT(4);
    else if (pending >= 2)
        COPY_WAIT(2);
    else
        COPY_WAIT(1);
}

#endif
