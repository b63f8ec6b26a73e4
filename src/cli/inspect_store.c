/* inspect_store.c - `radish inspect store`: what a directory of stored pages holds. */
#include "cli/cli.h"
#include "storage/file_inspect.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

static void print_hex(const rad_storage_fingerprint *print, int bytes)
{
    for (int i = 0; i < bytes; i++)
        printf("%02x", print->bytes[i]);
}

static void print_json(const char *dir, const file_inspection *in, uint32_t now)
{
    printf("{\"dir\":");
    cli_print_json_text(dir, strlen(dir));
    printf(",\"pages\":%" PRIu64 ",\"bytes\":%" PRIu64 ",\"bad\":%" PRIu64 ",\"pruned\":%" PRIu64
           ",\"quarantined\":%" PRIu64 ",\"being_written\":%" PRIu64 ",\"models\":[",
           in->pages, in->bytes, in->bad, in->pruned, in->quarantined, in->busy);
    for (uint32_t i = 0; i < in->num_models; i++) {
        const file_inspect_model *m = &in->models[i];
        printf("%s{\"fingerprint\":\"", i ? "," : "");
        print_hex(&m->fingerprint, 32);
        printf("\",\"record_bytes\":%" PRIu64 ",\"pages\":%" PRIu64 ",\"bytes\":%" PRIu64
               ",\"tokens\":%" PRIu64 ",\"bad\":%" PRIu64
               ",\"seconds_since_first_use\":%u,\"seconds_since_last_use\":%u}",
               m->record_bytes, m->pages, m->bytes, m->tokens, m->bad,
               now - RAD_MIN(now, m->used_first), now - RAD_MIN(now, m->used_last));
    }
    printf("]}\n");
}

static void print_age(uint32_t now, uint32_t then)
{
    uint32_t s = now - RAD_MIN(now, then);
    if (s < 120)
        printf("%u s", s);
    else if (s < 7200)
        printf("%u min", s / 60);
    else if (s < 172800)
        printf("%u h", s / 3600);
    else
        printf("%u days", s / 86400);
}

static void print_friendly(const char *dir, const file_inspection *in, bool verified, uint32_t now)
{
    printf("%s: %" PRIu64 " pages, %.1f MiB", dir, in->pages, (double)in->bytes / (1 << 20));
    if (in->pruned) printf(", %" PRIu64 " pruned", in->pruned);
    if (in->quarantined) printf(", %" PRIu64 " in quarantine", in->quarantined);
    if (in->busy) printf(", %" PRIu64 " being written", in->busy);
    printf("\n%s: %" PRIu64 " bad\n", verified ? "every page was read" : "headers were read",
           in->bad);
    for (uint32_t i = 0; i < in->num_models; i++) {
        const file_inspect_model *m = &in->models[i];
        printf("  model ");
        print_hex(&m->fingerprint, 8);
        printf("  %" PRIu64 " pages of %" PRIu64 " bytes, %" PRIu64 " tokens, %.1f MiB, used ",
               m->pages, m->record_bytes, m->tokens, (double)m->bytes / (1 << 20));
        print_age(now, m->used_first);
        printf(" to ");
        print_age(now, m->used_last);
        printf(" ago");
        if (m->bad) printf(", %" PRIu64 " bad", m->bad);
        putchar('\n');
    }
}

static int inspect_store(const char *dir, const file_inspect_options *o, bool json)
{
    rad_error err;
    if (file_inspect_is_store(dir, &err)) return cli_fail("%s", err.text);
    /* Looking must not evict: the budget is the servers' business. */
    rad_storage_file_params params = {.struct_size = sizeof params,
                                      .dir = dir,
                                      .max_bytes = UINT64_MAX,
                                      .no_uring = 1,
                                      .mode = FILE_MODE_AS_FOUND};
    file_store *s;
    if (file_store_open(NULL, &params, &file_io_real, &s, &err)) return cli_fail("%s", err.text);
    file_inspection *in = malloc(sizeof *in);
    rad_status status = in ? file_inspect(s, o, in, &err)
                           : rad_fail(&err, RAD_E_NOMEM, "no memory for an inspection");
    file_store_close(s);
    int code = 0;
    if (status < 0)
        code = cli_fail("%s", err.text);
    else {
        if (json)
            print_json(dir, in, file_store_seconds());
        else
            print_friendly(dir, in, o->verify, file_store_seconds());
        code = in->bad ? 1 : 0;
    }
    free(in);
    return code;
}

int cmd_inspect_store(int argc, char **argv)
{
    file_inspect_options o = {0};
    const char *dir = NULL;
    bool json = false;
    const cli_manual manual = {
        .command = "inspect store",
        .usage = "inspect store DIR [--verify] [--prune BYTES | --prune-bad] [--json]",
        .about = "Says what a directory of stored pages holds: pages and bytes per model and page\n"
                 "size, and when they were used. Servers may use the directory meanwhile. Exit 1\n"
                 "when bad pages are there.",
        .after = "Examples:\n\n"
                 "  radish inspect store /var/cache/radish --verify\n"
                 "  radish inspect store /var/cache/radish --prune 10000000000\n",
    };
    const cli_option options[] = {
        {.kind = CLI_FLAG,
         .name = "verify",
         .target = &o.verify,
         .help = "Read every page whole and verify it. Default: their headers only."},
        {.kind = CLI_U64,
         .name = "prune",
         .arg = "BYTES",
         .target = &o.prune_bytes,
         .given = &o.has_prune,
         .help = "Give up the pages used longest ago until the rest has at most BYTES."},
        {.kind = CLI_FLAG,
         .name = "prune-bad",
         .target = &o.prune_bad,
         .help = "Verify, and move bad pages to quarantine/ in the directory."},
        {.kind = CLI_FLAG, .name = "json", .target = &json, .help = "Print one JSON object."},
    };
    int code = cli_parse(&manual, options, RAD_COUNT(options), argc, argv, &dir);
    if (code != CLI_GO_ON) return code;
    if (!dir) return cli_usage("inspect store", "which directory?");
    o.verify |= o.prune_bad;
    return inspect_store(dir, &o, json);
}
