/* version.c - `radish version`: which build this is, and what it computes with here. */
#include "cli/cli.h"

#include "attn/attn_backend.h"
#include "base/amx.h"
#include "base/available.h"
#include "base/cpu.h"
#include "cuda/cuda_runner.h"
#include "model/gemm.h"
#include "model/ops.h"

#include <radish_commit.h> /* made by cmake/commit.cmake */
#include <stdio.h>
#include <sys/utsname.h>

#if defined(__clang__)
#define COMPILER                                                                                   \
    "clang " NUMBER(__clang_major__) "." NUMBER(__clang_minor__) "." NUMBER(__clang_patchlevel__)
#else
#define COMPILER "gcc " NUMBER(__GNUC__) "." NUMBER(__GNUC_MINOR__) "." NUMBER(__GNUC_PATCHLEVEL__)
#endif

static void print_build(void)
{
    printf("build: %s, %s%s%s%s%s\n", COMPILER, *RADISH_BUILD_TYPE ? RADISH_BUILD_TYPE : "no type",
           *RADISH_BUILD_SANITIZE ? ", sanitizers " : "", RADISH_BUILD_SANITIZE,
           *RADISH_COMMIT ? ", commit " : "", RADISH_COMMIT);
#ifdef RADISH_HAVE_EDIT
    const char *edit = "libedit";
#else
    const char *edit = "no libedit (lines of radish chat are not edited)";
#endif
#ifdef RADISH_HAVE_ZMQ
    const char *zmq = "libzmq";
#else
    const char *zmq = "no libzmq (no KV events)";
#endif
    printf("parts: %s, %s\n", edit, zmq);
}

/* The CPU's own name, where the kernel tells one. */
static void cpu_name(char *name, size_t size)
{
    static const char key[] = "model name";
    char line[256];
    FILE *f = fopen("/proc/cpuinfo", "r");
    snprintf(name, size, "no name");
    while (f && fgets(line, sizeof line, f)) {
        const char *colon = strchr(line, ':');
        if (!colon || strncmp(line, key, sizeof key - 1) != 0) continue;
        colon += 1 + strspn(colon + 1, " ");
        snprintf(name, size, "%.*s", (int)strcspn(colon, "\n"), colon);
        break;
    }
    if (f) fclose(f);
}

static void print_cpu(void)
{
    char name[128];
    struct utsname system = {0};
    cpu_name(name, sizeof name);
    const unsigned cpus = cpus_available();
    uname(&system);
    printf("cpu: %s, %s, %u to be used\n", system.machine, name, cpus);
    printf("instructions:");
    for (cpu_isa isa = CPU_SCALAR; isa < CPU_NUM_ISAS; isa++)
        if (cpu_isa_name(isa) && (isa == CPU_AMX ? amx_permitted(NULL) : cpu_has(isa)))
            printf(" %s", cpu_isa_name(isa));
    printf("\n");
    printf("kernels: products %s, attention %s, norms %s", gemm_isa_name(gemm_isa_find(NULL)),
           attn_cpu(NULL)->name, model_ops_find(NULL)->name);
    if (cpu_cap()) printf(" (RADISH_ISA=%s)", cpu_cap());
    printf("\n");
    if (gemm_amx_refusal()) printf("amx: not used: %s\n", gemm_amx_refusal());
}

static void print_gpu(void)
{
    cuda_gpu_info gpu;
    rad_error err = {0};
    if (cuda_gpu_look(NULL, 0, &gpu, &err) != RAD_OK)
        printf("gpu: none: %s\n", err.text);
    else
        printf("gpu: %s, %.1f GB, driver for CUDA %u.%u\n", gpu.name,
               (double)gpu.total_bytes * 1e-9, gpu.driver_version / 1000,
               gpu.driver_version % 1000 / 10);
}

int cmd_version(int argc, char **argv)
{
    const cli_manual manual = {
        .command = "version",
        .usage = "version",
        .about =
            "Prints the version, then how the program was built, which instructions it computes\n"
            "with on this CPU, and the GPU that it finds.",
    };
    rad_error err = {0};
    const int code = cli_parse(&manual, NULL, 0, argc, argv, NULL);
    if (code != CLI_GO_ON) return code;
    printf("radish %s\n", RADISH_VERSION);
    if (cpu_cap_check(&err) != RAD_OK) return cli_fail("%s", err.text);
    print_build();
    print_cpu();
    print_gpu();
    return 0;
}
