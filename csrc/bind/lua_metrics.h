/* SPDX-License-Identifier: MIT
 *
 * lua_metrics: what a server and its store count and hold, as a method of the server.
 *
 *   server:counters() -> counters, methods
 *                          counters: numbers and histograms by name, see the list in lua_metrics.c. methods: a
 *                          list of { path =, is_unary =, takes_one =, started =, received =, received_bytes =, sent =,
 *                          sent_bytes =, handled = { [status] = number }, seconds = a histogram, only if the server
 *                          was opened with measures_handling }
 *                          A histogram is { sum =, count =, bounds = {}, counts = {} }; counts[i] is the number of
 *                          all values <= bounds[i], and count of all values. Raises if the server is closed, or has no
 *                          store
 */
#ifndef KW_BIND_LUA_METRICS_H
#define KW_BIND_LUA_METRICS_H

#include "face/compat.h"

/* Adds the method to the table on top of the stack. */
void kw_bind_add_metrics(lua_State *L);

#endif
