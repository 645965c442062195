/* SPDX-License-Identifier: MIT
 *
 * script: an input as a list of steps, one in each line. A line is read byte by byte, and is zeros after its end; so
 * every input is a script, and a change inside of a line changes nothing of the others.
 *
 *   a number   0 to 9, or a to z for one that is on the edge of something, or any other byte for its own value
 *   bytes      A for the byte A, and so on; a to j for so many that follow; k to z for many times the one that follows
 *   \ c        the byte c ^ 0x40, so that every byte can stand in a line
 */
#ifndef KW_FUZZ_SCRIPT_H
#define KW_FUZZ_SCRIPT_H

#include "bytes.h"
#include "codec/message.h"

typedef struct script {
  const uint8_t *at;
  const uint8_t *end;
} script;

typedef script script_line;

/* The next line; false if there is none. */
bool script_next(script *s, script_line *line);

bool line_is_over(const script_line *line);
uint8_t line_byte(script_line *line);
int64_t line_number(script_line *line);

/* A set of bits: the character 0 is none of them, and so is the end of the line. */
int line_flags(script_line *line);
void line_bytes(script_line *line, bytes *to);

/* All that is left. */
void line_rest(script_line *line, bytes *to);

/* An encoded message, field by field: its number, or any byte for one of them, and the value. A dot ends it, or the end
 * of the line. An exclamation mark puts bytes in that are no field. */
void line_message(script_line *line, const kw_message *message, bytes *to);

#endif
