/* jinja_methods.h - the methods of str, by name and parameters: one list makes the
 * declarations here and the table in jinja_methods.c. The most used come first. */
#ifndef TEXT_JINJA_METHODS_H
#define TEXT_JINJA_METHODS_H

#include "text/jinja_value.h"

#define JSTR_METHODS(ROW)                                                                          \
    ROW(strip, "chars?")                                                                           \
    ROW(split, "sep?,maxsplit?")                                                                   \
    ROW(startswith, "prefix,start?,end?")                                                          \
    ROW(endswith, "suffix,start?,end?")                                                            \
    ROW(lstrip, "chars?")                                                                          \
    ROW(rstrip, "chars?")                                                                          \
    ROW(replace, "old,new,count?")                                                                 \
    ROW(upper, "")                                                                                 \
    ROW(lower, "")                                                                                 \
    ROW(title, "")                                                                                 \
    ROW(capitalize, "")                                                                            \
    ROW(swapcase, "")                                                                              \
    ROW(join, "iterable")                                                                          \
    ROW(find, "sub,start?,end?")                                                                   \
    ROW(rfind, "sub,start?,end?")                                                                  \
    ROW(index, "sub,start?,end?")                                                                  \
    ROW(rindex, "sub,start?,end?")                                                                 \
    ROW(count, "sub,start?,end?")                                                                  \
    ROW(rsplit, "sep?,maxsplit?")                                                                  \
    ROW(splitlines, "keepends?")                                                                   \
    ROW(partition, "sep")                                                                          \
    ROW(rpartition, "sep")                                                                         \
    ROW(removeprefix, "prefix")                                                                    \
    ROW(removesuffix, "suffix")                                                                    \
    ROW(format, NULL)                                                                              \
    ROW(ljust, "width,fillchar?")                                                                  \
    ROW(rjust, "width,fillchar?")                                                                  \
    ROW(center, "width,fillchar?")                                                                 \
    ROW(zfill, "width")                                                                            \
    ROW(isalpha, "")                                                                               \
    ROW(isdigit, "")                                                                               \
    ROW(isalnum, "")                                                                               \
    ROW(isdecimal, "")                                                                             \
    ROW(isnumeric, "")                                                                             \
    ROW(isspace, "")                                                                               \
    ROW(isascii, "")                                                                               \
    ROW(isupper, "")                                                                               \
    ROW(islower, "")

/* `self` is the str; args are bound by the spec, `all` as they were given. */
#define STR_METHOD(name) jval jstr_##name(jctx *c, jval self, const jval *args, const jargs *all)
#define UNUSED           (void)c, (void)self, (void)args, (void)all

#define DECLARE(name, spec) STR_METHOD(name);
JSTR_METHODS(DECLARE)
#undef DECLARE

static inline bool some(jval v)
{
    return v.type != J_UNSET && v.type != J_NONE;
}

#endif
