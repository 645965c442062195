/* SPDX-License-Identifier: MIT */
#include "frames.h"

#include "codec/grpc.h"

void frame_add(bytes *to, int type, int flags, uint32_t stream, kw_slice payload) {
  bytes_add_number(to, payload.len, 3);
  bytes_add_number(to, (uint64_t)type, 1);
  bytes_add_number(to, (uint64_t)flags, 1);
  bytes_add_number(to, stream, 4);
  bytes_add(to, payload);
}

/* {====== Headers ====== */

/* Adds an integer with a prefix of seven bits (RFC 7541 §5.1). */
static void add_length(bytes *block, size_t len) {
  if (len < 127) {
    bytes_add_byte(block, (uint8_t)len);
  } else {
    bytes_add_byte(block, 127);
    bytes_add_varint(block, len - 127);
  }
}

static void add_string(bytes *block, kw_slice text) {
  add_length(block, text.len);
  bytes_add(block, text);
}

void frame_add_line(bytes *block, int how, const char *name, kw_slice value) {
  bytes_add_byte(block, how & 1 ? 0x40 : how & 2 ? 0x10 : 0);
  add_string(block, kw_slice_of(name, strlen(name)));
  add_string(block, value);
}

void frame_add_headers(bytes *to, int how, int flags, uint32_t stream, kw_slice block) {
  size_t first = how & 4 ? block.len / 2 : kw_min_size(block.len, 16384);
  bool is_whole = first == block.len;
  frame_add(to, FRAME_HEADERS, flags | (is_whole ? FLAG_END_HEADERS : 0), stream,
            kw_slice_of(block.data, first));
  for (size_t at = first; at < block.len;) {
    size_t n = kw_min_size(block.len - at, 16384);
    bool is_last = at + n == block.len;
    frame_add(to, FRAME_CONTINUATION, is_last ? FLAG_END_HEADERS : 0, stream,
              kw_slice_of(block.data + at, n));
    at += n;
  }
}

/* }====== */

static void add_data(bytes *to, int flags, bool is_padded, uint32_t stream, kw_slice data) {
  bytes padded = {0};
  if (is_padded) {
    bytes_add_byte(&padded, 3);
    bytes_add(&padded, data);
    bytes_add_number(&padded, 0, 3);
    data = bytes_slice(&padded);
  }
  frame_add(to, FRAME_DATA, flags | (is_padded ? FLAG_PADDED : 0), stream, data);
  bytes_drop(&padded);
}

static void add_all_data(bytes *to, int how, uint32_t stream, kw_slice data) {
  size_t most = how & 4 && data.len > 1 ? data.len - data.len / 2 : 16000;
  do {
    size_t n = kw_min_size(data.len, most);
    data.len -= n;
    add_data(to, how & 1 && data.len == 0 ? FLAG_END_STREAM : 0, how & 2, stream,
             kw_slice_of(data.data, n));
    data.data += n;
  } while (data.len > 0);
}

void frame_add_message(bytes *to, int how, uint32_t stream, kw_slice message) {
  bytes data = {0};
  bytes_add_byte(&data, how & 8 ? 1 : 0);
  bytes_add_number(&data, message.len + (how & 16 ? 7 : 0), 4);
  bytes_add(&data, message);
  add_all_data(to, how, stream, bytes_slice(&data));
  bytes_drop(&data);
}

/* {====== What both sides may say ====== */

static void add_settings(bytes *payload, script_line *line) {
  while (!line_is_over(line)) {
    bytes_add_number(payload, (uint64_t)line_number(line), 2);
    bytes_add_number(payload, (uint64_t)line_number(line), 4);
  }
}

bool frame_add_common(bytes *to, char letter, uint32_t stream, script_line *line) {
  bytes payload = {0};
  int type, flags = 0;
  switch (letter) {
    case 'S':
      type = FRAME_SETTINGS;
      stream = 0;
      add_settings(&payload, line);
      break;
    case 'W':
      type = FRAME_WINDOW_UPDATE;
      bytes_add_number(&payload, (uint64_t)line_number(line), 4);
      break;
    case 'R':
      type = FRAME_RST_STREAM;
      bytes_add_number(&payload, (uint64_t)line_number(line), 4);
      break;
    case 'P':
      type = FRAME_PING;
      stream = 0;
      flags = line_flags(line) & FLAG_ACK;
      bytes_add_number(&payload, (uint64_t)line_number(line), 8);
      break;
    case 'Y':
      type = FRAME_PRIORITY;
      bytes_add_number(&payload, (uint64_t)line_number(line), 5);
      break;
    case 'G':
      type = FRAME_GOAWAY;
      stream = 0;
      bytes_add_number(&payload, (uint64_t)line_number(line), 4);
      bytes_add_number(&payload, (uint64_t)line_number(line), 4);
      line_rest(line, &payload);
      break;
    case 'F':
      type = line_flags(line) % 12;
      flags = line_flags(line);
      line_rest(line, &payload);
      break;
    case 'D':
      type = FRAME_DATA;
      flags = line_flags(line);
      line_bytes(line, &payload);
      break;
    case 'B': line_rest(line, to); return true;
    default: return false;
  }
  frame_add(to, type, flags, stream, bytes_slice(&payload));
  bytes_drop(&payload);
  return true;
}

/* }====== */
