/* serve_check.c - what `radish serve` says no to before it reads a model, which can take minutes:
 * options that want another one, words that are none of their option's, keys and certificates that
 * cannot be used. */
#include "base/utf8.h"
#include "cli/serve.h"
#include "server/browsers.h"
#include "server/otlp.h"

#include <stdlib.h>

/* Names that no browser sends would silently allow nothing. CLI_GO_ON, or 2. */
int serve_check_names(const server_params *s)
{
    for (uint32_t i = 0; i < s->num_allow_origins; i++)
        if (!browser_is_origin(s->allow_origins[i]))
            return cli_usage("serve",
                             "--allow-origin '%s' is not like http://localhost:3000, without "
                             "a path, nor null, nor *",
                             s->allow_origins[i]);
    for (uint32_t i = 0; i < s->num_allow_hosts; i++)
        if (!browser_is_host(s->allow_hosts[i]))
            return cli_usage("serve",
                             "--allow-host '%s' is not like example.com or example.com:8080",
                             s->allow_hosts[i]);
    return CLI_GO_ON;
}

/* It goes into JSON, and onto terminals. */
static bool is_name(const char *text)
{
    size_t len = strlen(text), at = 0;
    while (at < len) {
        utf8_char c = utf8_next((const unsigned char *)text + at, len - at);
        if (!c.valid || utf8_is_control(c.code)) return false;
        at += c.len;
    }
    return len > 0;
}

/* *out may be NULL: everybody may ask. CLI_GO_ON, or 2. */
int serve_read_keys(const serve_keys *o, api_keys **out)
{
    rad_error err = {0};
    if (!o->plain.count && !o->file && !o->admin) return CLI_GO_ON;
    rad_status status = api_keys_create(out, &err);
    for (uint32_t i = 0; i < o->plain.count && !status; i++)
        status = api_keys_add(*out, o->plain.texts[i], false, &err);
    if (o->file && !status) status = api_keys_read(*out, o->file, &err);
    if (!status && o->file && !api_keys_wanted(*out))
        return cli_usage("serve", "--api-key-file %s has no key in it", o->file);
    if (o->admin && !status) status = api_keys_add(*out, o->admin, true, &err);
    return status ? cli_usage("serve", "%s", err.text) : CLI_GO_ON;
}

/* Before a model is read, which can take minutes. CLI_GO_ON, or 1. */
int serve_check_certificate(const tls_files *files)
{
    rad_error err = {0};
    tls *t = NULL;
    rad_status status = files->certificate ? tls_create(files, &t, &err) : RAD_OK;
    tls_destroy(t);
    return status ? cli_fail("%s", err.text) : CLI_GO_ON;
}

/* text or json. CLI_GO_ON, or 2. */
int serve_read_log_format(const char *text, bool *json)
{
    *json = text && !strcmp(text, "json");
    if (!text || *json || !strcmp(text, "text")) return CLI_GO_ON;
    return cli_usage("serve", "--log-format is text or json, not '%s'", text);
}

/* Options that want another one. CLI_GO_ON, or 2. */
int serve_check(const engine_params *e, const server_params *s)
{
    rad_error err = {0};
    if (s->otlp_endpoint && otlp_check(s->otlp_endpoint, &err) != RAD_OK)
        return cli_usage("serve", "--%s", err.text);
    bool by_priority = e->enable_priority_scheduling ||
                       (e->schedule_policy && !strcmp(e->schedule_policy, "priority"));
    for (uint32_t i = 0; i < s->num_served_model_names; i++)
        if (!is_name(s->served_model_names[i]))
            return cli_usage("serve",
                             "--served-model-name must not be empty, and UTF-8 without controls");
    if (!s->tls.certificate && (s->tls.key || s->tls.password || s->tls.client_ca))
        return cli_usage("serve", "--ssl-keyfile, --ssl-keyfile-password and --ssl-ca-certs need "
                                  "--ssl-certfile");
    if (s->storage_admin && !e->enable_hierarchical_cache)
        return cli_usage("serve", "--hicache-storage-admin needs --enable-hierarchical-cache");
    if (e->schedule_low_priority_values_first && !by_priority)
        return cli_usage("serve", "--schedule-low-priority-values-first needs "
                                  "--enable-priority-scheduling or --schedule-policy priority");
    return CLI_GO_ON;
}

/* exact, rounded, rounded:N or off. CLI_GO_ON, or 2. */
int serve_read_report(const char *text, server_params *p)
{
    enum { MOST = 1 << 20 };
    if (!text || !strcmp(text, "exact")) return CLI_GO_ON;
    bool rounded = !strncmp(text, "rounded", 7) && (!text[7] || text[7] == ':');
    p->report_cached_tokens = rounded ? REPORT_CACHED_ROUNDED : REPORT_CACHED_OFF;
    if (!strcmp(text, "off") || !strcmp(text, "rounded")) return CLI_GO_ON;
    char *end = NULL;
    const char *digits = rounded ? text + 8 : "";
    unsigned long n = *digits >= '0' && *digits <= '9' ? strtoul(digits, &end, 10) : 0;
    if (!n || *end || n > MOST)
        return cli_usage("serve",
                         "--report-cached-tokens is exact, rounded:N (N from 1 to %d) or off, not "
                         "'%s'",
                         MOST, text);
    p->cached_tokens_grain = (uint32_t)n;
    return CLI_GO_ON;
}
