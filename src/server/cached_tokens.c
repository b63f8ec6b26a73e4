/* cached_tokens.c - see cached_tokens.h. */
#include "server/cached_tokens.h"

#include "base/base.h"

bool cached_exact(const server_params *p)
{
    return p->report_cached_tokens == REPORT_CACHED_EXACT;
}

bool cached_told(const server_params *p)
{
    return p->report_cached_tokens != REPORT_CACHED_OFF;
}

static uint32_t shown(const server_params *p, uint32_t tokens)
{
    if (!cached_told(p)) return 0;
    return cached_exact(p) ? tokens : tokens - tokens % RAD_MAX(p->cached_tokens_grain, 1u);
}

prompt_hits cached_shown(const server_params *p, prompt_hits hits)
{
    return (prompt_hits){.cached = shown(p, hits.cached),
                         .loaded = shown(p, hits.loaded),
                         .fetched = shown(p, hits.fetched),
                         .copied = shown(p, hits.copied)};
}

bool cached_figures(const server_params *p)
{
    return cached_exact(p) || p->report_cache_figures;
}
