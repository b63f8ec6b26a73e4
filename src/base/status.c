/* status.c - the names of statuses, and how words get into a rad_error. */
#include <radish/status.h>

#include <stdarg.h>
#include <stdio.h>

const char *rad_status_name(rad_status status)
{
    switch (status) {
    case RAD_OK: return "RAD_OK";
    case RAD_FULL: return "RAD_FULL";
    case RAD_AGAIN: return "RAD_AGAIN";
    case RAD_NONE: return "RAD_NONE";
    case RAD_E_INVAL: return "RAD_E_INVAL";
    case RAD_E_NOMEM: return "RAD_E_NOMEM";
    case RAD_E_STATE: return "RAD_E_STATE";
    case RAD_E_IO: return "RAD_E_IO";
    case RAD_E_FORMAT: return "RAD_E_FORMAT";
    case RAD_E_UNSUPPORTED: return "RAD_E_UNSUPPORTED";
    case RAD_E_LIMIT: return "RAD_E_LIMIT";
    case RAD_E_CORRUPT: return "RAD_E_CORRUPT";
    default: return "unknown status";
    }
}

rad_status rad_fail(rad_error *err, rad_status status, const char *fmt, ...)
{
    if (!err) return status;
    va_list args;
    va_start(args, fmt);
    err->status = status;
    vsnprintf(err->text, sizeof err->text, fmt, args);
    va_end(args);
    return status;
}
