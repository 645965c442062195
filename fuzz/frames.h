/* SPDX-License-Identifier: MIT
 *
 * frames: makes HTTP/2 frames from the lines of a script, well-formed or not.
 */
#ifndef KW_FUZZ_FRAMES_H
#define KW_FUZZ_FRAMES_H

#include "script.h"

enum {
  FRAME_DATA,
  FRAME_HEADERS,
  FRAME_PRIORITY,
  FRAME_RST_STREAM,
  FRAME_SETTINGS,
  FRAME_PUSH_PROMISE,
  FRAME_PING,
  FRAME_GOAWAY,
  FRAME_WINDOW_UPDATE,
  FRAME_CONTINUATION
};

enum { FLAG_END_STREAM = 1, FLAG_ACK = 1, FLAG_END_HEADERS = 4, FLAG_PADDED = 8 };

#define FRAME_HEAD 9
#define PREFACE "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

void frame_add(bytes *to, int type, int flags, uint32_t stream, kw_slice payload);

/* Adds a header field with literal name and value; `how` says whether it goes into the dynamic table. */
void frame_add_line(bytes *block, int how, const char *name, kw_slice value);

/* Adds a header block as one frame; if bit 2 of `how` is set, its end is in CONTINUATION frames. */
void frame_add_headers(bytes *to, int how, int flags, uint32_t stream, kw_slice block);

/* Adds a gRPC message in DATA frames. Bits of `how`: 1 ends the stream, 2 pads the frames, 4 makes two frames, 8
 * sets the compressed flag, 16 writes a wrong length. */
void frame_add_message(bytes *to, int how, uint32_t stream, kw_slice message);

/* Adds what both sides may send. Returns false if the letter is none of these.
 *   S settings: id, value, ...      W window: amount         R reset: code       P ping: flags, bytes
 *   Y priority                      G goaway: last, code     F frame: type, flags, payload
 *   D data: flags, bytes            B bytes */
bool frame_add_common(bytes *to, char letter, uint32_t stream, script_line *line);

#endif
