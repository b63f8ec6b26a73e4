/* rfc3339.h - a time as Ollama's and Anthropic's clients read it: 2026-11-23T01:02:03.000000004Z */
#ifndef SERVER_RFC3339_H
#define SERVER_RFC3339_H

#include <stdio.h>
#include <time.h>

enum { RFC3339_BYTES = 40 };

static inline const char *rfc3339(struct timespec at, char text[RFC3339_BYTES])
{
    struct tm utc;
    char day[24] = "1970-01-01T00:00:00";
    if (gmtime_r(&at.tv_sec, &utc)) strftime(day, sizeof day, "%Y-%m-%dT%H:%M:%S", &utc);
    snprintf(text, RFC3339_BYTES, "%s.%09ldZ", day, at.tv_nsec);
    return text;
}

#endif
