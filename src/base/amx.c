/* amx.c - may this process use the tile registers?
 *
 * Three must agree: the CPU (CPUID), the kernel (XCR0: it saves the registers when
 * it switches threads), and the kernel again (it hands their 8 KB a thread out on
 * demand only, Linux 5.16 and later; before it, XCR0 lacks the bits or the call fails). */
#include "base/amx.h"

#include "base/base.h"
#include "base/cpu.h"

#if defined(__x86_64__) && defined(__linux__)
#include <cpuid.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

enum {
    REQUEST_PERMISSION = 0x1023, /* ARCH_REQ_XCOMP_PERM */
    TILE_DATA = 18,              /* the state's number, in XCR0 and in the request */
    TILE_STATE = 3 << 17         /* configuration and data in XCR0 */
};

static bool has_bf16, has_int8, permitted;
static const char *refusal;

static void look_at_cpu(void)
{
    uint32_t a, b, c, d;
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || !(d >> 24 & 1)) return; /* AMX-TILE */
    has_bf16 = d >> 22 & 1;
    has_int8 = d >> 25 & 1;
}

/* The system uses XSAVE at all, and for the tiles too. */
static bool system_saves_tiles(void)
{
    uint32_t a, b, c, d;
    if (!__get_cpuid(1, &a, &b, &c, &d) || !(c >> 27 & 1)) return false; /* OSXSAVE */
    __asm__ volatile("xgetbv" : "=a"(a), "=d"(d) : "c"(0));
    return (a & TILE_STATE) == TILE_STATE;
}

/* Palette 1 as the kernels take it: 8 tiles of 16 rows x 64 bytes. */
static bool palette_is_ours(void)
{
    uint32_t a, b, c, d;
    if (!__get_cpuid_count(0x1d, 1, &a, &b, &c, &d)) return false;
    return a >> 16 == AMX_ROWS * AMX_ROW_BYTES && (b & 0xffff) == AMX_ROW_BYTES &&
           b >> 16 == AMX_TILES && (c & 0xffff) == AMX_ROWS;
}

static void ask(void)
{
    look_at_cpu();
    if (!has_bf16 && !has_int8) return;
    if (!system_saves_tiles())
        refusal = "the system does not save its registers";
    else if (!palette_is_ours())
        refusal = "its tiles have other sizes than 16 rows of 64 bytes";
    else if (syscall(SYS_arch_prctl, REQUEST_PERMISSION, TILE_DATA) != 0)
        refusal = "the system refuses the permission to use it";
    else
        permitted = true;
}

static bool may_use(const bool *has, const char **why)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, ask);
    const bool wanted = *has && cpu_has(CPU_AMX);
    if (why) *why = wanted ? refusal : NULL;
    return wanted && permitted;
}

bool amx_permitted(const char **why)
{
    return may_use(&has_bf16, why);
}

bool amx_int8_permitted(const char **why)
{
    return may_use(&has_int8, why);
}
#else
bool amx_permitted(const char **why)
{
    if (why) *why = NULL;
    return false;
}

bool amx_int8_permitted(const char **why)
{
    return amx_permitted(why);
}
#endif
