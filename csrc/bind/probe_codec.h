/* SPDX-License-Identifier: MIT
 *
 * probe_codec: decodes and encodes messages and gRPC frames, for tests in probe builds.
 */
#ifndef KW_BIND_PROBE_CODEC_H
#define KW_BIND_PROBE_CODEC_H

#include "base/common.h"
#include "face/compat.h"

#ifdef KW_PROBE
/* Adds the functions recode, split, escape, unescape and timeout to the table on top of the stack. */
void kw_bind_add_probe_codec(lua_State *L);
#endif

#endif
