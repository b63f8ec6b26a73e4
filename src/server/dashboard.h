/* dashboard.h - the page at /, put together and ready to be sent. */
#ifndef SERVER_DASHBOARD_H
#define SERVER_DASHBOARD_H

#include <stddef.h>

typedef struct dashboard dashboard;

dashboard *dashboard_create(void); /* NULL: no memory */
void dashboard_destroy(dashboard *d);

const char *dashboard_page(const dashboard *d, size_t *len);
const char *dashboard_policy(const dashboard *d); /* Content-Security-Policy */

#endif
