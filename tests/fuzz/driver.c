/* driver.c - runs a fuzz target where there is no libFuzzer: the files of a corpus as they
 * are, then mutations of them for about a second (RADISH_FUZZ_SECONDS).
 *
 *     fuzz_NAME [CORPUS-DIRECTORY]
 *
 * Blind mutations find less than libFuzzer's, which sees what code they reach; this is for
 * `make test`, to see that targets work and that what was once found stays fixed. The seed is
 * printed first and may be given in RADISH_TEST_SEED; the input of a crash is left in the file
 * crash-NAME below the temporary directory. */
#include <dirent.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
__attribute__((weak)) int LLVMFuzzerInitialize(int *argc, char ***argv);
void __sanitizer_set_death_callback(void (*callback)(void));

enum { MOST_FILES = 1000, MOST_BYTES = 1 << 16 };

static struct sample {
    uint8_t *bytes;
    size_t len;
} samples[MOST_FILES];
static size_t num_samples;

static uint8_t input[MOST_BYTES];
static size_t input_len;
static char crash_path[512];

static void keep_input(void)
{
    FILE *f = fopen(crash_path, "wb");
    if (!f) return;
    fwrite(input, 1, input_len, f);
    fclose(f);
    fprintf(stderr, "the input is in %s\n", crash_path);
}

static void on_abort(int number)
{
    keep_input(); /* we are ending anyway */
    signal(number, SIG_DFL);
    raise(number);
}

static uint64_t next_random(uint64_t *state)
{
    uint64_t z = (*state += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static void read_corpus(const char *dir)
{
    DIR *d = opendir(dir);
    for (struct dirent *e; d && num_samples < MOST_FILES && (e = readdir(d));) {
        char path[1024];
        snprintf(path, sizeof path, "%s/%s", dir, e->d_name);
        FILE *f = e->d_name[0] == '.' ? NULL : fopen(path, "rb");
        struct sample *s = &samples[num_samples];
        if (!f) continue;
        s->bytes = malloc(MOST_BYTES);
        s->len = s->bytes ? fread(s->bytes, 1, MOST_BYTES, f) : 0;
        num_samples += s->bytes != NULL;
        fclose(f);
    }
    if (d) closedir(d);
}

/* Room for `n` bytes at `at`; false when there is none. */
static bool make_room(size_t at, size_t n)
{
    if (n > MOST_BYTES - input_len) return false;
    memmove(input + at + n, input + at, input_len - at);
    input_len += n;
    return true;
}

static void mutate(uint64_t *state)
{
    static const uint8_t numbers[] = {0, 1, 7, 8, 9, 10, 13, 32, 34, 92, 127, 128, 192, 254, 255};
    uint64_t r = next_random(state);
    size_t at = input_len ? next_random(state) % input_len : 0;
    size_t n = 1 + next_random(state) % (1u << next_random(state) % 6);
    const struct sample *other = num_samples ? &samples[next_random(state) % num_samples] : NULL;
    if (n > input_len - at) n = input_len - at;
    switch (r % 8) {
    case 0:
        if (n) input[at] ^= (uint8_t)(1 << (r >> 8) % 8);
        break;
    case 1:
        if (n) input[at] = numbers[(r >> 8) % sizeof numbers];
        break;
    case 2:
        memmove(input + at, input + at + n, input_len - at - n);
        input_len -= n;
        break;
    case 3: /* twice */
        if (make_room(at, n)) memcpy(input + at, input + at + n, n);
        break;
    case 4: /* a piece of another */
        if (other && other->len) {
            size_t from = (r >> 8) % other->len, len = RAND_MAX & (r >> 32);
            len = 1 + len % (other->len - from);
            if (make_room(at, len)) memcpy(input + at, other->bytes + from, len);
        }
        break;
    case 5: input_len = at; break;
    case 6:
        if (make_room(at, 1)) input[at] = (uint8_t)(r >> 8);
        break;
    default: /* a number, longer or larger */
        for (size_t i = at; i < input_len; i++)
            if (input[i] >= '0' && input[i] <= '9') {
                size_t digits = (r >> 8) % 30;
                if (make_room(i, digits)) memset(input + i, '9', digits);
                break;
            }
    }
}

int main(int argc, char **argv)
{
    const char *seed_text = getenv("RADISH_TEST_SEED"), *for_text = getenv("RADISH_FUZZ_SECONDS");
    const char *name = strrchr(argv[0], '/'), *tmp = getenv("TMPDIR");
    uint64_t seed = seed_text ? strtoull(seed_text, NULL, 0) : (uint64_t)time(NULL) * 1000003;
    double seconds = for_text ? atof(for_text) : 1;
    uint64_t state = seed, runs = 0;
    snprintf(crash_path, sizeof crash_path, "%s/crash-%s", tmp ? tmp : "/tmp",
             name ? name + 1 : argv[0]);
    printf("seed %llu\n", (unsigned long long)seed);
    fflush(stdout);
    __sanitizer_set_death_callback(keep_input);
    signal(SIGABRT, on_abort);
    if (LLVMFuzzerInitialize) LLVMFuzzerInitialize(&argc, &argv);
    if (argc > 1) read_corpus(argv[1]);
    for (size_t i = 0; i < num_samples; i++, runs++) {
        memcpy(input, samples[i].bytes, input_len = samples[i].len);
        LLVMFuzzerTestOneInput(input, input_len);
    }
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    double until = (double)now.tv_sec + (double)now.tv_nsec * 1e-9 + seconds;
    while ((double)now.tv_sec + (double)now.tv_nsec * 1e-9 < until) {
        input_len = 0;
        if (num_samples) {
            const struct sample *s = &samples[next_random(&state) % num_samples];
            memcpy(input, s->bytes, input_len = s->len);
        }
        for (uint64_t n = 1 + next_random(&state) % 8; n > 0; n--)
            mutate(&state);
        LLVMFuzzerTestOneInput(input, input_len);
        runs++;
        clock_gettime(CLOCK_MONOTONIC, &now);
    }
    printf("%zu files, %llu runs\n", num_samples, (unsigned long long)runs);
    fflush(stdout);
    _exit(0); /* what a target set up for good is no leak */
}
