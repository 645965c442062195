/* SPDX-License-Identifier: MIT
 *
 * script: an input as a list of steps, one in each line. A line is read byte by byte, and gives zeros after its end.
 * So every input is a script, and a mutation inside of a line does not change the other lines.
 *
 *   a number   0 to 9; a to z for numbers at the edge of some limit; any other byte for its own value
 *   bytes      A for the byte A, and so on; a to j for 0 to 9 bytes that follow; k to z for many copies of the byte
 *              that follows
 *   \ c        the byte c ^ 0x40, so that a line can hold every byte
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

/* Reads the next line. Returns false if there is none. */
bool script_next(script *s, script_line *line);

bool line_is_over(const script_line *line);
uint8_t line_byte(script_line *line);
int64_t line_number(script_line *line);

/* Reads a set of bits. The character 0 and the end of the line give none. */
int line_flags(script_line *line);
void line_bytes(script_line *line, bytes *to);

/* Reads all that is left of the line. */
void line_rest(script_line *line, bytes *to);

/* Reads a message field by field, and adds it encoded. A field is its number, or any other byte for one of the
 * fields, and its value. A dot or the end of the line ends the message. An exclamation mark adds bytes that are
 * not a field. */
void line_message(script_line *line, const kw_message *message, bytes *to);

#endif
