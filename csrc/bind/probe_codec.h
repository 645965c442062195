/* SPDX-License-Identifier: MIT
 *
 * probe_codec: decodes and encodes messages and gRPC frames, for tests in probe builds.
 */
#ifndef KW_BIND_PROBE_CODEC_H
#define KW_BIND_PROBE_CODEC_H

#include "base/common.h"
#include "face/compat.h"

#ifdef KW_PROBE
/* Adds these functions to the table on top of the stack:
 *   recode(name, bytes, how)   decodes a message and encodes it again: the bytes, or nil and an error. `how`: "whole";
 *                              "rest", without the header; "bare", without values, for a RangeResponse
 *   split(max_len, pieces)     splits gRPC frames: the messages; how the splitter ended; how many bytes are missing;
 *                              how many are buffered
 *   escape(text)               the text as a grpc-message
 *   unescape(text)             the text of a grpc-message
 *   timeout(text)              the milliseconds of a grpc-timeout, or -1 */
void kw_bind_add_probe_codec(lua_State *L);
#endif

#endif
